package render

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-gitops/sluice/internal/excerpt"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/guard"
)

// Bounds of what the templates of one render may look up.
const (
	maxLookups     = 1000
	maxLookupBytes = 32 << 20
)

var (
	errTimeout  = errors.New("the time limit of a render has passed")
	errTooLarge = errors.New("too much output")
)

// endedError says that a child ended, or had to be ended, before it answered.
type endedError struct {
	kind    endedKind
	message string
}

type endedKind int

const (
	endedCrash  endedKind = iota
	endedKilled           // from outside, as the kernel does when memory is short
	endedTime
	endedMemory
	endedOutput
)

func (e *endedError) Error() string { return e.message }

func asEnded(err error, target **endedError) bool { return errors.As(err, target) }

// wasLost reports whether the child ended for a reason that is not known to lie in the chart.
func wasLost(err error) bool {
	var ended *endedError
	return asEnded(err, &ended) && (ended.kind == endedCrash || ended.kind == endedKilled)
}

// child is a process that renders. Only one goroutine at a time uses it.
type child struct {
	options Options
	process *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	stderr  tail
	ended   chan struct{} // closed after the process has exited
	once    sync.Once

	ready  bool // waits for a request
	chart  string
	expiry *time.Timer // of an idle child
}

// start starts a child: no shell, no environment, no descriptors but the three standard ones.
func start(o Options) (*child, error) {
	path := o.Executable
	if path == "" {
		if !servesChildren.Load() {
			return nil, errors.New("this program does not call render.RunChild, so it cannot start itself to render")
		}
		var err error
		if path, err = executable(); err != nil {
			return nil, fault.New("", "cannot find the running program, which renders charts").Because(err)
		}
	}
	c := &child{options: o, ended: make(chan struct{})}
	c.process = exec.Command(path, childArgument, strconv.FormatInt(o.MaxMemory, 10))
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
		return nil, fault.New("", "cannot start the process that renders charts").Because(err).
			WithHint("Check the limits of processes and memory of this container")
	}
	c.out = bufio.NewReaderSize(out, 64<<10)
	guard.Go("the end of a rendering process", func() {
		defer close(c.ended)
		_, _ = io.Copy(&c.stderr, messages)
		_ = c.process.Wait()
	})
	return c, nil
}

// kill ends the process and returns at once.
func (c *child) kill() {
	c.once.Do(func() {
		_ = c.process.Process.Kill()
		_ = c.in.Close()
	})
}

func (c *child) exited() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// render sends a request and serves the lookups of its templates until the child answers.
func (c *child) render(ctx context.Context, q Request) (*Result, error) {
	values, err := encodeValues(q.Values)
	if err != nil {
		return nil, fmt.Errorf("cannot encode the values: %w", err)
	}
	return c.ask(ctx, "rendering the chart "+q.ofRelease(), func() error {
		err := writeJSON(c.in, kindRequest, wireRequest{Release: q.Release, Values: values, KubeVersion: q.KubeVersion,
			KubeMajor: q.KubeMajor, KubeMinor: q.KubeMinor, APIVersions: q.APIVersions, Lookup: q.Lookup != nil,
			AllowDNS: q.AllowDNS, SkipSchemaValidation: q.SkipSchemaValidation})
		if err != nil {
			return err
		}
		return writeFrame(c.in, kindArchive, q.Chart)
	}, q.Lookup)
}

// ask sends a request and serves lookups until the child answers. Work says what the memory is for.
func (c *child) ask(ctx context.Context, work string, send func() error, lookup Lookup) (*Result, error) {
	c.ready, c.chart = false, ""
	defer guard.AfterDone(ctx, "the end of a rendering process", c.kill)()
	m, err := startMeter(ctx, c, work)
	if err != nil {
		return nil, err
	}
	var result *Result
	if err = send(); err == nil {
		result, err = c.converse(ctx, lookup)
	}
	if refused := m.stop(c); refused != nil {
		return nil, refused
	}
	var own *Error
	if err == nil || errors.As(err, &own) {
		c.ready = ctx.Err() == nil && !c.exited() // otherwise it is being killed
		return result, err
	}
	c.kill()
	return nil, c.cause(ctx, err)
}

