package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/sluice-gitops/sluice/internal/image/edit"
	"github.com/sluice-gitops/sluice/internal/image/scan"
	"github.com/sluice-gitops/sluice/internal/source/git"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// BenchmarkImageUpdate looks for what a new image changes in a repository of 10,000 YAML files, of which one
// has a marker and a thousand markers of other policies. It reports the number of files and directories read by
// the first scan, after a change of the image, and without a change.
func BenchmarkImageUpdate(b *testing.B) {
	g := testenv.NewGit(b)
	files := map[string]string{}
	for i := range 10_000 {
		text := fmt.Sprintf("apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: app-%d\nspec:\n  template:\n"+
			"    spec:\n      containers:\n      - name: app\n        image: app-%d:1", i, i)
		if i%10 == 0 {
			text += fmt.Sprintf(" # {\"$imagepolicy\": \"apps:app-%d\"}", i)
		}
		files[fmt.Sprintf("dir-%03d/file-%03d.yaml", i/100, i%100)] = text + "\n"
	}
	g.Commit("many", files)
	view := git.NewMirrors(b.TempDir()).View("bench")
	rev, err := view.Update(b.Context(), git.Remote{URL: g.URL + "/many"}, git.Reference{Branch: "main"}, true)
	if err != nil {
		b.Fatal(err)
	}
	plan := scan.Plan{Images: map[string]edit.Ref{}}
	for i := 0; i < 10_000; i += 10 {
		plan.Images[fmt.Sprintf("apps:app-%d", i)] = edit.Ref{Name: fmt.Sprintf("app-%d", i), Tag: "1"}
	}
	var s scan.Scanner
	look := func(changes int) (read int, took time.Duration) {
		began, before := time.Now(), s.Read
		at, err := view.Files(plumbing.NewHash(rev.Commit))
		if err != nil {
			b.Fatal(err)
		}
		result, err := s.Scan(context.Background(), at, at.Root, "", plan)
		if err != nil || len(result.Changes) != changes {
			b.Fatalf("%d changes, want %d: %v", len(result.Changes), changes, err)
		}
		return s.Read - before, time.Since(began)
	}
	all, first := look(0)
	none, idle := look(0)
	b.ReportAllocs()
	read, n := 0, 1
	for b.Loop() {
		n++
		plan.Images["apps:app-4240"] = edit.Ref{Name: "app-4240", Tag: fmt.Sprint(n)}
		read, _ = look(1)
	}
	b.ReportMetric(float64(all), "read-first")
	b.ReportMetric(float64(first.Milliseconds()), "ms-first")
	b.ReportMetric(float64(none), "read-idle")
	b.ReportMetric(float64(idle.Milliseconds()), "ms-idle")
	b.ReportMetric(float64(read), "read-changed")
}
