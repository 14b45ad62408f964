package sandbox

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Child is a process that works. Only one goroutine at a time uses it.
type Child struct {
	options Options
	process *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	stderr  excerpt.Head  // the runtime says there why a child ends
	ended   chan struct{} // closed after the process has exited
	once    sync.Once

	ready   bool // waits for a request
	retired bool
	expiry  *time.Timer // of an idle child
}

// start starts a child: no shell, no environment, no descriptors but the three standard ones.
func start(o Options) (*Child, error) {
	path := o.Executable
	if path == "" {
		var err error
		if path, err = executable(); err != nil {
			return nil, fault.New("", "cannot find the running program, which %s", o.Work).Because(err)
		}
	}
	c := &Child{options: o, stderr: excerpt.Head{Most: maxStderr}, ended: make(chan struct{})}
	c.process = exec.Command(path, o.Argument, strconv.FormatInt(o.MaxMemory, 10))
	c.process.Env = []string{}
	c.process.Dir = filepath.VolumeName(path) + string(filepath.Separator)
	var err error
	if c.in, err = c.process.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	messages, err := c.process.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := c.process.Start(); err != nil {
		return nil, fault.New("", "cannot start the process that %s", o.Work).Because(err).
			WithHint("Check the limits of processes and memory of this container")
	}
	c.out = bufio.NewReaderSize(out, 64<<10)
	guard.Go("the end of a child process", func() {
		defer close(c.ended)
		_, _ = io.Copy(&c.stderr, messages)
		_ = c.process.Wait()
	})
	return c, nil
}

// kill ends the process and returns at once.
func (c *Child) kill() {
	c.once.Do(func() {
		_ = c.process.Process.Kill()
		_ = c.in.Close()
	})
}

func (c *Child) exited() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// work calls talk under the limits of memory and of ctx.
func (c *Child) work(ctx context.Context, what string, talk func(context.Context, *Child) error) error {
	c.ready = false
	defer guard.AfterDone(ctx, "the end of a child process", c.kill)()
	m := startMeter(ctx, c, what)
	err := talk(ctx, c)
	if refused := m.stop(c); refused != nil {
		return refused
	}
	if err != nil {
		c.kill()
		return c.cause(ctx, err)
	}
	c.ready = ctx.Err() == nil && !c.retired && !c.exited() // otherwise it is being killed
	return nil
}

// Retire ends the child after its work, for example because the work has changed something in its process.
func (c *Child) Retire() { c.retired = true }

// Send writes a frame.
func (c *Child) Send(kind byte, parts ...[]byte) error { return WriteFrame(c.in, kind, parts...) }

// SendJSON writes a frame with a value as JSON.
func (c *Child) SendJSON(kind byte, v any) error { return writeJSON(c.in, kind, v) }

// Receive reads a frame of at most most bytes.
func (c *Child) Receive(most int) (kind byte, content []byte, err error) {
	return ReadFrame(c.out, most)
}

const maxStderr = 4 << 10 // bytes

// executable returns the path of the running binary. On Linux it also works after the file was replaced.
func executable() (string, error) {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe", nil
	}
	return os.Executable()
}
