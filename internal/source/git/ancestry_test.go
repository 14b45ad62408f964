package git

import (
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// A commit with a branch must be on that branch, whether or not the server can send commits without their trees.
func TestPinnedCommitMustBeOnItsBranch(t *testing.T) {
	for name, filter := range map[string]string{"all objects": "false", "commits only": "true"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := testenv.NewGit(t)
			first := g.Commit("app", map[string]string{"a.yaml": "0"})
			g.Run("app", "config", "uploadpack.allowFilter", filter)
			g.Run("app", "config", "uploadpack.allowAnySHA1InWant", "true")
			for n := range 8 {
				g.Commit("app", map[string]string{"a.yaml": strconv.Itoa(n + 1)})
			}
			g.SetRef("app", "refs/heads/feature", first)
			other := g.CommitTo("app", "refs/heads/feature", map[string]string{"b.yaml": "1"})
			last := g.CommitTo("app", "refs/heads/feature", map[string]string{"b.yaml": "2"})
			dir := t.TempDir()
			mirrors := NewMirrors(dir)
			mirrors.limits.history = 3
			v, remote := mirrors.View("owner"), Remote{URL: g.URL + "/app"}

			for _, commit := range []string{other, last} {
				for range 2 {
					_, err := v.Update(t.Context(), remote, Reference{Branch: "main", Commit: commit}, true)
					if err == nil || !strings.Contains(err.Error(), "commit "+commit+" not found in branch 'main'") {
						t.Fatalf("got %v", err)
					}
				}
			}
			old := Reference{Branch: "main", Commit: first}
			for _, ref := range []Reference{old, {Branch: "feature", Commit: other}, {Branch: "feature", Commit: last},
				{Commit: other}} {
				if _, err := v.Tree(t.Context(), updated(t, v, remote, ref), Options{}); err != nil {
					t.Errorf("%+v: %v", ref, err)
				}
			}
			if _, err := v.Update(t.Context(), remote, Reference{Branch: "main", Commit: other}, true); err == nil {
				t.Error("a commit of another branch is accepted since the mirror contains it")
			}
			g.Stop()
			again := NewMirrors(dir).View("owner")
			if _, err := again.Update(t.Context(), remote, old, true); err != nil {
				t.Errorf("after a restart a commit in the mirror needs a request: %v", err)
			}
		})
	}
}

// A commit that reaches its branch later is accepted then.
func TestPinnedCommitIsMerged(t *testing.T) {
	g := testenv.NewGit(t)
	first := g.Commit("app", map[string]string{"a.yaml": "0"})
	g.SetRef("app", "refs/heads/feature", first)
	other := g.CommitTo("app", "refs/heads/feature", map[string]string{"b.yaml": "1"})
	v, remote := open(t), Remote{URL: g.URL + "/app"}
	ref := Reference{Branch: "main", Commit: other}
	if _, err := v.Update(t.Context(), remote, ref, true); err == nil {
		t.Fatal("a commit that is not on the branch is accepted")
	}
	g.CommitTo("app", "refs/heads/feature", map[string]string{"b.yaml": "2"})
	g.Run("app", "update-ref", "refs/heads/main", "refs/heads/feature")
	if got := updated(t, v, remote, ref).String(); got != "main@sha1:"+other {
		t.Errorf("got %s", got)
	}
}
