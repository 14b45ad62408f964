package store_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-gitops/sluice/internal/image/policy"
	"github.com/sluice-gitops/sluice/internal/image/store"
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
	got, err := open(t, dir).Load(key)
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
		if _, err := s.Load(key); !errors.Is(err, store.ErrNotFound) {
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
		if _, err := s.Load(k); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: %v", k, err)
		}
	}
	if _, err := s.Load(live); err != nil {
		t.Error(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil || len(left) != 1 {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	s := open(t, t.TempDir())
	for i := range 6 {
		if err := s.Put(store.Key{Namespace: "apps", Name: fmt.Sprint(i)}, many(50_000)); err != nil {
			t.Fatal(err)
		}
	}
	if cached := s.Cached(); cached > 200_000 || cached < 50_000 {
		t.Errorf("%d tags in memory", cached)
	}
	if r, err := s.Load(store.Key{Namespace: "apps", Name: "0"}); err != nil || r.Len() != 50_000 {
		t.Errorf("loading an evicted repository: %v", err)
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
		if r, err := open(t, dir).Load(key); err == nil {
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
			if loaded, err = s.Load(key); err != nil {
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
