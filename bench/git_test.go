package bench

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/source/git"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

const gitCommits = 10_000

// BenchmarkGit fetches a repository of 50,000 files and 10,000 commits over HTTP, and stores its artifact:
// the first time, with one file changed, and with nothing changed. Beside each it runs git itself, and gives
// ratios of time and of bytes.
func BenchmarkGit(b *testing.B) {
	g := testenv.NewGit(b)
	manyFiles(b, g, "many")
	source := func(b *testing.B) *gitSource {
		b.Helper()
		store, err := artifact.OpenStore(b.TempDir(), "localhost", artifact.Retention{Count: 2, TTL: time.Hour})
		if err != nil {
			b.Fatal(err)
		}
		s := &gitSource{git: g, mirrors: git.NewMirrors(b.TempDir()), remote: git.Remote{URL: g.URL + "/many"},
			store: store}
		b.Cleanup(func() {
			if err := s.mirrors.Forget("bench"); err != nil {
				b.Error(err)
			}
		})
		return s
	}
	change := func() {
		name := fmt.Sprintf("dir-%03d/file-%03d.yaml", rand.IntN(500), rand.IntN(100))
		g.Commit("many", map[string]string{name: fmt.Sprint(rand.Uint64())})
	}
	none := func() {}

	b.Run("first fetch", func(b *testing.B) {
		compare(b, g, "git-clone", none,
			func() { source(b).update(b) },
			func() { rawGit(b, b.TempDir(), "clone", "-q", "--bare", "--depth=1", g.URL+"/many", "clone") })
	})
	b.Run("one file changed", func(b *testing.B) {
		s, raw := source(b), rawClone(b)
		s.update(b)
		rawFetch(b, raw, g.URL+"/many")
		compare(b, g, "git-fetch", change, func() { s.update(b) }, func() { rawFetch(b, raw, g.URL+"/many") })
	})
	b.Run("nothing changed", func(b *testing.B) {
		s, raw := source(b), rawClone(b)
		s.update(b)
		rawFetch(b, raw, g.URL+"/many")
		before := s.mirrors.Stats()
		compare(b, g, "git-fetch", none, func() { s.update(b) }, func() { rawFetch(b, raw, g.URL+"/many") })
		b.ReportMetric(float64(s.mirrors.Stats().Requests-before.Requests)/float64(b.N), "requests/op")
	})
	benchmarkFirstArtifact(b, source)
	benchmarkChangedArtifact(b, source, change)
	benchmarkReads(b, source)
}

func benchmarkFirstArtifact(b *testing.B, source func(b *testing.B) *gitSource) {
	b.Run("first artifact", func(b *testing.B) {
		b.ReportAllocs()
		peak := 0.0
		for b.Loop() {
			b.StopTimer()
			s := source(b)
			measure := watchMemory(b)
			s.update(b)
			b.StartTimer()
			s.put(b)
			b.StopTimer()
			peak = max(peak, measure())
			b.StartTimer()
		}
		b.ReportMetric(peak, "peak-MB-with-fetch")
	})
}

func benchmarkChangedArtifact(b *testing.B, source func(b *testing.B) *gitSource, change func()) {
	b.Run("artifact of one file changed", func(b *testing.B) {
		b.ReportAllocs()
		s := source(b)
		s.update(b)
		began := time.Now()
		s.put(b)
		first, changed, peak := time.Since(began), time.Duration(0), 0.0
		for b.Loop() {
			b.StopTimer()
			change()
			measure := watchMemory(b)
			s.update(b)
			b.StartTimer()
			began := time.Now()
			s.put(b)
			changed += time.Since(began)
			b.StopTimer()
			peak = max(peak, measure())
			b.StartTimer()
		}
		b.ReportMetric(changed.Seconds()/float64(b.N)/first.Seconds(), "x-first-artifact")
		b.ReportMetric(peak, "peak-MB-with-fetch")
	})
}

