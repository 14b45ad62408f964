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

// BenchmarkGit fetches a repository of 50,000 files over HTTP and walks its tree: the first time, with one file changed,
// and with nothing changed. Beside each it runs git fetch --depth=1, and gives the ratio.
func BenchmarkGit(b *testing.B) {
	g := testenv.NewGit(b)
	manyFiles(b, g, "many")
	ref, remote := git.Reference{Branch: "main"}, git.Remote{URL: g.URL + "/many"}
	update := func(b *testing.B, m *git.Mirror) *artifact.Tree {
		b.Helper()
		revision, err := m.Update(b.Context(), remote, ref)
		if err != nil {
			b.Fatal(err)
		}
		tree, err := m.Tree(revision, nil)
		if err != nil {
			b.Fatal(err)
		}
		files := 0
		err = tree.Walk(func(string, *artifact.Entry) error { files++; return nil })
		if err != nil || files < 50_000 {
			b.Fatalf("the tree has %d files, %v", files, err)
		}
		return tree
	}
	open := func(b *testing.B) *git.Mirror {
		b.Helper()
		m, err := git.Open(b.TempDir())
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			if err := m.Close(); err != nil {
				b.Error(err)
			}
		})
		return m
	}
	b.Run("first", func(b *testing.B) {
		compare(b, func() { update(b, open(b)) }, func() { rawFetch(b, rawClone(b), remote.URL) })
	})
	change := func() {
		name := fmt.Sprintf("dir-%03d/file-%03d.yaml", rand.IntN(500), rand.IntN(100))
		g.Commit("many", map[string]string{name: fmt.Sprint(rand.Uint64())})
	}
	b.Run("one file changed", func(b *testing.B) {
		m, raw := open(b), rawClone(b)
		update(b, m)
		rawFetch(b, raw, remote.URL)
		before := m.Stats()
		compare(b, func() { update(b, m) }, func() { rawFetch(b, raw, remote.URL) }, change)
		after := m.Stats()
		b.ReportMetric(float64(after.Requests-before.Requests)/float64(b.N), "requests/op")
		b.ReportMetric(float64(after.BytesReceived-before.BytesReceived)/float64(b.N), "bytes-received/op")
	})
	b.Run("nothing changed", func(b *testing.B) {
		m, raw := open(b), rawClone(b)
		update(b, m)
		rawFetch(b, raw, remote.URL)
		compare(b, func() { update(b, m) }, func() { rawFetch(b, raw, remote.URL) })
	})
	b.Run("every file read", func(b *testing.B) {
		m := open(b)
		for b.Loop() {
			tree := update(b, m)
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

// manyFiles makes a repository of 50,000 manifests in 500 directories.
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
	in.WriteString("done\n")
	dir := filepath.Join(g.Root, name+".git")
	for _, args := range [][]string{{"fast-import", "--quiet", "--done"}, {"repack", "-adq"}, {"config", "gc.auto", "0"}} {
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
	rawGit(b, dir, "-c", "gc.auto=0", "-c", "maintenance.auto=false", "fetch", "-q", "--depth=1", url, "main")
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

// compare measures ours and reports how many times as long it takes as theirs. Before runs ahead of each pair.
func compare(b *testing.B, ours, theirs func(), before ...func()) {
	b.Helper()
	b.ReportAllocs()
	b.StopTimer()
	b.ResetTimer()
	var took [2]float64
	for range b.N {
		for _, f := range before {
			f()
		}
		start := b.Elapsed()
		b.StartTimer()
		ours()
		b.StopTimer()
		took[0] += (b.Elapsed() - start).Seconds()
		took[1] += seconds(theirs)
	}
	b.ReportMetric(took[0]/took[1], "x-git-fetch")
	b.ReportMetric(took[1]/float64(b.N)*1e9, "git-fetch-ns/op")
}

func seconds(f func()) float64 {
	start := time.Now()
	f()
	return time.Since(start).Seconds()
}
