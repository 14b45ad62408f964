package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/sluice-gitops/sluice/internal/source/git"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// BenchmarkGitPush changes a line of one of 10,000 files, commits and pushes: from the mirror, and as git
// does in a clone of depth 1 with its files. Both add their line to the same file. It gives ratios of time
// and of bytes sent.
func BenchmarkGitPush(b *testing.B) {
	g := testenv.NewGit(b)
	files := map[string]string{}
	for i := range 10_000 {
		text := fmt.Sprintf("apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: app-%d\n", i)
		for line := range 60 {
			text += fmt.Sprintf("  key-%d: %x\n", line, i*line*7919)
		}
		files[fmt.Sprintf("dir-%03d/file-%03d.yaml", i/100, i%100)] = text
	}
	g.Commit("many", files)
	name := "dir-042/file-042.yaml"
	remote, view := git.Remote{URL: g.URL + "/many"}, git.NewMirrors(b.TempDir()).View("bench")
	author := git.Signature{Name: "t", Email: "t@example.com"}

	ours := func(text string) (sent int64) {
		rev, err := view.Update(b.Context(), remote, git.Reference{Branch: "main"}, true)
		if err != nil {
			b.Fatal(err)
		}
		parent := plumbing.NewHash(rev.Commit)
		commit, err := view.Commit(b.Context(),
			git.NewCommit{Parent: parent, Edits: []git.Edit{{Path: name, Content: []byte(text)}}, Author: author,
				Message: "change"})
		if err != nil {
			b.Fatal(err)
		}
		before := g.Stats()["bytesReceived"]
		if err := view.Push(b.Context(), []git.RefUpdate{{Name: "refs/heads/main", Old: parent, New: commit}},
			nil); err != nil {
			b.Fatal(err)
		}
		return g.Stats()["bytesReceived"] - before
	}
	clone := filepath.Join(b.TempDir(), "clone")
	rawGit(b, b.TempDir(), "clone", "-q", "--depth=1", g.URL+"/many", clone)
	theirs := func(text string) (sent int64) {
		rawGit(b, clone, "-c", "gc.auto=0", "pull", "-q", "--ff-only")
		if err := os.WriteFile(filepath.Join(clone, name), []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
		rawGit(b, clone, "-c", "gc.auto=0", "-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "-qam",
			"change")
		before := g.Stats()["bytesReceived"]
		rawGit(b, clone, "push", "-q")
		return g.Stats()["bytesReceived"] - before
	}
	ours("first fetch")
	text := files[name]
	ours(text)
	rawGit(b, clone, "-c", "gc.auto=0", "pull", "-q", "--ff-only")
	comparePushes(b, ours, theirs, text)
}

// comparePushes pushes changes in both ways, and reports ratios of time and of bytes.
func comparePushes(b *testing.B, ours, theirs func(text string) (sent int64), text string) {
	var took [2]time.Duration
	var sent [2]int64
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		for i, run := range []func(string) int64{ours, theirs} {
			if i == 1 {
				b.StopTimer()
			}
			n++
			text += fmt.Sprintf("  line-%d: changed\n", n)
			began := time.Now()
			sent[i] += run(text)
			took[i] += time.Since(began)
		}
		b.StartTimer()
	}
	b.ReportMetric(took[0].Seconds()/took[1].Seconds(), "x-git")
	b.ReportMetric(float64(sent[0])/float64(sent[1]), "x-git-bytes")
	b.ReportMetric(float64(sent[0])/float64(b.N), "bytes-sent/op")
	b.ReportMetric(float64(sent[1])/float64(b.N), "git-bytes-sent/op")
}
