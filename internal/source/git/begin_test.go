package git

import (
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// begun commits on a branch, which may not exist, and pushes.
func begun(t *testing.T, v *View, remote Remote, branch, file string) plumbing.Hash {
	t.Helper()
	base, err := v.Begin(t.Context(), remote, branch)
	if err != nil {
		t.Fatal(err)
	}
	commit, err := v.Commit(t.Context(), NewCommit{Parent: base.Commit, Author: author, Message: "Add " + file,
		Edits: []Edit{{Path: file, Content: []byte(file + "\n")}}})
	if err != nil {
		t.Fatal(err)
	}
	update := RefUpdate{Name: "refs/heads/" + branch, Old: base.Tip, New: commit}
	if err := v.Push(t.Context(), []RefUpdate{update}, nil); err != nil {
		t.Fatal(err)
	}
	return commit
}

// The first commit of an empty repository has no parent; the next ones follow it, on the branch and on new branches.
func TestBeginInEmptyRepository(t *testing.T) {
	g := testenv.NewGit(t)
	g.Init("app")
	v, remote := open(t), Remote{URL: g.URL + "/app"}
	first := begun(t, v, remote, "main", "a/b/first.yaml")
	second := begun(t, v, remote, "main", "second.yaml")
	third := begun(t, v, remote, "clusters", "third.yaml")
	for commit, parents := range map[plumbing.Hash]string{first: "", second: first.String(), third: second.String()} {
		if got := g.Run("app", "log", "-1", "--format=%P", commit.String()); got != parents {
			t.Errorf("parents of %s are %q, want %q", commit, got, parents)
		}
	}
	if got := g.Run("app", "ls-tree", "-r", "--name-only", "clusters"); got !=
		"a/b/first.yaml\nsecond.yaml\nthird.yaml" {
		t.Errorf("files are %q", got)
	}
	g.Run("app", "fsck", "--strict", "--no-dangling")
}

func TestBeginRefusesRepositoryWithoutDefaultBranch(t *testing.T) {
	g := testenv.NewGit(t)
	g.Init("app")
	g.CommitTo("app", "refs/heads/release", map[string]string{"a": "1"})
	_, err := open(t).Begin(t.Context(), Remote{URL: g.URL + "/app"}, "prod")
	if err == nil || !strings.Contains(err.Error(), "the remote has: release") {
		t.Errorf("got %v", err)
	}
}

// A branch that another push created meanwhile is not overwritten.
func TestBeginRaced(t *testing.T) {
	g := testenv.NewGit(t)
	g.Init("app")
	v, remote := open(t), Remote{URL: g.URL + "/app"}
	base, err := v.Begin(t.Context(), remote, "main")
	if err != nil {
		t.Fatal(err)
	}
	commit, err := v.Commit(t.Context(), NewCommit{Parent: base.Commit, Author: author, Message: "Add",
		Edits: []Edit{{Path: "a", Content: []byte("1")}}})
	if err != nil {
		t.Fatal(err)
	}
	other := g.Commit("app", map[string]string{"b": "1"})
	err = v.Push(t.Context(), []RefUpdate{{Name: mainRef, Old: base.Tip, New: commit}}, nil)
	if err == nil || g.Run("app", "rev-parse", "main") != other {
		t.Errorf("got %v", err)
	}
	begun(t, v, remote, "main", "a")
}
