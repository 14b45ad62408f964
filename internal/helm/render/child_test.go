package render

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

func request(t *testing.T, template string) Request {
	return Request{Chart: testenv.ChartArchive(t, "shop", "1.0.0", map[string]string{"templates/a.yaml": template}),
		Release: Release{Name: "app", Namespace: "team"}}
}

func TestLostChild(t *testing.T) {
	r := New(Options{Timeout: 10 * defaultTimeout, Children: 1})
	defer r.Close()
	if _, err := r.Render(t.Context(), request(t, "x")); err != nil {
		t.Fatal(err)
	}
	idle := r.idle[0]
	if _, err := r.Render(t.Context(), request(t, "x")); err != nil || len(r.idle) != 1 || r.idle[0] != idle {
		t.Fatalf("the child was not reused: %v", err)
	}
	_ = idle.process.Process.Kill() // as the system does when memory is short
	if _, err := r.Render(t.Context(), request(t, "x")); err != nil {
		t.Errorf("after an idle child was killed: %v", err)
	}
	if r.idle[0] == idle {
		t.Error("the killed child is still in use")
	}

	if err := r.idle[0].process.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the new child: %v", err)
	}
}

// TestTheKernelEndsTheChildFirst checks that a container without memory loses a render and not the controller.
func TestTheKernelEndsTheChildFirst(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has this setting")
	}
	r := New(Options{Timeout: 10 * defaultTimeout})
	defer r.Close()
	if _, err := r.Render(t.Context(), request(t, "x")); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", r.idle[0].process.Process.Pid))
	if err != nil || strings.TrimSpace(string(text)) != "1000" {
		t.Errorf("oom_score_adj is %q, %v", text, err)
	}
}

func TestCrash(t *testing.T) {
	r := New(Options{Timeout: 10 * defaultTimeout, Children: 1})
	defer r.Close()
	for signal, want := range map[syscall.Signal]struct {
		message string
		waits   bool
	}{
		syscall.SIGTERM: {"ended (signal: terminated). Run 'helm template' on the chart to reproduce it. Other " +
			"releases are not affected", false},
		syscall.SIGKILL: {"was killed from outside. The container has probably too little memory: it is tried again. " +
			"If it happens often, raise the memory limit of the controller", true},
	} {
		c, err := start(r.options)
		if err != nil {
			t.Fatal(err)
		}
		q := request(t, `{{ lookup "v1" "Pod" "x" "y" }}`)
		q.Lookup = func(context.Context, string, string, string, string) (map[string]any, error) {
			err := c.process.Process.Signal(signal)
			<-c.ended // before it could answer
			return nil, err
		}
		_, err = c.render(t.Context(), q)
		err = explainChart(err, q, c)
		message := "cannot render chart 'shop' 1.0.0: the process that renders its templates " + want.message
		if err == nil || err.Error() != message || guard.IsWaitingForMemory(err) != want.waits {
			t.Errorf("the error is %v, want %q", err, message)
		}
	}
}

// TestOrphan checks that a child ends during a render when its parent does.
func TestOrphan(t *testing.T) {
	toChild, fromParent := io.Pipe()
	toParent, fromChild := io.Pipe()
	orphaned := make(chan struct{})
	ended := make(chan error)
	go func() {
		ended <- serveUntil(toChild, fromChild, func() { close(orphaned) })
	}()
	go func() {
		q := request(t, `{{ lookup "v1" "Pod" "x" "y" }}`)
		_ = writeJSON(fromParent, kindRequest, wireRequest{Values: []byte("{}"), Lookup: true})
		_ = writeFrame(fromParent, kindArchive, q.Chart)
	}()
	out := bufio.NewReader(toParent)
	for kind := byte(0); kind != kindQuery; {
		var err error
		if kind, _, err = readFrame(out, maxOutput); err != nil {
			t.Fatal(err)
		}
	}
	_ = fromParent.Close() // the parent ends while it is asked
	<-orphaned
	go func() { _, _ = io.Copy(io.Discard, out) }()
	if err := <-ended; err != nil {
		t.Errorf("serve: %v", err)
	}
}

func TestUnexpectedRequest(t *testing.T) {
	var in bytes.Buffer
	_ = writeFrame(&in, kindAnswer, []byte("{}"))
	if err := serveUntil(&in, io.Discard, func() {}); !errors.Is(err, errProtocol) {
		t.Errorf("the error is %v", err)
	}
}

// FuzzChildOutput feeds the parent with what a compromised child may send.
func FuzzChildOutput(f *testing.F) {
	frames := func(write func(w io.Writer)) []byte {
		var b bytes.Buffer
		write(&b)
		return b.Bytes()
	}
	f.Add(frames(func(w io.Writer) {
		_ = writeFrame(w, kindChart, []byte("'shop' 1.0.0"))
		_ = writeJSON(w, kindQuery, wireQuery{"v1", "Pod", "x", "y"})
		_ = writeFrame(w, kindFile, fileFrame(File{"a", "b"})...)
		_ = writeFrame(w, kindValues, []byte(`{"a": [1, 1e0, null]}`))
	}))
	f.Add(frames(func(w io.Writer) { _ = writeJSON(w, kindError, wireError{Message: "x", Output: true}) }))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, kindFile})
	f.Add([]byte{0, 0, 0, 4, kindFile, 0xff, 0xff, 0xff, 0xff})
	f.Add(frames(func(w io.Writer) { _ = writeFrame(w, kindValues, []byte(`null`)) }))
	f.Fuzz(func(t *testing.T, sent []byte) {
		c := &child{in: discard{}, out: bufio.NewReader(bytes.NewReader(sent))}
		result, err := c.converse(t.Context(), func(context.Context, string, string, string,
			string) (map[string]any, error) {
			return map[string]any{"n": 1.5}, nil
		})
		if (result == nil) == (err == nil) {
			t.Errorf("the result is %v and the error %v", result, err)
		}
		size := 0
		if result != nil {
			for _, file := range result.Files {
				size += len(file.Name) + len(file.Content)
			}
		}
		if size > len(sent) {
			t.Errorf("%d bytes became %d", len(sent), size)
		}
	})
}

// FuzzChildInput feeds a child with arbitrary frames: it must end without a panic.
func FuzzChildInput(f *testing.F) {
	var b bytes.Buffer
	_ = writeJSON(&b, kindRequest, wireRequest{Values: []byte(`{"a": 1}`)})
	_ = writeFrame(&b, kindArchive, []byte("no chart"))
	f.Add(b.Bytes())
	f.Add([]byte{0, 0, 0, 2, kindRequest, '{', '}'})
	f.Fuzz(func(_ *testing.T, sent []byte) {
		_ = serveUntil(bytes.NewReader(sent), io.Discard, func() {})
	})
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) Close() error                { return nil }
