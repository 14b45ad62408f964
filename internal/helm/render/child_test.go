package render

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"testing"

	"github.com/sluice-gitops/sluice/internal/build/sandbox"
	"github.com/sluice-gitops/sluice/internal/guard"
)

// TestCrash checks the errors of charts whose child ended.
func TestCrash(t *testing.T) {
	r := New(Options{})
	for ended, want := range map[sandbox.Ended]struct {
		message string
		waits   bool
	}{
		{Kind: sandbox.Crashed, Detail: "signal: terminated"}: {"ended (signal: terminated). Run 'helm template' on " +
			"the chart to reproduce it. Other releases are not affected", false},
		{Kind: sandbox.Killed}: {"was killed from outside. The container has probably too little memory: it is tried " +
			"again. If it happens often, raise the memory limit of the controller", true},
	} {
		err := r.explainChart(&ended, Request{}, "'shop' 1.0.0")
		message := "cannot render chart 'shop' 1.0.0: the process that renders its templates " + want.message
		if err == nil || err.Error() != message || guard.IsWaitingForMemory(err) != want.waits {
			t.Errorf("the error is %v, want %q", err, message)
		}
	}
}

func send(w io.Writer, kind byte, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return sandbox.WriteFrame(w, kind, text)
}

// FuzzChildOutput feeds the parent with what a compromised child may send.
func FuzzChildOutput(f *testing.F) {
	frames := func(write func(w io.Writer)) []byte {
		var b bytes.Buffer
		write(&b)
		return b.Bytes()
	}
	f.Add(frames(func(w io.Writer) {
		_ = sandbox.WriteFrame(w, kindChart, []byte("'shop' 1.0.0"))
		_ = send(w, kindQuery, wireQuery{"v1", "Pod", "x", "y"})
		_ = sandbox.WriteFrame(w, kindFile, fileFrame(File{"a", "b"})...)
		_ = sandbox.WriteFrame(w, kindValues, []byte(`{"a": [1, 1e0, null]}`))
	}))
	f.Add(frames(func(w io.Writer) { _ = send(w, kindError, wireError{Message: "x", Output: true}) }))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, kindFile})
	f.Add([]byte{0, 0, 0, 4, kindFile, 0xff, 0xff, 0xff, 0xff})
	f.Add(frames(func(w io.Writer) { _ = sandbox.WriteFrame(w, kindValues, []byte(`null`)) }))
	f.Fuzz(func(t *testing.T, sent []byte) {
		in := bytes.NewReader(sent)
		c := &conversation{answer: func(byte, any) error { return nil },
			receive: func(most int) (byte, []byte, error) { return sandbox.ReadFrame(in, most) }}
		c.lookup = func(context.Context, string, string, string, string) (map[string]any, error) {
			return map[string]any{"n": 1.5}, nil
		}
		result, err := c.converse(t.Context())
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
	_ = send(&b, kindRequest, wireRequest{Values: []byte(`{"a": 1}`)})
	_ = sandbox.WriteFrame(&b, kindArchive, []byte("no chart"))
	f.Add(b.Bytes())
	f.Add([]byte{0, 0, 0, 2, kindRequest, '{', '}'})
	f.Fuzz(func(_ *testing.T, sent []byte) {
		_ = sandbox.ServeUntil(bytes.NewReader(sent), io.Discard, handle, func() {})
	})
}
