package e2e

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// TestGetStartedPage runs all commands of docs/get-started.md in their order and in one shell. Only the ports are
// others, and the binaries are those that are built already.
func TestGetStartedPage(t *testing.T) {
	t.Parallel()
	sluice, err := testenv.Binary("sluice")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := testenv.Binary("playground"); err != nil {
		t.Fatal(err)
	}
	script := "set -euxo pipefail\n" + strings.Join(testenv.Blocks(t, "get-started.md", "sh"), "")
	if _, err := exec.LookPath("kubectl"); err != nil { // one step needs it
		script = regexp.MustCompile(`(?m)^kubectl .*\n`).ReplaceAllString(script, "")
	}
	address := system.FreeAddress(t)
	commands := strings.NewReplacer("make build\n", "", "$PWD/bin:", filepath.Dir(sluice)+":",
		shownAddress, address,
		"--storage-path storage", "--storage-path storage --storage-addr 127.0.0.1:0 --metrics-addr 0 "+
			"--health-addr 0 --receiverAddr 0 --events-addr 0 --images-addr 0").Replace(script)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", commands)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "GIT_AUTHOR_NAME=me", "GIT_AUTHOR_EMAIL=me@example.com", "GIT_COMMITTER_NAME=me",
		"GIT_COMMITTER_EMAIL=me@example.com", "SLUICE_NAMESPACE=")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // what the page starts ends with it
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.CombinedOutput()
	if err != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // nothing may be left
		t.Fatalf("%v\n%s", err, out)
	}
	if !bytes.Contains(out, []byte("'flux-system/web' is held by a gate")) {
		t.Error("reconcile does not name the gate")
	}
	compareShown(t, script, strings.ReplaceAll(string(out), address, shownAddress))
	if t.Failed() {
		t.Logf("%s", out)
	}
}

// shownAddress is the address of the git server in docs/get-started.md.
const shownAddress = "127.0.0.1:8088"

// changing matches what differs between runs: hashes of commits and times.
var changing = regexp.MustCompile(`sha1:[0-9a-f]+|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d`)

// compareShown compares the output that docs/get-started.md shows with that of its commands.
func compareShown(t *testing.T, script, out string) {
	t.Helper()
	out = changing.ReplaceAllString(out, "…")
	commands := 0
	for _, block := range testenv.Blocks(t, "get-started.md", "console") {
		for _, shown := range strings.Split("\n"+block, "\n$ ")[1:] {
			command, want, _ := strings.Cut(shown, "\n")
			commands++
			if !strings.Contains(script, command+"\n") {
				t.Errorf("the page shows the output of another command: %s", command)
			}
			want = strings.TrimRight(changing.ReplaceAllString(want, "…"), "\n")
			if !strings.Contains(out, "\n"+want+"\n") {
				t.Errorf("%s does not print what the page shows:\n%s", command, want)
			}
		}
	}
	const least = 5
	if commands < least {
		t.Errorf("the page shows the output of %d commands", commands)
	}
}
