package bench

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// BenchmarkPreview previews a change of one file in a repository of 1,000 applied Kustomizations, with the built
// `sluice preview` as a process of its own.
func BenchmarkPreview(b *testing.B) {
	f := newFleet(b, *fleetSize, fourObjects)
	commit := f.commit("1", f.all()...)
	f.declare()
	wait := f.follow(commit)
	p := startController(b, f.namespace)
	wait()
	p.stop()
	next := strings.Join(fourObjects(7, "2"), "\n---\n")
	f.git.SetRef("fleet", "refs/heads/next", strings.TrimSpace(f.git.Run("fleet", "rev-parse", "refs/heads/main")))
	f.git.CommitTo("fleet", "refs/heads/next", map[string]string{"apps/" + appName(7) + "/app.yaml": next})
	quiet(b)
	t := newTable(fmt.Sprintf("%d Kustomizations, a preview of a change of one file", *fleetSize), "run", "time s",
		"CPU s", "requests")
	for b.Loop() {
		var warm []float64
		for _, run := range []string{"first", "2", "3", "4", "5", "6"} {
			log := testenv.NewAuditLog(b)
			took, cpu := f.preview()
			requests := log.Count(b, testenv.Request{UserAgent: "sluice"})
			t.row(run, took.Seconds(), cpu.Seconds(), requests)
			if run == "first" {
				byKind(b, log)
				continue
			}
			warm = append(warm, took.Seconds())
			b.ReportMetric(float64(requests), "requests")
		}
		slices.Sort(warm)
		b.ReportMetric(warm[len(warm)/2], "s/preview")
	}
}

// preview runs the command, which must find one change of each of the four objects.
func (f *fleet) preview() (took, cpu time.Duration) {
	f.b.Helper()
	binary, err := testenv.Binary("sluice")
	if err != nil {
		f.b.Fatal(err)
	}
	cmd := exec.CommandContext(f.b.Context(), binary, "preview", "--kubeconfig", testenv.Kubeconfig(f.b), "--clone",
		filepath.Join(f.git.Root, "fleet.git"), "--from", "main", "--to", "next", "--source",
		"GitRepository/"+f.namespace+"/fleet")
	start := time.Now()
	out, err := cmd.CombinedOutput()
	took = time.Since(start)
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), "4 configured") {
		f.b.Fatalf("%v\n%s", err, out)
	}
	return took, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}
