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

// parentWatch makes a child end when its standard input does.
const parentWatch = "PLAYGROUND_PARENT_WATCH=1"

// child is a process that ends with this one, however this one ends.
type child struct {
	printed []string // before "ready"
	pid     int
	stop    func() // returns when it has ended
}

// children are kept for the life of this process: the standard input of one that is collected would be closed.
var children struct {
	sync.Mutex
	kept []*child
}

func keep(c *child) {
	children.Lock()
	defer children.Unlock()
	children.kept = append(children.kept, c)
}

// start runs the playground until it says that it is ready.
func start(args ...string) (*child, error) {
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
	c := &child{pid: cmd.Process.Pid, stop: func() {
		_ = stdin.Close() // asks it to end
		_ = cmd.Wait()    // it may have been stopped before
	}}
	for out := bufio.NewScanner(stdout); out.Scan(); c.printed = append(c.printed, out.Text()) {
		if out.Text() == "ready" {
			go func() { _, _ = io.Copy(io.Discard, stdout) }() // ends with the child
			keep(c)
			return c, nil
		}
	}
	return nil, errors.Join(cmd.Wait(), errors.New(stderr.String()))
}

// Binary returns the path of bin/<name> of this checkout, playground or sluice, and builds it if it is not there.
// Test binaries that run at the same time build it once.
func Binary(name string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	module, known := map[string]string{"playground": filepath.Join(root, "playground"), "sluice": root}[name]
	if !known {
		return "", fmt.Errorf("there is no binary %q", name)
	}
	file := filepath.Join(root, "bin", name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(file+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close() // gives up the lock
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

// Root returns the root of this checkout.
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
	return "", errors.New("not inside a checkout of Sluice")
}
