package git

import (
	"errors"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// TestListedDirectoriesAreBounded checks directories that are read for image updates, and the limit of trees.
func TestListedDirectoriesAreBounded(t *testing.T) {
	g := testenv.NewGit(t)
	g.Commit("large", map[string]string{"a": "x", "b": "x", "c": "x"})
	v := open(t)
	revision := updated(t, v, Remote{URL: g.URL + "/large"}, Reference{Branch: "main"})
	files, err := v.Files(plumbing.NewHash(revision.Commit))
	if err != nil {
		t.Fatal(err)
	}
	if listing, err := files.List(files.Root, 3); err != nil || len(listing) != 3 {
		t.Errorf("within the limit: %d entries, %v", len(listing), err)
	}
	if _, err := files.List(files.Root, 2); !errors.Is(err, ErrTooManyEntries) {
		t.Errorf("with a limit: %v", err)
	}
	if v.mirror.limits.entries != MaxEntries() {
		t.Errorf("a tree may have %d entries, want %d", v.mirror.limits.entries, MaxEntries())
	}
}
