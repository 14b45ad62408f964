package artifact

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

var webapp = Key{Kind: "GitRepository", Namespace: "apps", Name: "webapp"}

// withClock sets the clock of the store.
func withClock(c clock.PassiveClock) Option { return func(s *Store) { s.clock = c } }

func openStore(t testing.TB, dir string, c clock.PassiveClock) *Store {
	t.Helper()
	s, err := OpenStore(dir, "artifacts:9090", Retention{TTL: time.Minute, Count: 2}, withClock(c))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func put(t testing.TB, s *Store, tree *Tree, revision string, current *meta.Artifact) *meta.Artifact {
	t.Helper()
	a, err := s.Put(t.Context(), webapp, tree, revision, current)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func newClock() *clocktesting.FakePassiveClock {
	return clocktesting.NewFakePassiveClock(time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC))
}

func statOf(t testing.TB, s *Store, a *meta.Artifact) fs.FileInfo {
	t.Helper()
	info, err := os.Stat(filepath.Join(s.dir, a.Path))
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func TestPutDescribesTheArtifact(t *testing.T) {
	c := newClock()
	s := openStore(t, t.TempDir(), c)
	a := put(t, s, FromMap(map[string]string{"a": "x"}), "main@sha1:0123abc", nil)
	if !strings.HasPrefix(a.Path, "gitrepository/apps/webapp/0123abc-") || !strings.HasSuffix(a.Path, ".tar.gz") {
		t.Errorf("path %q", a.Path)
	}
	if a.URL != "http://artifacts:9090/"+a.Path || a.Revision != "main@sha1:0123abc" || a.Digest != "sha256:"+
		a.Checksum {
		t.Errorf("%+v", a)
	}
	if *a.Size != statOf(t, s, a).Size() || !a.LastUpdateTime.Time.Equal(c.Now().Truncate(time.Second)) {
		t.Errorf("%+v", a)
	}
}

func TestPutOfTheSameWritesNothing(t *testing.T) {
	for reason, c := range map[string]struct {
		restart, forgotten bool
	}{
		"again":                            {},
		"after a restart":                  {restart: true},
		"after the status was lost":        {forgotten: true},
		"after a restart without a status": {restart: true, forgotten: true},
	} {
		t.Run(reason, func(t *testing.T) {
			clk := newClock()
			s := openStore(t, t.TempDir(), clk)
			tree := FromMap(manyFiles(200, 1))
			first := put(t, s, tree, "v1", nil)
			before := statOf(t, s, first)
			clk.SetTime(clk.Now().Add(time.Hour))
			if c.restart {
				s = openStore(t, s.dir, clk)
			}
			current := first
			if c.forgotten {
				current = nil
			}
			second := put(t, s, tree, "v1", current)
			if !os.SameFile(before, statOf(t, s, second)) {
				t.Error("the file was written again")
			}
			if second.Digest != first.Digest || second.Path != first.Path ||
				!c.forgotten && !second.LastUpdateTime.Equal(&first.LastUpdateTime) {
				t.Errorf("got %+v, want %+v", second, first)
			}
		})
	}
}

func TestPutCopiesFromTheArtifactBefore(t *testing.T) {
	files := manyFiles(1000, 5)
	changed := maps.Clone(files)
	changed[slices.Sorted(maps.Keys(files))[500]] = "changed"
	fresh := put(t, openStore(t, t.TempDir(), newClock()), FromMap(changed), "v2", nil)
	for reason, spoil := range map[string]func(t *testing.T, file string){
		"whole":                 func(*testing.T, string) {},
		"damaged":               func(t *testing.T, file string) { damage(t, file, 500) },
		"without an index":      func(t *testing.T, file string) { remove(t, file+index) },
		"with a damaged index":  func(t *testing.T, file string) { damage(t, file+index, 200) },
		"gone":                  func(t *testing.T, file string) { remove(t, file) },
		"of another Go version": func(t *testing.T, file string) { damage(t, file+index, 80) },
	} {
		t.Run(reason, func(t *testing.T) {
			s := openStore(t, t.TempDir(), newClock())
			first := put(t, s, FromMap(files), "v1", nil)
			spoil(t, filepath.Join(s.dir, first.Path))
			s = openStore(t, s.dir, newClock())
			tree := FromMap(changed)
			reads := &countingContent{Content: tree.content}
			tree.content = reads
			second := put(t, s, tree, "v2", first)
			if second.Digest != fresh.Digest {
				t.Error("the archive differs")
			}
			if reused := reads.n.Load() < 500; reused != (reason == "whole") {
				t.Errorf("%d files were read", reads.n.Load())
			}
		})
	}
}

// damage changes one byte of a file, and nothing else.
func damage(t testing.TB, file string, at int) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b[at%len(b)] ^= 1
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func remove(t testing.TB, file string) {
	t.Helper()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
}

func TestVerifyKnowsWhetherTheArtifactIsWhole(t *testing.T) {
	for reason, c := range map[string]struct {
		spoil func(t *testing.T, s *Store, a *meta.Artifact)
		whole bool
	}{
		"untouched": {spoil: func(*testing.T, *Store, *meta.Artifact) {}, whole: true},
		"gone": {spoil: func(t *testing.T, s *Store,
			a *meta.Artifact) {
			remove(t, filepath.Join(s.dir, a.Path))
		}, whole: false},
		"a changed bit": {spoil: func(t *testing.T, s *Store,
			a *meta.Artifact) {
			damage(t, filepath.Join(s.dir, a.Path), 77)
		}, whole: false},
		"cut short": {spoil: func(t *testing.T, s *Store,
			a *meta.Artifact) {
			must(t, os.Truncate(filepath.Join(s.dir, a.Path), 9))
		}, whole: false},
		"another digest": {spoil: func(_ *testing.T, _ *Store, a *meta.Artifact) { a.Digest = "sha256:00" },
			whole: false},
		"of another object": {spoil: func(_ *testing.T, _ *Store,
			a *meta.Artifact) {
			a.Path = "gitrepository/apps/other/x.tar.gz"
		}, whole: false},
		"a path out": {spoil: func(_ *testing.T, _ *Store, a *meta.Artifact) {
			a.Path = "gitrepository/apps/webapp/../../../../x.tar.gz"
		}, whole: false},
		"the index file": {spoil: func(_ *testing.T, _ *Store, a *meta.Artifact) { a.Path += index }, whole: false},
		"a symlink to an artifact": {spoil: func(t *testing.T, s *Store, a *meta.Artifact) {
			file := filepath.Join(s.dir, a.Path)
			must(t, os.Rename(file, file+"x"))
			must(t, os.Symlink(file+"x", file))
		}, whole: false},
	} {
		for _, restart := range []bool{false, true} {
			t.Run(reason, func(t *testing.T) {
				s := openStore(t, t.TempDir(), newClock())
				a := put(t, s, FromMap(manyFiles(50, 1)), "v1", nil)
				if restart {
					s = openStore(t, s.dir, newClock())
				}
				c.spoil(t, s, a)
				if err := s.Verify(t.Context(), webapp, a); (err == nil) != c.whole {
					t.Errorf("restart %v: %v", restart, err)
				}
			})
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestADamagedArtifactIsWrittenAgain(t *testing.T) {
	s := openStore(t, t.TempDir(), newClock())
	tree := FromMap(manyFiles(50, 1))
	a := put(t, s, tree, "v1", nil)
	damage(t, filepath.Join(s.dir, a.Path), 77)
	again := put(t, s, tree, "v1", a)
	if again.Digest != a.Digest {
		t.Errorf("got %s, want %s", again.Digest, a.Digest)
	}
	must(t, s.Verify(t.Context(), webapp, again))
}

func TestAKilledWriterLeavesTheOldOne(t *testing.T) {
	s := openStore(t, t.TempDir(), newClock())
	a := put(t, s, FromMap(map[string]string{"a": "x"}), "v1", nil)
	dir := filepath.Dir(filepath.Join(s.dir, a.Path))
	for _, leftover := range []string{prefix + "123", "v2-00.tar.gz" + index} {
		must(t, os.WriteFile(filepath.Join(dir, leftover), []byte("half"), 0o600))
	}
	s = openStore(t, s.dir, newClock())
	must(t, s.Verify(t.Context(), webapp, a))
	if got := names(t, dir); !slices.Equal(got, []string{path.Base(a.Path), path.Base(a.Path) + index}) {
		t.Errorf("remaining files: %q", got)
	}
}

func names(t testing.TB, dir string) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// failing is content that cannot be read, like that of a damaged mirror.
type failing struct {
	Content
	err error
}

func (f failing) Read(string) ([]byte, error) { return nil, f.err }

func TestAFailedPutLeavesTheOldOne(t *testing.T) {
	s := openStore(t, t.TempDir(), newClock())
	a := put(t, s, FromMap(map[string]string{"a": "x"}), "v1", nil)
	next := FromMap(map[string]string{"a": "y"})
	next.content = failing{next.content, errors.New("blob is missing")}
	_, err := s.Put(t.Context(), webapp, next, "v2", a)
	if fault.Reason(err, "") != meta.StorageOperationFailedReason || !strings.Contains(err.Error(), "blob is missing") {
		t.Errorf("got %v", err)
	}
	must(t, s.Verify(t.Context(), webapp, a))
	if tree, err := s.Tree(webapp, *a); err != nil || contents(t, tree)["a"] != "x" {
		t.Errorf("the old artifact is not available: %v", err)
	}
	if got := names(t, filepath.Dir(filepath.Join(s.dir, a.Path))); len(got) != 2 {
		t.Errorf("remaining files: %q", got)
	}
}

func TestPutRefusesNamesThatMeanTwoThings(t *testing.T) {
	s := openStore(t, t.TempDir(), newClock())
	a := put(t, s, FromMap(map[string]string{"a": "x"}), "v1", nil)
	for what, tree := range map[string]*Tree{
		"UTF-8 text. Rename the file. The last artifact stays available": FromMap(map[string]string{"dir/\xff": "1"}),
	} {
		_, err := s.Put(t.Context(), webapp, tree, "v2", a)
		if f := fault.As(err); f == nil || !f.Terminal || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: got %v", what, err)
		}
	}
	must(t, s.Verify(t.Context(), webapp, a))
}

func TestAFullDiskLeavesTheOldOne(t *testing.T) {
	const child = "SLUICE_TEST_FULL_DISK"
	if os.Getenv(child) == "" { // the limit applies to the whole process: run the test in a child process
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), child+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return
	}
	s := openStore(t, t.TempDir(), newClock())
	a := put(t, s, FromMap(map[string]string{"a": "x"}), "v1", nil)
	big := manyFiles(3000, 9)
	restore := limitFileSize(t, 64<<10)
	_, err := s.Put(t.Context(), webapp, FromMap(big), "v2", a)
	restore()
	if !errors.Is(err, syscall.EFBIG) || fault.Reason(err, "") != meta.StorageOperationFailedReason {
		t.Errorf("got %v", err)
	}
	must(t, s.Verify(t.Context(), webapp, a))
	if got := names(t, filepath.Dir(filepath.Join(s.dir, a.Path))); len(got) != 2 {
		t.Errorf("remaining files: %q", got)
	}
	put(t, s, FromMap(big), "v2", a)
}

func TestKeysThatAreNoPathsAreRefused(t *testing.T) {
	s := openStore(t, t.TempDir(), newClock())
	for _, key := range []Key{{}, {Kind: "k", Namespace: "..", Name: "n"}, {Kind: "k", Namespace: "a/b", Name: "n"},
		{Kind: "k", Namespace: "ns", Name: ".."}, {Kind: "..", Namespace: "ns", Name: "n"},
		{Kind: "k", Namespace: "ns", Name: `a\b`}, {Kind: "k", Name: "n"}} {
		if _, err := s.Put(t.Context(), key, FromMap(nil), "v1", nil); err == nil {
			t.Errorf("%+v was put", key)
		}
		if err := s.Remove(key); err == nil {
			t.Errorf("%+v was removed", key)
		}
		if _, err := s.Collect(key, nil); err == nil {
			t.Errorf("%+v was collected", key)
		}
	}
}

func TestTreeOfAnArtifact(t *testing.T) {
	files := manyFiles(100, 4)
	s := openStore(t, t.TempDir(), newClock())
	tree := FromMap(files)
	a := put(t, s, tree, "v1", nil)
	if got, err := s.Tree(webapp, *a); err != nil || got != tree {
		t.Errorf("the tree is not the one that was put: %v", err)
	}
	s = openStore(t, s.dir, newClock())
	got, err := s.Tree(webapp, *a)
	must(t, err)
	if !maps.Equal(contents(t, got), files) {
		t.Error("the file has other contents")
	}
	outside := *a
	outside.Path = "../" + a.Path
	if _, err := openStore(t, s.dir, newClock()).Tree(webapp, outside); err == nil {
		t.Error("a file outside the store was read")
	}
}

func TestStoreIsSafeForConcurrentUse(t *testing.T) {
	s := openStore(t, t.TempDir(), newClock())
	trees := []*Tree{FromMap(manyFiles(100, 1)), FromMap(manyFiles(100, 2))}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			tree := trees[i%2]
			for range 5 {
				a, err := s.Put(t.Context(), webapp, tree, "v", nil)
				if err != nil {
					t.Error(err)
					return
				}
				if got, err := s.Tree(webapp, *a); err != nil || got.Root().ID != tree.Root().ID {
					t.Errorf("another tree: %v", err)
				}
				if err := s.Verify(t.Context(), webapp, a); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
