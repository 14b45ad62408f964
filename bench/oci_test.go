package bench

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/static"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/source/oci"
	"github.com/sluice-gitops/sluice/internal/testenv/ociregistry"
)

const ociFiles = 2000

// BenchmarkOCI follows a tag whose artifact has 2,000 files of 10 KB that do not compress: when it did not
// move, and when it did. For comparison with the latter it unpacks the same layer by tar straight from HTTP,
// with nothing verified, and gives ratios of time and of bytes.
func BenchmarkOCI(b *testing.B) {
	r := ociregistry.New(b)
	transport, err := (&egress.Policy{}).Transport(egress.Options{})
	if err != nil {
		b.Fatal(err)
	}
	repo, err := oci.Open(r.OCI+"/bench", oci.Access{Transport: transport, Insecure: true})
	if err != nil {
		b.Fatal(err)
	}
	store, err := artifact.OpenStore(b.TempDir(), "localhost", artifact.Retention{Count: 2, TTL: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	pushFiles(b, r)
	follow := func() oci.Revision {
		revision, err := repo.Resolve(b.Context(), oci.Reference{})
		if err != nil {
			b.Fatal(err)
		}
		return revision
	}
	pull := func(revision oci.Revision) *artifact.Tree {
		image, err := repo.Pull(b.Context(), revision.Digest)
		if err != nil {
			b.Fatal(err)
		}
		layer, err := image.Layer("")
		if err != nil {
			b.Fatal(err)
		}
		tree, err := layer.Tree(b.Context(), nil)
		if err != nil {
			b.Fatal(err)
		}
		return tree
	}
	follow() // logs in

	benchmarkUnchangedTag(b, r, follow)
	benchmarkMovedTag(b, r, follow, pull, store)
}

func benchmarkMovedTag(b *testing.B, r *ociregistry.Server, follow func() oci.Revision,
	pull func(revision oci.Revision) *artifact.Tree, store *artifact.Store) {
	b.Run("changed", func(b *testing.B) {
		var ours, raw time.Duration
		var oursBytes, rawBytes int64
		for b.Loop() {
			b.StopTimer()
			layer := pushFiles(b, r)
			before := r.Stats()["bytesSent"]
			b.StartTimer()
			began := time.Now()
			revision := follow()
			tree := pull(revision)
			ours += time.Since(began)
			b.StopTimer()
			between := r.Stats()["bytesSent"]
			began = time.Now()
			rawPull(b, r.URL+"/v2/bench/blobs/"+layer)
			raw += time.Since(began)
			oursBytes, rawBytes = oursBytes+between-before, rawBytes+r.Stats()["bytesSent"]-between
			if _, err := store.Put(b.Context(), artifact.Key{Kind: "OCIRepository", Namespace: "a", Name: "b"}, tree,
				revision.String(), nil); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
		b.ReportMetric(ours.Seconds()/raw.Seconds(), "x-raw-time")
		b.ReportMetric(float64(oursBytes)/float64(rawBytes), "x-raw-bytes")
	})
}

func benchmarkUnchangedTag(b *testing.B, r *ociregistry.Server, follow func() oci.Revision) {
	b.Run("unchanged", func(b *testing.B) {
		b.ReportAllocs()
		before := r.Stats()
		for b.Loop() {
			follow()
		}
		after := r.Stats()
		b.ReportMetric(float64(after["requests"]-before["requests"])/float64(b.N), "requests/op")
		b.ReportMetric(float64(after["bytesSent"]-before["bytesSent"])/float64(b.N), "bytes/op")
	})
}

// pushFiles pushes new files as the tag latest, and returns the digest of their layer.
func pushFiles(b *testing.B, r *ociregistry.Server) string {
	b.Helper()
	files := make(map[string]artifact.File, ociFiles)
	source := rand.NewChaCha8([32]byte{byte(rand.Uint32()), byte(rand.Uint32()), byte(rand.Uint32())})
	for i := range ociFiles {
		data := make([]byte, 10<<10)
		_, _ = source.Read(data) // never fails
		files[fmt.Sprintf("dir-%02d/file-%03d.bin", i%50, i)] = artifact.File{Mode: 0o644, Data: data}
	}
	tree, err := artifact.NewMemory(files)
	if err != nil {
		b.Fatal(err)
	}
	var archive bytes.Buffer
	if err := artifact.WriteArchive(b.Context(), &archive, tree); err != nil {
		b.Fatal(err)
	}
	layer := static.NewLayer(archive.Bytes(), oci.ContentType)
	r.Push("bench", "latest", nil, layer)
	digest, err := layer.Digest()
	if err != nil {
		b.Fatal(err)
	}
	return digest.String()
}

// rawPull unpacks a blob with tar.
func rawPull(b *testing.B, url string) {
	b.Helper()
	resp, err := http.Get(url)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close() // it is read
	tar := exec.Command("tar", "-xzf", "-", "-C", b.TempDir())
	tar.Stdin = resp.Body
	if out, err := tar.CombinedOutput(); err != nil || resp.StatusCode != http.StatusOK {
		b.Fatalf("status %d, %v: %s", resp.StatusCode, err, out)
	}
}
