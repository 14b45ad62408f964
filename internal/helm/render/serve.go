package render

import (
	"bufio"
	"encoding/json"
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

// childArgument is the first argument of a child. The second is its memory limit in bytes.
const childArgument = "render-templates-for-parent"

// servesChildren is whether this binary called [RunChild]. A child of another one would be a second run of its main.
var servesChildren atomic.Bool

const (
	exitMemory   = 3 // the exit code of a child that uses too much memory
	exitProtocol = 4 // of a child that cannot talk to its parent
)

// RunChild does not return if this process was started as a child of a [Renderer]. Call it first in main, and in
// TestMain of tests that render.
func RunChild() {
	servesChildren.Store(true)
	if len(os.Args) != 3 || os.Args[1] != childArgument {
		return
	}
	limit, err := strconv.ParseInt(os.Args[2], 10, 64)
	if err != nil || limit <= 0 {
		os.Exit(exitProtocol)
	}
	slog.SetDefault(slog.New(slog.DiscardHandler)) // warnings of charts
	limitMemory(limit)
	runtime.GOMAXPROCS(min(2, runtime.NumCPU()))
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitProtocol)
	}
	os.Exit(0)
}

// limitMemory lets the collector work harder near the limit, and ends the process above it. Where the system offers a
// limit for a process, it stops one allocation that is much larger than the limit.
func limitMemory(limit int64) {
	debug.SetMemoryLimit(limit / 4 * 3)
	debug.SetMaxStack(int(min(limit/2, 256<<20)))
	limitData(limit)
	guard.Go("the memory limit of a rendering process", func() {
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

// server is the child's end of the protocol.
type server struct {
	frames chan frame // closed at the end of the input
	out    *bufio.Writer
}

// serve answers requests until in ends. A goroutine reads in all the time: if the parent ends during a render, the
// process exits.
func serve(in io.Reader, out io.Writer) error {
	return serveUntil(in, out, func() { os.Exit(0) })
}

// serveUntil is serve, and calls orphaned when in ends during a render.
func serveUntil(in io.Reader, out io.Writer, orphaned func()) error {
	s := &server{frames: make(chan frame), out: bufio.NewWriterSize(out, 64<<10)}
	var rendering atomic.Bool
	guard.Go("the input of a rendering process", func() {
		defer close(s.frames)
		for {
			kind, content, err := readFrame(in, maxInput)
			if err != nil {
				if rendering.Load() {
					orphaned()
				}
				return
			}
			s.frames <- frame{kind, content}
		}
	})
	for {
		request, ok := <-s.frames
		if !ok {
			return nil
		}
		rendering.Store(true)
		if err := s.handle(request); err != nil {
			return err
		}
		rendering.Store(false)
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

var errProtocol = errors.New("the parent sent an unexpected frame")

// handle answers one request. It returns an error only if the parent cannot be answered.
func (s *server) handle(request frame) error {
	if request.kind == kindExpand {
		if err := s.expand(request.content); err != nil {
			return err
		}
		return s.out.Flush()
	}
	var q wireRequest
	if request.kind != kindRequest || json.Unmarshal(request.content, &q) != nil {
		return errProtocol
	}
	archive, ok := <-s.frames
	if !ok || archive.kind != kindArchive {
		return errProtocol
	}
	if err := s.answer(&q, archive.content); err != nil {
		return err
	}
	return s.out.Flush()
}

func (s *server) answer(q *wireRequest, archive []byte) error {
	files, values, err := s.renderChart(q, archive)
	return s.send(files, values, err)
}

// send sends what was rendered, or the error.
func (s *server) send(files []File, values []byte, err error) error {
	if err != nil {
		return writeJSON(s.out, kindError, wireError{Message: shorten(err.Error())})
	}
	size := 0
	for _, f := range files {
		if size += len(f.Name) + len(f.Content); size > maxFiles {
			return writeJSON(s.out, kindError, wireError{Output: true,
				Message: fmt.Sprintf("its templates render more than %d MiB; %s renders %d MiB",
					maxFiles>>20, f.Name, len(f.Content)>>20)})
		}
	}
	for _, f := range files {
		if err := writeFrame(s.out, kindFile, fileFrame(f)...); err != nil {
			return err
		}
	}
	return writeFrame(s.out, kindValues, values)
}

// lookup asks the parent for an object.
func (s *server) lookup(apiVersion, kind, namespace, name string) (map[string]any, error) {
	if err := writeJSON(s.out, kindQuery, wireQuery{apiVersion, kind, namespace, name}); err != nil {
		return nil, err
	}
	if err := s.out.Flush(); err != nil {
		return nil, err
	}
	f, ok := <-s.frames
	var a wireAnswer
	if !ok || f.kind != kindAnswer || json.Unmarshal(f.content, &a) != nil {
		return nil, errProtocol
	}
	if a.Error != "" {
		return nil, errors.New(a.Error)
	}
	return decodeValues(a.Object)
}

// maxMessage is the size of an error message in bytes. A recursive template yields one line for each level.
const maxMessage = 8 << 10

// shorten removes the middle of a long message: its start and its end say where and why.
func shorten(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	start, end := message[:maxMessage/2], message[len(message)-maxMessage/2:]
	return strings.ToValidUTF8(start, "") + "\n…\n" + strings.ToValidUTF8(end, "")
}