func benchmarkReads(b *testing.B, source func(b *testing.B) *gitSource) {
	b.Run("every file read", func(b *testing.B) {
		s := source(b)
		s.update(b)
		tree := s.tree(b)
		for b.Loop() {
			err := tree.Walk(func(name string, _ *artifact.Entry) error {
				_, err := fs.ReadFile(tree, name)
				return err
			})
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}

// gitSource is a source as its controller runs it.
type gitSource struct {
	git      *testenv.Git
	mirrors  *git.Mirrors
	remote   git.Remote
	store    *artifact.Store
	revision git.Revision
}

func (s *gitSource) update(b *testing.B) {
	b.Helper()
	var err error
	if s.revision, err = s.mirrors.View("bench").
		Update(b.Context(), s.remote, git.Reference{Branch: "main"}, false); err != nil {
		b.Fatal(err)
	}
}

func (s *gitSource) tree(b *testing.B) *artifact.Tree {
	b.Helper()
	tree, err := s.mirrors.View("bench").Tree(b.Context(), s.revision, git.Options{})
	if err != nil {
		b.Fatal(err)
	}
	return tree
}

func (s *gitSource) put(b *testing.B) {
	b.Helper()
	key := artifact.Key{Kind: "GitRepository", Namespace: "bench", Name: "many"}
	if _, err := s.store.Put(b.Context(), key, s.tree(b), s.revision.String(), nil); err != nil {
		b.Fatal(err)
	}
}

// manyFiles makes a repository of 50,000 manifests in 500 directories, and a history in which every commit
// changes one of them.
func manyFiles(b *testing.B, g *testenv.Git, name string) {
	b.Helper()
	g.Init(name)
	var in bytes.Buffer
	in.WriteString("commit refs/heads/main\ncommitter t <t@example.com> 0 +0000\ndata 0\n")
	repo := newRepository()
	for _, dir := range repo.dirs {
		for _, file := range dir.Dir.Entries {
			text := repo.blobs[file.ID]
			fmt.Fprintf(&in, "M 644 inline %s/%s\ndata %d\n%s\n", dir.Name, file.Name, len(text), text)
		}
	}
	for i := range gitCommits - 1 {
		text := fmt.Sprintf("changed: %d\n", i)
		fmt.Fprintf(&in, "commit refs/heads/main\ncommitter t <t@example.com> %d +0000\ndata 0\n"+
			"M 644 inline dir-%03d/file-%03d.yaml\ndata %d\n%s\n",
			i+1, repo.rand.IntN(500), repo.rand.IntN(100), len(text), text)
	}
	in.WriteString("done\n")
	dir := filepath.Join(g.Root, name+".git")
	for _, args := range [][]string{{"fast-import", "--quiet", "--done"}, {"repack", "-adq"},
		{"config", "gc.auto", "0"}} {
		cmd := exec.Command("git", append([]string{"--git-dir", dir}, args...)...)
		cmd.Stdin = &in
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("git %s: %v\n%s", args[0], err, out)
		}
	}
}

func rawClone(b *testing.B) string {
	b.Helper()
	dir := b.TempDir()
	rawGit(b, dir, "init", "-q", "--bare")
	return dir
}

func rawFetch(b *testing.B, dir, url string) {
	b.Helper()
	rawGit(b, dir, "-c", "gc.auto=0", "-c", "maintenance.auto=false", "fetch", "-q", "--depth=1", url, "+main:main")
}

func rawGit(b *testing.B, dir string, args ...string) {
	b.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

// compare measures ours, and reports how many times as long it takes as theirs and how many times as many
// bytes the server sends for it. Before runs ahead of each pair.
func compare(b *testing.B, g *testenv.Git, name string, before, ours, theirs func()) {
	b.Helper()
	b.ReportAllocs()
	var took [2]time.Duration
	var sent [2]int64
	for b.Loop() {
		b.StopTimer()
		before()
		for i, run := range []func(){ours, theirs} {
			bytes, began := g.Stats()["bytesSent"], time.Now()
			if i == 0 {
				b.StartTimer()
			}
			run()
			b.StopTimer()
			took[i] += time.Since(began)
			sent[i] += g.Stats()["bytesSent"] - bytes
		}
		b.StartTimer()
	}
	b.ReportMetric(took[0].Seconds()/took[1].Seconds(), "x-"+name)
	b.ReportMetric(float64(sent[0])/float64(sent[1]), "x-"+name+"-bytes")
	b.ReportMetric(took[1].Seconds()/float64(b.N)*1e9, name+"-ns/op")
	b.ReportMetric(float64(sent[0])/float64(b.N), "bytes-received/op")
}
