package sandbox

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sluice-gitops/sluice/internal/guard"
)

const (
	exitMemory   = 3 // the exit code of a child that uses too much memory
	exitProtocol = 4 // of a child that cannot talk to its parent
)

// Serve answers requests by handle and does not return if this process was started as a child with the argument, which
// its second argument follows: the memory limit in bytes. Call it in an init function of the package that does the
// work: so each binary that needs children can be one, also that of a test.
func Serve(argument string, handle Handler) {
	if len(os.Args) != 3 || os.Args[1] != argument {
		return
	}
	limit, err := strconv.ParseInt(os.Args[2], 10, 64)
	if err != nil || limit <= 0 {
		os.Exit(exitProtocol)
	}
	slog.SetDefault(slog.New(slog.DiscardHandler)) // warnings of charts
	limitMemory(limit)
	runtime.GOMAXPROCS(min(2, runtime.NumCPU()))
	guard.Go("a child process", func() { // an init function is bound to one thread, which makes each message slower
		if err := ServeUntil(os.Stdin, os.Stdout, handle, func() { os.Exit(0) }); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(exitProtocol)
		}
		os.Exit(0)
	})
	select {}
}

// limitMemory lets the collector work harder near the limit, and ends the process above it. Where the system offers a
// limit for a process, it stops one allocation that is much larger than the limit.
func limitMemory(limit int64) {
	debug.SetMemoryLimit(limit / 4 * 3)
	debug.SetMaxStack(int(min(limit/2, 256<<20)))
	limitData(limit)
	guard.Go("the memory limit of a child process", func() {
		sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"},
			{Name: "/memory/classes/heap/stacks:bytes"}}
		for range time.Tick(10 * time.Millisecond) {
			metrics.Read(sample)
			if used := sample[0].Value.Uint64() + sample[1].Value.Uint64(); used > uint64(limit) {
				os.Exit(exitMemory)
			}
		}
	})
}

// frame is what the child reads from its parent.
type frame struct {
	kind    byte
	content []byte
}

// Parent is the child's end of the protocol.
type Parent struct {
	frames chan frame // closed at the end of the input
	out    *bufio.Writer
}

// Handler answers one request. It returns an error only if the parent cannot be answered.
type Handler func(p *Parent, kind byte, content []byte) error

// ErrProtocol is the error of a frame that was not expected.
var ErrProtocol = errors.New("the parent sent an unexpected frame")

// ServeUntil answers requests until in ends. A goroutine reads in all the time, and calls orphaned when in ends during
// a request.
func ServeUntil(in io.Reader, out io.Writer, handle Handler, orphaned func()) error {
	p := &Parent{frames: make(chan frame), out: bufio.NewWriterSize(out, 64<<10)}
	var working atomic.Bool
	guard.Go("the input of a child process", func() {
		defer close(p.frames)
		in := bufio.NewReaderSize(in, 64<<10)
		for {
			kind, content, err := ReadFrame(in, MaxInput)
			if err != nil {
				if working.Load() {
					orphaned()
				}
				return
			}
			p.frames <- frame{kind, content}
		}
	})
	for {
		request, ok := <-p.frames
		if !ok {
			return nil
		}
		working.Store(true)
		if err := handle(p, request.kind, request.content); err != nil {
			return err
		}
		if err := p.out.Flush(); err != nil {
			return err
		}
		working.Store(false)
		if used := heapInUse(); used > 64<<20 {
			debug.FreeOSMemory()
		}
	}
}

func heapInUse() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// Send writes a frame. It may stay in a buffer until [Parent.Flush], [Parent.Next] or the end of the
// request.
func (p *Parent) Send(kind byte, parts ...[]byte) error { return WriteFrame(p.out, kind, parts...) }

// SendJSON writes a frame with a value as JSON.
func (p *Parent) SendJSON(kind byte, v any) error { return writeJSON(p.out, kind, v) }

// Flush sends what is in the buffer.
func (p *Parent) Flush() error { return p.out.Flush() }

// Next sends what is in the buffer, and returns the content of the next frame, which must be of the kind.
func (p *Parent) Next(kind byte) ([]byte, error) {
	if err := p.out.Flush(); err != nil {
		return nil, err
	}
	f, ok := <-p.frames
	if !ok || f.kind != kind {
		return nil, ErrProtocol
	}
	return f.content, nil
}

// maxMessage is the size of an error message in bytes. A recursive template yields one line for each level.
const maxMessage = 8 << 10

// Shorten removes the middle of a long message: its start and its end say where and why.
func Shorten(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	start, end := message[:maxMessage/2], message[len(message)-maxMessage/2:]
	return strings.ToValidUTF8(start, "") + "\n…\n" + strings.ToValidUTF8(end, "")
}
