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
	commands := strings.NewReplacer("make build\n", "", "$PWD/bin:", filepath.Dir(sluice)+":",
		"127.0.0.1:8088", system.FreeAddress(t),
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
	for _, text := range []string{
		"~ spec.replicas: 2 → 3",                                 // diff
		"Commit message: Run three",                              // trace
		"'flux-system/web' is held by a gate",                    // reconcile
		"Waiting: 1\n  Kustomization/flux-system/web main@sha1:", // status of the gate
	} {
		if !bytes.Contains(out, []byte(text)) {
			t.Errorf("nothing prints %q", text)
		}
	}
	if t.Failed() {
		t.Logf("%s", out)
	}
}
