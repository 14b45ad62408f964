package build

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/types"
)

// generate lists the manifests below dir for a directory that has no kustomization file: every YAML file, and every
// directory that has one of its own.
func (f *filesystem) generate(dir string) (*types.Kustomization, error) {
	k := &types.Kustomization{TypeMeta: types.TypeMeta{APIVersion: types.KustomizationVersion, Kind: types.KustomizationKind}}
	var problems []error
	var scan func(at string) error
	scan = func(at string) error {
		names, err := f.trace.listing(f.tree, at)
		if err != nil {
			return err
		}
		if at != dir {
			for _, n := range names {
				if isKustomization(n) {
					return f.addBase(k, dir, at, path.Join(at, n))
				}
			}
		}
		for _, n := range names {
			name := path.Join(at, n)
			info, err := f.tree.Lstat(name)
			switch {
			case err != nil:
				return err
			case info.IsDir():
				if err := scan(name); err != nil {
					return err
				}
			case isManifest(n):
				objects, err := f.manifest(name)
				problems = append(problems, err)
				if objects > 0 {
					k.Resources = append(k.Resources, relative(dir, name))
				}
			}
		}
		return nil
	}
	return k, errors.Join(scan(dir), join(problems))
}

func (f *filesystem) addBase(k *types.Kustomization, dir, at, file string) error {
	b, err := f.ReadFile(path.Join(mount, file))
	if err != nil {
		return err
	}
	var head types.TypeMeta
	if err := yaml.Unmarshal(b, &head); err != nil {
		return refusal("%s cannot be read", file).Because(err)
	}
	if head.Kind != types.ComponentKind { // components are for those who name them
		k.Resources = append(k.Resources, relative(dir, at))
	}
	return nil
}

// manifest counts the objects of a file, and says what is wrong with it.
func (f *filesystem) manifest(name string) (int, error) {
	b, err := f.ReadFile(path.Join(mount, name))
	if err != nil {
		return 0, err
	}
	documents := yaml.NewDecoder(bytes.NewReader(b))
	for objects := 0; ; {
		var doc yaml.Node
		err := documents.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return 0, syntaxError(name, err)
		}
		var head struct {
			APIVersion string `yaml:"apiVersion"`
			Kind       string `yaml:"kind"`
		}
		if len(doc.Content) == 0 || doc.Content[0].Tag == "!!null" {
			continue
		}
		if doc.Decode(&head) != nil || head.APIVersion == "" || head.Kind == "" {
			return 0, refusal("%s, line %d, is not a Kubernetes object: apiVersion or kind is missing", name, doc.Content[0].Line).
				WithHint("Leave the file out with .sourceignore or spec.ignore, or list the manifests in a kustomization.yaml")
		}
		objects++
	}
}

func syntaxError(name string, err error) error {
	return refusal("%s is not valid YAML: %s", name, strings.TrimPrefix(err.Error(), "yaml: "))
}

// relative gives name as seen from dir.
func relative(dir, name string) string {
	if dir == "." {
		return name
	}
	return strings.TrimPrefix(name, dir+"/")
}

// findKustomization returns the kustomization file in a directory, if it has one.
func (f *filesystem) findKustomization(dir string) (string, bool) {
	for _, n := range konfig.RecognizedKustomizationFileNames() {
		name := path.Join(dir, n)
		if f.trace.kind(f.tree, name) == kindFile {
			return name, true
		}
	}
	return "", false
}

// missing says that spec.path is not there, and what is.
func (f *filesystem) missing(dir string) error {
	parent := dir
	for parent != "." {
		parent = path.Dir(parent)
		if f.trace.kind(f.tree, parent) == kindDir {
			break
		}
	}
	var dirs []string
	entries, err := fs.ReadDir(f.tree, parent)
	for _, e := range entries {
		if e.IsDir() {
			dirs = append(dirs, path.Join(parent, e.Name()))
		}
	}
	hint := "The source holds no directory there"
	if len(dirs) > 0 {
		hint = "Correct spec.path; the source has: " + strings.Join(dirs[:min(len(dirs), 8)], ", ")
	}
	return errors.Join(refusal("kustomization path not found: %q is not a directory of the source", dir).WithHint("%s", hint), err)
}

// join puts problems into one error, at most ten of them in words.
func join(problems []error) error {
	var texts []string
	for _, p := range problems {
		if p != nil {
			texts = append(texts, p.Error())
		}
	}
	if len(texts) == 0 {
		return nil
	}
	if n := len(texts); n > 10 {
		texts = append(texts[:10], fmt.Sprintf("and %d more", n-10))
	}
	return refusal("%s", strings.Join(texts, "; "))
}
