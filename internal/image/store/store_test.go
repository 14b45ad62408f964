package store_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/image/policy"
	"github.com/sluice-gitops/sluice/internal/image/store"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

var key = store.Key{Namespace: "apps", Name: "shop.web"}

func open(tb testing.TB, dir string) *store.Store {
	tb.Helper()
	s, err := store.Open(dir)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// many returns a repository of n tags with details, in pages of 1,000.
func many(n int) *store.Repository {
	r := &store.Repository{Image: "registry.example.com/shop/web", Excluded: []string{`^.*\.sig$`},
		Scanned: time.Unix(1763700000, 0).UTC()}
	for i := range n {
		if i%1000 == 0 {
			r.Pages = append(r.Pages, store.Page{
				URL: fmt.Sprintf("/v2/shop/web/tags/list?n=1000&last=%d", i), ETag: fmt.Sprintf(`"%d"`, i),
				Sum: fmt.Sprintf("%x", sha256.Sum256([]byte{byte(i)})),
			})
		}
		p := &r.Pages[len(r.Pages)-1]
		p.Listed++
		commit := sha256.Sum256(fmt.Appendf(nil, "commit %d", i))
		p.Tags = append(p.Tags, policy.Tag{
			Name:    fmt.Sprintf("main-%x-%d", commit[:4], 1763700000+i*61),
			Digest:  fmt.Sprintf("sha256:%x", sha256.Sum256(fmt.Appendf(nil, "image %d", i))),
			Created: time.Unix(1763700000+int64(i)*61, 0).UTC(),
			Labels: map[string]string{
				"org.opencontainers.image.revision": fmt.Sprintf("%x", commit[:20]),
				"org.opencontainers.image.source":   "https://git.example.com/shop/web",
			},
			Platforms: []string{"linux/amd64", "linux/arm64"},
		})
	}
	return r
}

func TestLoadReturnsWhatWasPut(t *testing.T) {
	want := many(2500)
	want.Pages[0].Tags[3] = policy.Tag{Name: "only-the-name"}
	want.Pages[0].Tags[5] = policy.Tag{Name: "gone", Unreadable: true}
	want.Pages[1].Tags[0].Created, want.Pages[1].Tags[0].Platforms, want.Pages[1].Tags[0].Labels = time.Time{}, nil, nil
	dir := t.TempDir()
	if err := open(t, dir).Put(key, want); err != nil {
		t.Fatal(err)
	}
	got, err := open(t, dir).Load(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got.Len() != 2500 || got.Revision == "" {
		t.Errorf("%d tags of revision %q", got.Len(), got.Revision)
	}
}

func TestLoadReturnsSmallRepositories(t *testing.T) {
	dir := t.TempDir()
	want := &store.Repository{Image: "a", Pages: []store.Page{{Listed: 1, Tags: []policy.Tag{{Name: "1"}}}}}
	s := open(t, dir)
	if err := errors.Join(s.Put(key, many(1)), s.WriteFile(key, want)); err != nil {
		t.Fatal(err)
	}
	got, err := open(t, dir).Load(t.Context(), key)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

func TestRevisionDependsOnTagsOnly(t *testing.T) {
	s := open(t, t.TempDir())
	revision := func(change func(*store.Repository)) string {
		r := many(1500)
		change(r)
		if err := s.Put(key, r); err != nil {
			t.Fatal(err)
		}
		return r.Revision
	}
	base := revision(func(*store.Repository) {})
	for name, same := range map[string]func(*store.Repository){
		"other order": func(r *store.Repository) { slices.Reverse(r.Pages); slices.Reverse(r.Pages[0].Tags) },
		"other ETag":  func(r *store.Repository) { r.Pages[0].ETag, r.Scanned = "other", time.Now() },
	} {
		if revision(same) != base {
			t.Errorf("%s: the revision changed", name)
		}
	}
	for name, other := range map[string]func(*store.Repository){
		"removed tag":    func(r *store.Repository) { r.Pages[0].Tags = r.Pages[0].Tags[1:] },
		"renamed tag":    func(r *store.Repository) { r.Pages[1].Tags[7].Name = "other" },
		"moved tag":      func(r *store.Repository) { r.Pages[0].Tags[0].Digest = r.Pages[0].Tags[1].Digest },
		"unknown digest": func(r *store.Repository) { r.Pages[0].Tags[0].Digest = "" },
	} {
		if revision(other) == base {
			t.Errorf("%s: the revision did not change", name)
		}
	}
}

func TestCorruptFileIsNotFound(t *testing.T) {
	dir := t.TempDir()
	if err := open(t, dir).Put(key, many(1200)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "apps", "shop.web.tags")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	corrupt := map[string][]byte{"empty": {}, "truncated": whole[:len(whole)/2],
		"truncated by one byte": whole[:len(whole)-1],
		"other format":          []byte("PK\x03\x04 what is this?")}
	for at := 0; at < len(whole); at += len(whole)/50 + 1 {
		flipped := slices.Clone(whole)
		flipped[at] ^= 0x55
		corrupt[fmt.Sprintf("flipped at %d", at)] = flipped
	}
	for name, content := range corrupt {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		s := open(t, dir)
		if _, err := s.Load(t.Context(), key); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
		if err := s.Put(key, many(10)); err != nil {
			t.Errorf("%s: Put: %v", name, err)
		}
	}
}

func TestRemoveAndCollect(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	gone, live := store.Key{Namespace: "old", Name: "a"}, store.Key{Namespace: "apps", Name: "b"}
	for _, k := range []store.Key{key, gone, live} {
		if err := s.Put(k, many(3)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "apps", "b.tags.next"), []byte("interrupted"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Remove(key); err != nil {
			t.Fatal(err)
		}
	}
	removed, err := s.Collect(func(k store.Key) bool { return k == live })
	if err != nil || len(removed) != 1 || removed[0] != gone {
		t.Errorf("removed %v, %v", removed, err)
	}
	for _, k := range []store.Key{key, gone} {
		if _, err := s.Load(t.Context(), k); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: %v", k, err)
		}
	}
	if _, err := s.Load(t.Context(), live); err != nil {
		t.Error(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil || len(left) != 1 {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	s := open(t, t.TempDir())
	name := func(i int) store.Key { return store.Key{Namespace: "apps", Name: fmt.Sprint(i)} }
	r := many(20_000)
	fit := int(store.MaxMemory() / r.Memory())
	for i := range fit + 2 {
		if err := s.Put(name(i), r); err != nil {
			t.Fatal(err)
		}
	}
	if cached := s.Cached(); cached > store.MaxMemory() || cached < r.Memory() {
		t.Errorf("%d bytes in memory, each repository takes %d", cached, r.Memory())
	}
	if r, err := s.Load(t.Context(), name(0)); err != nil || r.Len() != 20_000 {
		t.Errorf("loading an evicted repository: %v", err)
	}
	s.DropCache()
	if s.Cached() != 0 {
		t.Errorf("%d bytes are cached after all were dropped", s.Cached())
	}
}

// TestEstimatedMemoryIsHonest compares the estimate with what the tags take.
func TestEstimatedMemoryIsHonest(t *testing.T) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	r := many(20_000)
	runtime.GC()
	runtime.ReadMemStats(&after)
	takes := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	if estimate := r.Memory(); estimate < takes || estimate > 3*takes {
		t.Errorf("the estimate is %d bytes, but the tags take %d", estimate, takes)
	}
	runtime.KeepAlive(r)
}

// large returns a repository whose labels take more memory than is allowed.
func large() *store.Repository {
	r := many(1000)
	text := strings.Repeat("x", int(store.MaxMemory()/1000))
	for i := range r.Pages[0].Tags {
		r.Pages[0].Tags[i].Labels = map[string]string{"long": text}
	}
	return r
}

func TestLargeRepositoriesAreNotStored(t *testing.T) {
	s := open(t, t.TempDir())
	err := s.Put(key, large())
	want := fmt.Sprintf("the tags of 'registry.example.com/shop/web' and their labels and platforms take more than %s",
		guard.Bytes(store.MaxMemory()))
	if f := fault.As(err); f == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	if _, err := s.Load(t.Context(), key); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("it was stored: %v", err)
	}
}

// TestLargeFilesAreNotLoaded checks a file that takes more memory than is allowed, as earlier releases wrote them.
func TestLargeFilesAreNotLoaded(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	if err := s.Put(key, many(10)); err != nil { // creates the directory
		t.Fatal(err)
	}
	s.DropCache()
	inOnePage := large()
	inPages := large()
	inPages.Pages = nil
	for _, tag := range inOnePage.Pages[0].Tags {
		inPages.Pages = append(inPages.Pages, store.Page{Tags: []policy.Tag{tag}})
	}
	for name, r := range map[string]*store.Repository{"in one page": inOnePage, "in many pages": inPages} {
		if err := s.WriteFile(key, r); err != nil {
			t.Fatal(err)
		}
		budget := guard.NewBudget(1 << 30)
		_, err := s.Load(guard.WithBudget(t.Context(), budget), key)
		if !errors.Is(err, store.ErrNotFound) || !strings.Contains(err.Error(), "it takes too much memory") {
			t.Errorf("%s: got %v", name, err)
		}
		if used := budget.Used(); used != 0 || s.Cached() != 0 {
			t.Errorf("%s: %d bytes of the budget and of the cache %d are used", name, used, s.Cached())
		}
	}
	if err := s.Put(key, many(10)); err != nil {
		t.Errorf("the next scan does not replace the file: %v", err)
	}
}

// TestLoadedTagsTakeMemory checks that loaded tags take memory of the budget.
func TestLoadedTagsTakeMemory(t *testing.T) {
	s := open(t, t.TempDir())
	r := many(3000)
	if err := s.Put(key, r); err != nil {
		t.Fatal(err)
	}
	s.DropCache()
	budget := guard.NewBudget(1 << 30)
	loaded, err := s.Load(guard.WithBudget(t.Context(), budget), key)
	if err != nil {
		t.Fatal(err)
	}
	if used := budget.Used(); used != r.Memory() {
		t.Errorf("%d bytes of the budget are used, want %d", used, r.Memory())
	}
	runtime.KeepAlive(loaded)
	s.DropCache()
	if _, err = s.Load(guard.WithBudget(t.Context(), guard.NewBudget(1<<20)), key); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("loaded with little memory: %v", err)
	}
}

// FuzzLoad checks that Load does not panic for any file.
func FuzzLoad(f *testing.F) {
	dir := f.TempDir()
	s := open(f, dir)
	if err := s.Put(key, many(20)); err != nil {
		f.Fatal(err)
	}
	whole, err := os.ReadFile(filepath.Join(dir, "apps", "shop.web.tags"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte("sluice-tags/1\n\xff\xff\xff\xff\xff\xff\xff\xff\x7f"))
	f.Fuzz(func(t *testing.T, content []byte) {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, "apps"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "apps", "shop.web.tags"), content, 0o600); err != nil {
			t.Fatal(err)
		}
		if r, err := open(t, dir).Load(t.Context(), key); err == nil {
			for tag := range r.Tags() {
				_ = tag
			}
		}
	})
}

func BenchmarkStore(b *testing.B) {
	dir := b.TempDir()
	r := many(50_000)
	b.Run("put", func(b *testing.B) {
		s := open(b, dir)
		for b.Loop() {
			if err := s.Put(key, r); err != nil {
				b.Fatal(err)
			}
		}
		info, err := os.Stat(filepath.Join(dir, "apps", "shop.web.tags"))
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(info.Size())/50_000, "B/tag")
	})
	b.Run("load", func(b *testing.B) {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		var loaded *store.Repository
		for b.Loop() {
			s, err := store.Open(dir)
			if err != nil {
				b.Fatal(err)
			}
			if loaded, err = s.Load(b.Context(), key); err != nil {
				b.Fatal(err)
			}
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "MB-live")
		runtime.KeepAlive(loaded)
	})
}
