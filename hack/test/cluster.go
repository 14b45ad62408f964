package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// cluster is the control plane that the packages of a run share.
type cluster struct {
	dir  string
	stop func()
}

// startCluster starts bin/playground of the checkout, unless the environment names a cluster already.
//
// The names of its files are the same in each run of a checkout: go test reads them as inputs of a test, and would
// otherwise never use a cached result.
func startCluster(ctx context.Context, root string) (*cluster, error) {
	if os.Getenv("SLUICE_TEST_KUBECONFIG") != "" {
		return &cluster{stop: func() {}}, nil
	}
	hash := fnv.New64a()
	fmt.Fprint(hash, root)
	c := &cluster{dir: filepath.Join(os.TempDir(), fmt.Sprintf("sluice-test-%x", hash.Sum64()))}
	if err := errors.Join(os.RemoveAll(c.dir), os.Mkdir(c.dir, 0o700)); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(root, "bin", "playground"), "cluster",
		"--kubeconfig", c.kubeconfig(), "--audit-log", c.audit())
	cmd.Env = append(seldomCollecting(os.Environ()), "PLAYGROUND_PARENT_WATCH=1")
	stdin, err := cmd.StdinPipe() // the playground stops when it is closed, even if this process is killed
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c.stop = func() {
		_ = stdin.Close()
		_ = cmd.Wait() // the tests have ended, however it ends
		_ = os.RemoveAll(c.dir)
	}
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if lines.Text() == "ready" {
			go func() { _, _ = io.Copy(io.Discard, stdout) }() // until it stops
			return c, nil
		}
	}
	c.stop()
	return nil, fmt.Errorf("the playground did not start: %s", stderr.String())
}

func (c *cluster) kubeconfig() string { return filepath.Join(c.dir, "kubeconfig") }

func (c *cluster) audit() string { return filepath.Join(c.dir, "audit") }

// env returns the environment of tests that use the cluster.
func (c *cluster) env() []string {
	if c.dir == "" {
		return os.Environ()
	}
	return append(os.Environ(), "SLUICE_TEST_KUBECONFIG="+c.kubeconfig(), "SLUICE_TEST_AUDIT_LOG="+c.audit(),
		"SLUICE_TEST_SHARED=1")
}

// seldomCollecting returns an environment in which garbage is collected less often than by default. A control plane
// then takes 16 % less of the processors, which are what make test waits for, and twice the memory, 2 GB at most.
func seldomCollecting(env []string) []string {
	if os.Getenv("GOGC") != "" {
		return env
	}
	return append(slices.Clone(env), "GOGC=300")
}
