package git

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

func TestSourcesOfRepositoryShareMirror(t *testing.T) {
	g := testenv.NewGit(t)
	g.Commit("app", map[string]string{"a.yaml": "1", "b/c.yaml": "2"})
	dir := t.TempDir()
	ms := longTTL(dir)
	remote, ref := Remote{URL: g.URL + "/app"}, Reference{Branch: "main"}
	updated(t, ms.View("one"), remote, ref)
	once := g.Stats()
	rev := updated(t, ms.View("two"), remote, ref)
	if again := g.Stats(); again["fetches"] != once["fetches"] || again["advertisements"] != once["advertisements"] {
		t.Errorf("the second source sent requests: %v after %v", again, once)
	}
	for _, owner := range []string{"one", "two"} {
		if _, err := ms.View(owner).Tree(t.Context(), rev, Options{}); err != nil {
			t.Error(err)
		}
	}
	if n := len(mirrorDirs(t, dir)); n != 1 {
		t.Errorf("got %d mirrors, want 1", n)
	}
	other := remote
	other.Credentials = auth.GitCredentials{Username: "me", Password: "secret"}
	updated(t, ms.View("three"), other, ref)
	if n := len(mirrorDirs(t, dir)); n != 2 {
		t.Errorf("with other credentials: got %d mirrors, want 2", n)
	}
	if now := g.Stats(); now["fetches"] != once["fetches"]+1 {
		t.Error("with other credentials: nothing was fetched")
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
	if names := mirrorDirs(t, dir); len(names) != 0 {
		t.Errorf("unused mirrors remain: %v", names)
	}
	if b, err := tree.ReadFile("a.yaml"); err != nil || string(b) != "1" {
		t.Errorf("cannot read the tree after its mirror was removed: %v", err)
	}
}

func TestConcurrentUpdatesShareListing(t *testing.T) {
	g := testenv.NewGit(t)
	first := g.Commit("app", map[string]string{"a.yaml": "1"})
	ms := longTTL(t.TempDir())
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
		t.Errorf("eight sources sent %v", s)
	}
	m, err := ms.acquire("a", remote)
	if err != nil {
		t.Fatal(err)
	}
	// a fresh update needs a listing that started after its call
	for before, want := range map[time.Duration]bool{1: true, -1: false} {
		if _, listed, err := m.resolveListed(ref, "z", m.listing.start.Add(-before), true); listed != want ||
			err != nil {
			t.Errorf("called %s before the listing: got %v, %v", before, listed, err)
		}
	}
}

func TestListingsOfOtherSources(t *testing.T) {
	g := testenv.NewGit(t)
	g.Commit("app", map[string]string{"a.yaml": "1"})
	ms := longTTL(t.TempDir())
	remote, ref := Remote{URL: g.URL + "/app"}, Reference{Branch: "main"}
	updated(t, ms.View("one"), remote, ref)
	second := g.Commit("app", map[string]string{"a.yaml": "2"})
	if rev := updated(t, ms.View("one"), remote, ref); rev.Commit != second {
		t.Error("the source used its own previous listing")
	}
	third := g.Commit("app", map[string]string{"a.yaml": "3"})
	if rev, err := ms.View("two").Update(t.Context(), remote, ref, true); err != nil || rev.Commit != third {
		t.Errorf("a fresh update did not list the references: %v, %v", rev, err)
	}
	g.Run("app", "tag", "v1", third)
	if rev := updated(t, ms.View("two"), remote, Reference{Tag: "v1"}); rev.Commit != third {
		t.Error("a new reference is not found")
	}
}

func TestContextEndsWaitForLock(t *testing.T) {
	ms := longTTL(t.TempDir())
	remote := Remote{URL: "http://host.invalid/app"}
	m, err := ms.acquire("one", remote)
	if err != nil {
		t.Fatal(err)
	}
	m.lock <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := ms.View("two").Update(ctx, remote, Reference{}, false); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestCollectRemovesUnusedMirrors(t *testing.T) {
	g := testenv.NewGit(t)
	g.Commit("app", map[string]string{"a.yaml": "1"})
	g.Commit("web", map[string]string{"a.yaml": "1"})
	dir := t.TempDir()
	before := longTTL(dir)
	ref := Reference{Branch: "main"}
	updated(t, before.View("alive"), Remote{URL: g.URL + "/app"}, ref)
	updated(t, before.View("gone"), Remote{URL: g.URL + "/app"}, ref)
	updated(t, before.View("gone"), Remote{URL: g.URL + "/web"}, ref)
	updated(t, before.View("gone too"), Remote{URL: g.URL + "/web"}, ref)
	if err := os.MkdirAll(filepath.Join(dir, "something", "old"), 0o700); err != nil {
		t.Fatal(err)
	}
	after := longTTL(dir)
	if err := after.Collect(func(owner string) bool { return owner == "alive" }); err != nil {
		t.Fatal(err)
	}
	names := mirrorDirs(t, dir)
	if len(names) != 1 {
		t.Errorf("remaining mirrors: %v", names)
	}
	stats := g.Stats()
	updated(t, after.View("alive"), Remote{URL: g.URL + "/app"}, ref)
	if g.Stats()["fetches"] != stats["fetches"] {
		t.Error("the mirror of a live owner was fetched again")
	}
	if err := errors.Join(after.Forget("alive"), longTTL(filepath.Join(dir, "none")).Collect(nil)); err != nil {
		t.Error(err)
	}
	if names := mirrorDirs(t, dir); len(names) != 0 {
		t.Errorf("remaining mirrors: %v", names)
	}
}

// longTTL returns mirrors whose listings are valid for the duration of a test.
func longTTL(dir string) *Mirrors {
	ms := NewMirrors(dir)
	ms.limits.listingTTL = time.Hour
	return ms
}

// mirrorDirs returns the names of the directories of mirrors.
func mirrorDirs(t *testing.T, dir string) (names []string) {
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
