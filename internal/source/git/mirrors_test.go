package git

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

func TestSourcesOfOneRepositoryShareItsMirror(t *testing.T) {
	g := testenv.NewGit(t)
	g.Commit("app", map[string]string{"a.yaml": "1", "b/c.yaml": "2"})
	dir := t.TempDir()
	ms := patient(dir)
	remote, ref := Remote{URL: g.URL + "/app"}, Reference{Branch: "main"}
	updated(t, ms.View("one"), remote, ref)
	once := g.Stats()
	rev := updated(t, ms.View("two"), remote, ref)
	if again := g.Stats(); again["fetches"] != once["fetches"] || again["advertisements"] != once["advertisements"] {
		t.Errorf("the second source asked the remote: %v after %v", again, once)
	}
	for _, owner := range []string{"one", "two"} {
		if _, err := ms.View(owner).Tree(t.Context(), rev, Options{}); err != nil {
			t.Error(err)
		}
	}
	if n := len(kept(t, dir)); n != 1 {
		t.Errorf("there are %d mirrors", n)
	}
	other := remote
	other.Credentials = auth.GitCredentials{Username: "me", Password: "secret"}
	updated(t, ms.View("three"), other, ref)
	if n := len(kept(t, dir)); n != 2 {
		t.Errorf("another login got one of %d mirrors", n)
	}
	if now := g.Stats(); now["fetches"] != once["fetches"]+1 {
		t.Error("another login was given what was fetched before")
	}
	tree, err := ms.View("two").Tree(t.Context(), rev, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, owner := range []string{"one", "three", "two"} {
		if err := ms.Forget(owner); err != nil {
			t.Error(err)
		}
	}
	if names := kept(t, dir); len(names) != 0 {
		t.Errorf("mirrors of nobody stay: %v", names)
	}
	if b, err := tree.ReadFile("a.yaml"); err != nil || string(b) != "1" {
		t.Errorf("a tree cannot be read any more: %v", err)
	}
}

func TestSourcesThatAreDueTogetherAskOnce(t *testing.T) {
	g := testenv.NewGit(t)
	first := g.Commit("app", map[string]string{"a.yaml": "1"})
	ms := patient(t.TempDir())
	remote, ref := Remote{URL: g.URL + "/app"}, Reference{Branch: "main"}
	var wait sync.WaitGroup
	for _, owner := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		wait.Go(func() {
			rev, err := ms.View(owner).Update(context.Background(), remote, ref, false)
			if err != nil || rev.Commit != first {
				t.Errorf("%v, %v", rev, err)
			}
		})
	}
	wait.Wait()
	if s := g.Stats(); s["fetches"] != 1 || s["advertisements"] != 1 {
		t.Errorf("eight sources cost %v", s)
	}
	m, err := ms.acquire("a", remote)
	if err != nil {
		t.Fatal(err)
	}
	// who asked while another was asking needs an answer of its own
	for before, want := range map[time.Duration]bool{1: true, -1: false} {
		if _, known, err := m.known(ref, "z", m.listing.begun.Add(-before), true); known != want || err != nil {
			t.Errorf("asked %s before another did, it is answered: %v, %v", before, known, err)
		}
	}
}

func TestAnswersOfOthersAreNotOld(t *testing.T) {
	g := testenv.NewGit(t)
	g.Commit("app", map[string]string{"a.yaml": "1"})
	ms := patient(t.TempDir())
	remote, ref := Remote{URL: g.URL + "/app"}, Reference{Branch: "main"}
	updated(t, ms.View("one"), remote, ref)
	second := g.Commit("app", map[string]string{"a.yaml": "2"})
	if rev := updated(t, ms.View("one"), remote, ref); rev.Commit != second {
		t.Error("a source takes its own old answer for a new one")
	}
	third := g.Commit("app", map[string]string{"a.yaml": "3"})
	if rev, err := ms.View("two").Update(t.Context(), remote, ref, true); err != nil || rev.Commit != third {
		t.Errorf("a source that must ask does not: %v, %v", rev, err)
	}
	g.Run("app", "tag", "v1", third)
	if rev := updated(t, ms.View("two"), remote, Reference{Tag: "v1"}); rev.Commit != third {
		t.Error("a reference that is new is not found")
	}
}

func TestWaitingEndsWithTheContext(t *testing.T) {
	ms := patient(t.TempDir())
	remote := Remote{URL: "http://host.invalid/app"}
	m, err := ms.acquire("one", remote)
	if err != nil {
		t.Fatal(err)
	}
	m.turn <- struct{}{} // somebody is at it
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := ms.View("two").Update(ctx, remote, Reference{}, false); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestMirrorsOfNobodyGoAtTheStart(t *testing.T) {
	g := testenv.NewGit(t)
	g.Commit("app", map[string]string{"a.yaml": "1"})
	g.Commit("web", map[string]string{"a.yaml": "1"})
	dir := t.TempDir()
	before := patient(dir)
	ref := Reference{Branch: "main"}
	updated(t, before.View("alive"), Remote{URL: g.URL + "/app"}, ref)
	updated(t, before.View("gone"), Remote{URL: g.URL + "/app"}, ref)
	updated(t, before.View("gone"), Remote{URL: g.URL + "/web"}, ref)
	updated(t, before.View("gone too"), Remote{URL: g.URL + "/web"}, ref)
	if err := os.MkdirAll(filepath.Join(dir, "something", "old"), 0o700); err != nil {
		t.Fatal(err)
	}
	after := patient(dir)
	if err := after.Collect(func(owner string) bool { return owner == "alive" }); err != nil {
		t.Fatal(err)
	}
	names := kept(t, dir)
	if len(names) != 1 {
		t.Errorf("these stay: %v", names)
	}
	stats := g.Stats()
	updated(t, after.View("alive"), Remote{URL: g.URL + "/app"}, ref)
	if g.Stats()["fetches"] != stats["fetches"] {
		t.Error("the mirror of a source that is alive was fetched again")
	}
	if err := errors.Join(after.Forget("alive"), patient(filepath.Join(dir, "none")).Collect(nil)); err != nil {
		t.Error(err)
	}
	if names := kept(t, dir); len(names) != 0 {
		t.Errorf("these stay: %v", names)
	}
}

// patient keeps mirrors whose answers count for longer than any test takes.
func patient(dir string) *Mirrors {
	ms := NewMirrors(dir)
	ms.limits.moment = time.Hour
	return ms
}

func kept(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
