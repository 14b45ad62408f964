package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	testArgument = "test-of-the-sandbox"
	wide         = 10 * time.Minute
)

func init() { Serve(testArgument, echo) }

// echo answers with what it is sent, after it has asked for more if the text is "ask".
func echo(p *Parent, _ byte, content []byte) error {
	if string(content) == "ask" {
		if err := p.Send('q'); err != nil {
			return err
		}
		var err error
		if content, err = p.Next('a'); err != nil {
			return err
		}
	}
	return p.Send('e', content)
}

func pool(t *testing.T, o Options) *Pool {
	o.Argument, o.Work = testArgument, "echoes"
	if o.Timeout == 0 {
		o.Timeout = wide
	}
	p := New(o)
	t.Cleanup(p.Close)
	return p
}

// say sends a text to a child and returns its answer; asked is called if the child asks.
func say(ctx context.Context, p *Pool, text string, asked func(*Child) string) (answer string, err error) {
	err = p.Do(ctx, "a test", func(_ context.Context, c *Child) error {
		if err := c.Send('r', []byte(text)); err != nil {
			return err
		}
		for {
			kind, content, err := c.Receive(1 << 20)
			if err != nil {
				return err
			}
			if answer = string(content); kind == 'e' {
				return nil
			}
			if err := c.Send('a', []byte(asked(c))); err != nil {
				return err
			}
		}
	})
	return answer, err
}

func TestChildrenAreUsedAgain(t *testing.T) {
	p := pool(t, Options{})
	for range 2 {
		if answer, err := say(t.Context(), p, "x", nil); answer != "x" || err != nil || len(p.idle) != 1 {
			t.Fatalf("%q, %v", answer, err)
		}
	}
	idle := p.idle[0]
	_ = idle.process.Process.Kill() // as the system does when memory is short
	if _, err := say(t.Context(), p, "x", nil); err != nil {
		t.Errorf("after an idle child was killed: %v", err)
	}
	if p.idle[0] == idle {
		t.Error("the killed child is still in use")
	}
	_ = p.Do(t.Context(), "a test", func(_ context.Context, c *Child) error { c.Retire(); return nil })
	if len(p.idle) != 0 {
		t.Error("a retired child is kept")
	}
	answer, err := say(t.Context(), p, "ask", func(*Child) string { return "y" })
	if answer != "y" || err != nil {
		t.Errorf("a question: %q, %v", answer, err)
	}
}

// TestAnUnusedChildEnds checks that nothing is kept of a child without work: a process takes some 20 MB.
func TestAnUnusedChildEnds(t *testing.T) {
	p := pool(t, Options{IdleTTL: 10 * time.Millisecond})
	var child *Child
	err := p.Do(t.Context(), "a test", func(_ context.Context, c *Child) error {
		child = c
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	<-child.ended
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) > 0 {
		t.Error("the ended child is kept")
	}
}

// TestTheKernelEndsTheChildFirst checks that a container without memory loses a child and not the controller.
func TestTheKernelEndsTheChildFirst(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has this setting")
	}
	p := pool(t, Options{})
	if _, err := say(t.Context(), p, "x", nil); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", p.idle[0].process.Process.Pid))
	if err != nil || strings.TrimSpace(string(text)) != "1000" {
		t.Errorf("oom_score_adj is %q, %v", text, err)
	}
}

// TestIsolation checks what a child gets from its parent besides its request.
func TestIsolation(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has this file system")
	}
	t.Setenv("SECRET", "x")
	p := pool(t, Options{})
	if _, err := say(t.Context(), p, "x", nil); err != nil {
		t.Fatal(err)
	}
	of := fmt.Sprintf("/proc/%d/", p.idle[0].process.Process.Pid)
	if environment, err := os.ReadFile(of + "environ"); err != nil || len(environment) > 0 {
		t.Errorf("the environment is %q, %v", environment, err)
	}
	if dir, err := os.Readlink(of + "cwd"); dir != "/" {
		t.Errorf("it runs in %s, %v", dir, err)
	}
}

func TestCrash(t *testing.T) {
	for signal, want := range map[syscall.Signal]Ended{
		syscall.SIGTERM: {Kind: Crashed, Detail: "signal: terminated"},
		syscall.SIGKILL: {Kind: Killed},
	} {
		_, err := say(t.Context(), pool(t, Options{}), "ask", func(c *Child) string {
			_ = c.process.Process.Signal(signal)
			<-c.ended // before it could answer
			return ""
		})
		var ended *Ended
		if !errors.As(err, &ended) || *ended != want {
			t.Errorf("%s: the error is %v", signal, err)
		}
	}
}

// TestOrphan checks that a child ends during its work when its parent does.
func TestOrphan(t *testing.T) {
	toChild, fromParent := io.Pipe()
	toParent, fromChild := io.Pipe()
	orphaned := make(chan struct{})
	ended := make(chan error)
	go func() { ended <- ServeUntil(toChild, fromChild, echo, func() { close(orphaned) }) }()
	go func() { _ = WriteFrame(fromParent, 'r', []byte("ask")) }()
	if kind, _, err := ReadFrame(toParent, 100); kind != 'q' || err != nil {
		t.Fatal(kind, err)
	}
	_ = fromParent.Close() // the parent ends while it is asked
	<-orphaned
	if err := <-ended; !errors.Is(err, ErrProtocol) {
		t.Errorf("the error is %v", err)
	}
}
