package testenv

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// parentWatch makes a child stop when its standard input is closed.
const parentWatch = "PLAYGROUND_PARENT_WATCH=1"

// Child is a process that stops with this one, even if this one is killed.
type Child struct {
	Printed []string // lines before "ready"
	PID     int
	Stop    func() // returns when it has stopped
}

// children holds all children, since garbage collection would close their standard input.
var children struct {
	sync.Mutex
	kept []*Child
}

func keep(c *Child) {
	children.Lock()
	defer children.Unlock()
	children.kept = append(children.kept, c)
}

// StartPlayground runs a command of the playground and waits until it prints "ready".
func StartPlayground(args ...string) (*Child, error) {
	binary, err := Binary("playground")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), parentWatch)
	stdin, err := cmd.StdinPipe() // closed by the kernel when this process ends
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
	c := &Child{PID: cmd.Process.Pid, Stop: func() {
		_ = stdin.Close() // asks it to stop
		_ = cmd.Wait()    // it may have stopped already
	}}
	for out := bufio.NewScanner(stdout); out.Scan(); c.Printed = append(c.Printed, out.Text()) {
		if out.Text() == "ready" {
			go func() { _, _ = io.Copy(io.Discard, stdout) }() // until the child stops
			keep(c)
			return c, nil
		}
	}
	return nil, errors.Join(cmd.Wait(), errors.New(stderr.String()))
}

// Binary returns the path of bin/playground or bin/sluice of this checkout, and builds it if it does not exist.
// Concurrent test binaries build it once.
func Binary(name string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	module, known := map[string]string{"playground": filepath.Join(root, "playground"), "sluice": root}[name]
	if !known {
		return "", fmt.Errorf("unknown binary %q", name)
	}
	file := filepath.Join(root, "bin", name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(file+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close() // releases the lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	build := exec.Command("go", "build", "-o", file, "./cmd/"+name)
	build.Dir = module
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build %s: %w\n%s", name, err, out)
	}
	return file, nil
}

// Root returns the root directory of this checkout.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "playground", "go.mod")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("the working directory is not in a checkout of Sluice")
}
