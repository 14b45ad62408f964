package sandbox

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

var (
	errTimeout = errors.New("the time limit of a child process has passed")
	// ErrTooLarge is an error of a frame that is larger than it may be.
	ErrTooLarge = errors.New("too much output")
)

// Ended says that a child ended, or had to be ended, before it answered.
type Ended struct {
	Kind   Kind
	Detail string // of a crash
}

// Kind is why a child ended.
type Kind int

// Kinds of ends.
const (
	Crashed Kind = iota
	Killed       // from outside, as the kernel does when memory is short
	OutOfTime
	OutOfMemory
	TooMuchOutput
)

func (e *Ended) Error() string {
	return [...]string{"its process ended (" + e.Detail + ")", "its process was killed from outside",
		"its process took too long", "its process used too much memory", "its process sent too much"}[e.Kind]
}

// IsOfWork reports whether a child ended because of what it worked on, so that it would end again.
func (e *Ended) IsOfWork() bool { return e.Kind != Crashed && e.Kind != Killed }

// wasLost reports whether the child ended for a reason that is not known to lie in its work.
func wasLost(err error) bool {
	var ended *Ended
	return errors.As(err, &ended) && !ended.IsOfWork()
}

// cause says why a child did not answer. The child has been killed or has exited.
func (c *Child) cause(ctx context.Context, err error) error {
	<-c.ended
	messages := c.stderr.String()
	var ended *Ended
	switch {
	case errors.As(err, &ended):
		return err
	case errors.Is(context.Cause(ctx), errTimeout):
		return &Ended{Kind: OutOfTime}
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, ErrTooLarge):
		return &Ended{Kind: TooMuchOutput}
	case c.process.ProcessState.ExitCode() == exitMemory, strings.Contains(messages, "out of memory"),
		strings.Contains(messages, "cannot allocate memory"), strings.Contains(messages, "stack exceeds"):
		return &Ended{Kind: OutOfMemory}
	case isEnd(err) && wasKilled(c.process.ProcessState):
		return &Ended{Kind: Killed}
	}
	reason := c.process.ProcessState.String()
	if !isEnd(err) {
		reason = err.Error()
	}
	if first, _, _ := strings.Cut(messages, "\n"); first != "" {
		reason += ": " + excerpt.Line(first, 300)
	}
	return &Ended{Kind: Crashed, Detail: reason}
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