// converse reads what the child sends until the result or an error.
func (c *child) converse(ctx context.Context, lookup Lookup) (*Result, error) {
	result, answers := &Result{}, lookups{lookup: lookup}
	left := maxOutput
	for {
		kind, content, err := readFrame(c.out, left)
		if err != nil {
			return nil, err
		}
		switch left -= len(content); kind {
		case kindChart:
			c.chart = excerpt.Line(string(content), 200)
		case kindQuery:
			left += len(content) // counted by lookups
			if err := writeJSON(c.in, kindAnswer, answers.answer(ctx, content)); err != nil {
				return nil, err
			}
		case kindFile:
			file, err := readFile(content)
			if err != nil {
				return nil, err
			}
			result.Files = append(result.Files, file)
		case kindValues:
			if result.Values, err = decodeValues(content); err != nil {
				return nil, err
			}
			return result, nil
		case kindError:
			return nil, readError(content)
		default:
			return nil, fmt.Errorf("the child sent a frame of the unknown kind %q", kind)
		}
	}
}

func readError(content []byte) error {
	var e wireError
	if err := json.Unmarshal(content, &e); err != nil {
		return err
	}
	if e.Output {
		return &endedError{kind: endedOutput, message: e.Message}
	}
	return &Error{Message: e.Message}
}

// cause says why a child did not answer. The child has been killed or has exited.
func (c *child) cause(ctx context.Context, err error) error {
	<-c.ended
	messages := c.stderr.String()
	var ended *endedError
	switch {
	case errors.As(err, &ended):
		return ended
	case errors.Is(context.Cause(ctx), errTimeout):
		return &endedError{endedTime, fmt.Sprintf("its templates did not finish within %s", c.options.Timeout)}
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, errTooLarge):
		return &endedError{endedOutput, fmt.Sprintf("its templates render more than %d MiB", maxOutput>>20)}
	case c.process.ProcessState.ExitCode() == exitMemory, strings.Contains(messages, "out of memory"),
		strings.Contains(messages, "cannot allocate memory"), strings.Contains(messages, "stack exceeds"):
		return &endedError{endedMemory,
			fmt.Sprintf("its templates use more than %d MiB of memory", c.options.MaxMemory>>20)}
	case isEnd(err) && wasKilled(c.process.ProcessState):
		return &endedError{endedKilled, "the process that renders its templates was killed from outside"}
	}
	reason := c.process.ProcessState.String()
	if !isEnd(err) {
		reason = err.Error()
	}
	if first, _, _ := strings.Cut(messages, "\n"); first != "" {
		reason += ": " + excerpt.Line(first, 300)
	}
	return &endedError{endedCrash, "the process that renders its templates ended (" + reason + ")"}
}

func wasKilled(p *os.ProcessState) bool {
	status, ok := p.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// isEnd reports whether an error of a pipe means that the child has ended: [exec.Cmd.Wait] closes its end of the pipe,
// also while it is read.
func isEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.EPIPE) ||
		errors.Is(err, os.ErrClosed)
}

// lookups answers the lookups of one render.
type lookups struct {
	lookup Lookup
	count  int
	bytes  int
}

func (l *lookups) answer(ctx context.Context, content []byte) wireAnswer {
	var q wireQuery
	if err := json.Unmarshal(content, &q); err != nil {
		return wireAnswer{Error: err.Error()}
	}
	if l.lookup == nil {
		return wireAnswer{Object: json.RawMessage("{}")}
	}
	if l.count++; l.count > maxLookups {
		return wireAnswer{Error: fmt.Sprintf("the templates look up more than %d times", maxLookups)}
	}
	object, err := l.lookup(ctx, q.APIVersion, q.Kind, q.Namespace, q.Name)
	if err != nil {
		return wireAnswer{Error: err.Error()}
	}
	text, err := encodeValues(object)
	if err != nil {
		return wireAnswer{Error: err.Error()}
	}
	if l.bytes += len(text); l.bytes > maxLookupBytes {
		return wireAnswer{Error: fmt.Sprintf("the templates look up more than %d MiB", maxLookupBytes>>20)}
	}
	return wireAnswer{Object: text}
}

// tail keeps the first bytes of what a child writes to its standard error: the runtime says there why it ends.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const maxStderr = 4 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p[:min(len(p), maxStderr-len(t.text))]...)
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}

// executable returns the path of the running binary. On Linux it also works after the file was replaced.
func executable() (string, error) {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe", nil
	}
	return os.Executable()
}
