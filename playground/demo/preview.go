package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// previewBranch is a branch of webapp that is previewed and never lands.
const previewBranch = "three-backends"

// preview makes a branch with one change, and shows what `sluice preview` says about it.
func (d *demo) preview(ctx context.Context) error {
	clone := filepath.Join(d.dir, "webapp")
	if err := d.changeBackend(clone); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, d.Sluice, "preview", "--clone", clone, "--from", "master", "--to", previewBranch,
		"--kubeconfig", d.kubeconfig)
	var output, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &problems
	err := cmd.Run()
	changes := 1 // exit code
	if ended := (*exec.ExitError)(nil); !errors.As(err, &ended) || ended.ExitCode() != changes {
		return fmt.Errorf("sluice preview: %w\n%s%s", errors.Join(err, errors.New("a change was expected")),
			output.String(), problems.String())
	}
	d.screen.preview("sluice preview --from master --to "+previewBranch, output.String())
	return nil
}

// changeBackend commits a change of the backend to a branch, and leaves the clone on the branch it was on.
func (d *demo) changeBackend(clone string) error {
	if err := run(clone, "git", "checkout", "-q", "-b", previewBranch); err != nil {
		return err
	}
	file := filepath.Join(clone, "backend", "deployment.yaml")
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	changed := bytes.Replace(content, []byte("replicas: 2"), []byte("replicas: 3"), 1)
	if err := os.WriteFile(file, changed, 0o600); err != nil {
		return err
	}
	return errors.Join(
		run(clone, "git", "-c", "user.name=Demo", "-c", "user.email=demo@example.com", "commit", "-qam",
			"Three backends"),
		run(clone, "git", "checkout", "-q", "master"))
}
