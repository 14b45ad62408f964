package cli

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-gitops/sluice/internal/testenv/ociregistry"
)

// fluxArchive returns a .tar.gz as `flux push artifact` writes it: with an entry for each directory, also the root.
func fluxArchive(t *testing.T, dirs []string, files map[string]string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	var failure error
	for _, dir := range append([]string{"."}, dirs...) {
		failure = errors.Join(failure, w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}))
	}
	for name, content := range files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(content))}
		failure = errors.Join(failure, w.WriteHeader(header))
		_, err := w.Write([]byte(content))
		failure = errors.Join(failure, err)
	}
	file := filepath.Join(t.TempDir(), "flux.tgz")
	if err := errors.Join(failure, w.Close(), z.Close(), os.WriteFile(file, b.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	return file
}

// pathsIn returns the paths of all files and directories, sorted. Those of directories end in a slash.
func pathsIn(t *testing.T, dir string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(full string, d fs.DirEntry, err error) error {
		name, relErr := filepath.Rel(dir, full)
		if d.IsDir() {
			name += "/"
		}
		paths = append(paths, name)
		return errors.Join(err, relErr)
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(paths)
	return paths
}

func TestArtifactsKeepEmptyDirectories(t *testing.T) {
	t.Parallel()
	r := ociregistry.New(t)
	files := map[string]string{"a.yaml": "a: 1\n", "base/b.yaml": "b: 2\n", ".sourceignore": "*.md\n/skipped/\n"}
	dir := write(t, files)
	for _, empty := range []string{"empty/deep", "base/none", "docs", "skipped/below"} {
		if err := os.MkdirAll(filepath.Join(dir, empty), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "docs", "readme.md"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	pushed := fluxArchive(t, []string{"base", "base/none", "docs", "empty", "empty/deep", "skipped"}, files)
	url := r.OCI + "/org/app"
	for tag, from := range map[string]string{"ours": dir, "flux": pushed} {
		run(t, "push", "artifact", url+":"+tag, "--path", from, "--source", "s", "--revision", "r",
			"--insecure-registry").wants(t, exitOK)
		run(t, "diff", "artifact", url+":"+tag, "--path", dir, "--insecure-registry").
			wants(t, exitOK, "have the same content")
		out := t.TempDir()
		run(t, "pull", "artifact", url+":"+tag, "-o", out, "--insecure-registry").wants(t, exitOK)
		want := []string{"./", ".sourceignore", "a.yaml", "base/", "base/b.yaml", "base/none/", "docs/", "empty/",
			"empty/deep/"}
		if diff := cmp.Diff(want, pathsIn(t, out)); diff != "" {
			t.Errorf("%s: %s", tag, diff)
		}
	}

	t.Log("a directory that is missing is a difference")
	if err := os.Remove(filepath.Join(dir, "base", "none")); err != nil {
		t.Fatal(err)
	}
	differs := run(t, "diff", "artifact", url+":ours", "--path", dir, "--insecure-registry").
		wants(t, exitFailed, "differ in 1 file")
	if diff := cmp.Diff("- base/none/\n", differs.out); diff != "" {
		t.Error(diff)
	}
}
