package artifact

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"
)

func FuzzDecodeSidecar(f *testing.F) {
	var b bytes.Buffer
	must(f, sidecar{Format: format, Digest: "sha256:00", Segments: []segment{{Key: "k", Length: 1}}}.encode(&b))
	f.Add(b.Bytes())
	f.Add([]byte("\n{}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		side, err := decodeSidecar(b)
		if err != nil {
			return
		}
		var again bytes.Buffer
		must(t, side.encode(&again))
		if _, err := decodeSidecar(again.Bytes()); err != nil {
			t.Error(err)
		}
	})
}

func FuzzReadArchive(f *testing.F) {
	b, _ := archiveOf(f, FromMap(map[string]string{"a/b": "x", "c": "symlink:a/b"}), nil)
	f.Add(b)
	f.Add(packed(f, tar.Header{Name: "../x"}))
	f.Add(packed(f, tar.Header{Name: "a", Typeflag: tar.TypeSymlink, Linkname: "a"}, tar.Header{Name: "a/b/c"}))
	f.Add([]byte("\x1f\x8b"))
	f.Add(packed(f, tar.Header{Name: "A"}, tar.Header{Name: "a"}))
	f.Add(packed(f, tar.Header{Name: "a", Size: 3}, tar.Header{Name: "b", Typeflag: tar.TypeLink, Linkname: "a"}))
	f.Add(sparse(f, 1<<19))
	small := limits{bytes: 1 << 20, entries: 1000, depth: 64, name: 512}
	f.Fuzz(func(t *testing.T, b []byte) {
		tree, err := small.read(t.Context(), bytes.NewReader(b), nil)
		if err != nil {
			return
		}
		if sum := tree.Size(); sum > small.bytes {
			t.Fatalf("%d bytes were read, more than the limit", sum)
		}
		err = tree.Walk(func(name string, _ *Entry) error {
			if !fs.ValidPath(name) {
				return fmt.Errorf("%q is not a valid path", name)
			}
			if _, err := tree.ReadFile(name); err != nil && !errors.Is(err, fs.ErrInvalid) &&
				!errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		// Writing and reading the tree again returns the same tree.
		again, _ := archiveOf(t, tree, nil)
		second, err := ReadArchive(context.Background(), bytes.NewReader(again))
		if err != nil || second.Root().ID != tree.Root().ID {
			t.Fatalf("the tree differs after writing and reading it: %v", err)
		}
	})
}
