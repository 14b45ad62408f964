package git

import (
	"context"
	"crypto/rand"
	"fmt"
	"io/fs"
	"os"
	"testing"

	"github.com/sluice-gitops/sluice/internal/artifact"
)

// open returns a view of an empty mirror.
func open(t *testing.T) *View {
	t.Helper()
	return NewMirrors(t.TempDir()).View("owner")
}

// updated updates a view, and returns the revision.
func updated(t *testing.T, m *View, remote Remote, ref Reference) Revision {
	t.Helper()
	rev, err := m.Update(context.Background(), remote, ref, false)
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

// names returns the names of all entries of a tree.
func names(t *testing.T, tree *artifact.Tree) (names []string) {
	t.Helper()
	if err := tree.Walk(func(name string, _ *artifact.Entry) error {
		names = append(names, name)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return names
}

func subset(f fs.FS, dir string) fs.FS {
	sub, err := fs.Sub(f, dir)
	if err != nil {
		panic(err)
	}
	return sub
}

func write(t *testing.T, file string, data []byte) {
	t.Helper()
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func randomText(t *testing.T, n int) string {
	t.Helper()
	b := make([]byte, n)
	if _, err := rand.Read(b); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", b)
}
