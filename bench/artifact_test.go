package bench

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/artifact"
)

// blobs is content by ID, as a git object store is.
type blobs map[string][]byte

func (b blobs) Size(id string) (int64, error)  { return int64(len(b[id])), nil }
func (b blobs) Read(id string) ([]byte, error) { return b[id], nil }

// add stores a manifest of some KiB and returns its entry.
func (b blobs) add(name string, r *rand.Rand) artifact.Entry {
	text := fmt.Appendf(nil, "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s\ndata:\n", name)
	for i := range 20 + r.IntN(60) {
		text = fmt.Appendf(text, "  key-%d: value-%x\n", i, r.Uint64())
	}
	sum := sha256.Sum256(text)
	id := hex.EncodeToString(sum[:])
	b[id] = text
	return artifact.Entry{Name: name, Mode: fs.FileMode(0o644), ID: id}
}

// repository is a tree of 50,000 files in 500 directories.
type repository struct {
	blobs blobs
	dirs  []artifact.Entry
	rand  *rand.Rand
}

func newRepository() *repository {
	r := &repository{blobs: blobs{}, rand: rand.New(rand.NewPCG(1, 2))}
	for i := range 500 {
		var files []artifact.Entry
		for j := range 100 {
			files = append(files, r.blobs.add(fmt.Sprintf("file-%03d.yaml", j), r.rand))
		}
		r.dirs = append(r.dirs, dirEntry(i, files))
	}
	return r
}

func dirEntry(i int, files []artifact.Entry) artifact.Entry {
	d := artifact.NewDir(files)
	return artifact.Entry{Name: fmt.Sprintf("dir-%03d", i), Mode: fs.ModeDir | 0o755, ID: d.ID, Dir: d}
}

func (r *repository) tree() *artifact.Tree {
	return artifact.NewTree(artifact.NewDir(append([]artifact.Entry(nil), r.dirs...)), r.blobs)
}

// change replaces a file.
func (r *repository) change() {
	i := r.rand.IntN(len(r.dirs))
	files := append([]artifact.Entry(nil), r.dirs[i].Dir.Entries...)
	j := r.rand.IntN(len(files))
	files[j] = r.blobs.add(files[j].Name, r.rand)
	r.dirs[i] = dirEntry(i, files)
}

// BenchmarkArtifact stores the artifact of a repository of 50,000 files: the first time, with one file changed, and
// again as it was.
func BenchmarkArtifact(b *testing.B) {
	repo := newRepository()
	key := artifact.Key{Kind: "GitRepository", Namespace: "bench", Name: "repo"}
	open := func(b *testing.B) *artifact.Store {
		s, err := artifact.OpenStore(b.TempDir(), "localhost", artifact.Retention{TTL: time.Minute, Count: 2})
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
	put := func(b *testing.B, s *artifact.Store, revision string) {
		a, err := s.Put(b.Context(), key, repo.tree(), revision, nil)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(*a.Size)/(1<<20), "MiB")
	}
	b.Run("files=50000/first", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			put(b, open(b), "v1")
		}
	})
	b.Run("files=50000/one-changed", func(b *testing.B) {
		s := open(b)
		put(b, s, "v1")
		b.ReportAllocs()
		for n := 0; b.Loop(); n++ {
			repo.change()
			put(b, s, fmt.Sprint("v", n))
		}
	})
	b.Run("files=50000/unchanged", func(b *testing.B) {
		s := open(b)
		put(b, s, "v1")
		b.ReportAllocs()
		for b.Loop() {
			put(b, s, "v1")
		}
	})
}
