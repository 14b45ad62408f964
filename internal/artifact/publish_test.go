package artifact

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// asFluxPacks returns the .tar.gz of a directory as `flux push artifact` writes it: an entry for each directory and
// file in the order of a walk, without owners and times. Symlinks are left out.
func asFluxPacks(t *testing.T, dir string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeSymlink != 0 {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		header, err := tar.FileInfoHeader(info, file)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, file)
		header.Name, header.Uid, header.Gid, header.Uname, header.Gname = name, 0, 0, "", ""
		header.ModTime, header.AccessTime, header.ChangeTime = time.Time{}, time.Time{}, time.Time{}
		if err := errors.Join(err, w.WriteHeader(header)); err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	})
	if err := errors.Join(err, w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestWriteArchiveWritesTheBytesOfFlux compares with a directory, since `flux diff artifact` compares digests.
func TestWriteArchiveWritesTheBytesOfFlux(t *testing.T) {
	long := strings.Repeat("n", 120) + "/" + strings.Repeat("m", 120)
	files := map[string]string{"a.yaml": "a: 1\n", "b/c/d.yaml": strings.Repeat("d", 5000), "b.yaml": "", "ü/x": "x",
		"empty/deep/": "", "none/": "", long + "/": "", "b/" + long: "long"}
	dir := t.TempDir()
	for name, content := range files {
		full := filepath.Join(dir, name)
		parent := filepath.Dir(full)
		if strings.HasSuffix(name, "/") {
			parent = full
		}
		must(t, os.MkdirAll(parent, 0o755))
		if parent != full {
			must(t, os.WriteFile(full, []byte(content), 0o644))
		}
	}
	must(t, chmodAll(dir)) // independent of the umask
	var got bytes.Buffer
	must(t, WriteArchive(t.Context(), &got, FromMap(files)))
	if !bytes.Equal(got.Bytes(), asFluxPacks(t, dir)) {
		t.Error("the archive differs from that of Flux")
	}
	read, err := ReadArchive(t.Context(), &got)
	must(t, err)
	if !maps.Equal(contents(t, read), files) {
		t.Errorf("the archive has other contents: %q", contents(t, read))
	}
}

func chmodAll(dir string) error {
	return filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		mode := fs.FileMode(0o644)
		if err == nil && d.IsDir() {
			mode = 0o755
		}
		return errors.Join(err, os.Chmod(file, mode))
	})
}

func TestWriteArchiveHasOnlyLinksThatStayInside(t *testing.T) {
	var b bytes.Buffer
	must(t, WriteArchive(t.Context(), &b, FromMap(map[string]string{"dir/a": "a", "dir/in": "symlink:a",
		"dir/out": "symlink:../../a"})))
	read, err := ReadArchive(t.Context(), &b)
	must(t, err)
	want := map[string]string{"dir/a": "a", "dir/in": "symlink:a"}
	if got := contents(t, read); !maps.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
