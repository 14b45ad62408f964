package differential

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"testing"

	"sigs.k8s.io/kustomize/api/konfig"
)

// TestPublicRepositoriesBuildAsWithKustomize builds every directory with manifests of the repositories below
// SLUICE_REALWORLD, and compares it with kustomize.
func TestPublicRepositoriesBuildAsWithKustomize(t *testing.T) {
	root := os.Getenv("SLUICE_REALWORLD")
	if root == "" {
		t.Log("SLUICE_REALWORLD is not set: it names the folder with the repositories; nothing is compared")
		return
	}
	repositories, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, repository := range repositories {
		if !repository.IsDir() {
			continue
		}
		t.Run(repository.Name(), func(t *testing.T) {
			files, dirs := readRepository(t, filepath.Join(root, repository.Name()))
			tree, built := writeTree(t, files), 0
			for _, dir := range dirs {
				want, err := kustomizeAndRestore(t, filepath.Join(tree, filepath.FromSlash(dir)))
				if difference := compareWith(t, files, dir, want, err); difference != "" {
					t.Errorf("%s: %s", dir, difference)
				}
				if err == nil {
					built++
				}
			}
			t.Logf("%d directories of %d files, of which kustomize builds %d", len(dirs), len(files), built)
		})
	}
}

// readRepository returns the files below a directory, and the directories that hold manifests.
func readRepository(t *testing.T, root string) (files map[string]string, dirs []string) {
	t.Helper()
	files = map[string]string{}
	err := filepath.WalkDir(root, func(full string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() == ".git" {
			if d != nil && d.IsDir() {
				return fs.SkipDir
			}
			return err
		}
		if !d.Type().IsRegular() {
			return nil
		}
		content, err := os.ReadFile(full)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, full)
		name = filepath.ToSlash(name)
		files[name] = string(content)
		if ext := path.Ext(name); ext == ".yaml" || ext == ".yml" {
			dirs = append(dirs, path.Dir(name))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(dirs)
	return files, slices.Compact(dirs)
}

// kustomizeAndRestore builds a directory and leaves it as it was, since the next build may read it.
func kustomizeAndRestore(t *testing.T, dir string) (string, error) {
	t.Helper()
	before := map[string][]byte{}
	for _, name := range konfig.RecognizedKustomizationFileNames() {
		if content, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
			before[name] = content
		}
	}
	objects, buildErr := kustomize(dir)
	for _, name := range konfig.RecognizedKustomizationFileNames() {
		file := filepath.Join(dir, name)
		var err error
		if content, existed := before[name]; existed {
			err = os.WriteFile(file, content, 0o600)
		} else if err = os.Remove(file); os.IsNotExist(err) {
			err = nil
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return objects, buildErr
}
