package bench

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/internal/image/policy"
	"github.com/sluice-gitops/sluice/internal/image/registry"
	"github.com/sluice-gitops/sluice/internal/image/store"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/source/oci"
)

const imageTags = 50_000

// tagServer serves a list of tags in pages with ETags. Pushing that many images to a registry would take
// longer than all that is measured.
func tagServer(b *testing.B, tags *[]string) *httptest.Server {
	b.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/tags/list") {
			return
		}
		limit, err := strconv.Atoi(r.URL.Query().Get("n"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		from := 0
		if last := r.URL.Query().Get("last"); last != "" {
			from, _ = slices.BinarySearch(*tags, last)
			from++
		}
		page := (*tags)[from:min(from+limit, len(*tags))]
		if from+limit < len(*tags) {
			w.Header().Set("Link", fmt.Sprintf(`<%s?n=%d&last=%s>; rel="next"`, r.URL.Path, limit, page[len(page)-1]))
		}
		body, err := json.Marshal(map[string]any{"name": "bench", "tags": page})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		etag := fmt.Sprintf(`"%x"`, sha256.Sum256(body))
		w.Header().Set("ETag", etag)
		if r.Header.Get("If-None-Match") == etag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		_, _ = w.Write(body) // a client that is gone
	}))
	b.Cleanup(server.Close)
	return server
}

// BenchmarkImages scans a repository of 50,000 tags: for the first time, when nothing changed, and after a
// push. It keeps what it finds, with all that can be known of images, and orders it by a range of versions.
func BenchmarkImages(b *testing.B) {
	var tags []string
	for i := range imageTags {
		tags = append(tags, fmt.Sprintf("1.%d.%d-build.%d", i/10, i%10, 1763700000+i))
	}
	slices.Sort(tags) // as registries list them
	server := tagServer(b, &tags)
	out := &egress.Policy{}
	transport, err := out.Transport(egress.Options{})
	if err != nil {
		b.Fatal(err)
	}
	name, err := registry.ParseName(strings.TrimPrefix(server.URL, "http://")+"/bench", true)
	if err != nil {
		b.Fatal(err)
	}
	repo, err := registry.Open(name, oci.Access{Transport: transport, Insecure: true})
	if err != nil {
		b.Fatal(err)
	}
	scan := func(b *testing.B, known *store.Repository) *store.Repository {
		before := out.Stats()
		began := time.Now()
		found, err := repo.Scan(b.Context(), known, nil)
		if err != nil {
			b.Fatal(err)
		}
		took, after := time.Since(began), out.Stats()
		b.ReportMetric(float64(after.Requests-before.Requests), "requests")
		b.ReportMetric(float64(after.BytesReceived-before.BytesReceived)/(1<<10), "KB-received")
		b.ReportMetric(float64(found.Fetched), "pages-read")
		b.ReportMetric(float64(took.Milliseconds()), "ms")
		return &store.Repository{Image: name.Name(), Pages: found.Pages}
	}
	var found *store.Repository
	b.Run("first", func(b *testing.B) { found = scan(b, nil) })
	b.Run("next", func(b *testing.B) { scan(b, found) })
	tags = append(tags, "2.0.0")
	b.Run("pushed", func(b *testing.B) { found = scan(b, found) })
	b.Run("store", func(b *testing.B) { benchStore(b, found) })
	b.Run("policy", func(b *testing.B) {
		p, err := policy.New(imagev1.ImagePolicySpec{
			Policy: imagev1.ImagePolicyChoice{SemVer: &imagev1.SemVerPolicy{Range: ">=1.0.0-0"}}})
		if err != nil {
			b.Fatal(err)
		}
		const times = 10
		best, cpu := time.Hour, processor(b)
		for range times {
			began := time.Now()
			ordered, err := p.Order(b.Context(), found.Tags())
			if err != nil || ordered[0].Name != "2.0.0" {
				b.Fatal(err, len(ordered))
			}
			best = min(best, time.Since(began))
		}
		b.ReportMetric(float64(best.Microseconds())/1000, "ms-at-best")
		b.ReportMetric(float64((processor(b)-cpu).Microseconds())/1000/times, "ms-of-CPU")
	})
}

// benchStore fills in the details of each image, and measures their size on disk and in memory.
func benchStore(b *testing.B, found *store.Repository) {
	for _, p := range found.Pages {
		for i := range p.Tags {
			sum := sha256.Sum256([]byte(p.Tags[i].Name))
			p.Tags[i].Digest = fmt.Sprintf("sha256:%x", sum)
			p.Tags[i].Created = time.Unix(1763700000+int64(i), 0).UTC()
			p.Tags[i].Platforms = []string{"linux/amd64", "linux/arm64"}
			p.Tags[i].Labels = map[string]string{"org.opencontainers.image.revision": fmt.Sprintf("%x", sum[:20])}
		}
	}
	dir := b.TempDir()
	kept, err := store.Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	key := store.Key{Namespace: "bench", Name: "bench"}
	if err := kept.Put(key, found); err != nil {
		b.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, "bench", "bench.tags"))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(info.Size())/imageTags, "B/tag")
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	again, err := store.Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	loaded, err := again.Load(b.Context(), key)
	if err != nil {
		b.Fatal(err)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "MB-in-memory")
	runtime.KeepAlive(loaded)
}
