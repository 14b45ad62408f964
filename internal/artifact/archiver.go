package artifact

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-gitops/sluice/internal/guard"
)

const (
	// maxCompressors is the maximum number of segments of an archive that are compressed at the same time.
	maxCompressors = 4
	// maxUnwritten is the maximum number of compressed bytes of a segment that wait for the segments before it.
	maxUnwritten = 1 << 20
)

// archiver writes one archive. Segments are compressed at the same time, and written in order.
type archiver struct {
	ctx     context.Context
	out     *counting
	content Content
	from    *previous // may be nil
	group   *guard.Group
	last    chan struct{} // closed once the segment that was added last has ended
	failed  atomic.Pointer[error]

	segments []segment // of the segment whose turn it is
}

func newArchiver(ctx context.Context, w io.Writer, content Content, from *previous) *archiver {
	a := &archiver{ctx: ctx, out: &counting{w: w}, content: content, from: from,
		group: guard.NewGroup("writing an archive"), last: make(chan struct{})}
	a.group.SetLimit(min(maxCompressors, runtime.GOMAXPROCS(0)))
	close(a.last)
	return a
}

// add writes files as the next segment. It waits until others are done, and returns their first error.
func (a *archiver) add(files []member) error {
	if err := errors.Join(a.ctx.Err(), a.err()); err != nil {
		return err
	}
	o := &ordered{archiver: a, before: a.last}
	ended := make(chan struct{})
	a.last = ended
	a.group.Go(func() error {
		defer close(ended)
		err := guard.DoContext(a.ctx, "writing an archive", func() error { return a.write(o, files) })
		if err != nil {
			a.failed.CompareAndSwap(nil, &err)
		}
		return err
	})
	return nil
}

// wait waits until all segments are written.
func (a *archiver) wait() error { return a.group.Wait() }

func (a *archiver) err() error {
	if err := a.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// write writes files as a segment.
func (a *archiver) write(o *ordered, files []member) error {
	s := segment{Key: segmentKey(files)}
	if err := a.writeSegment(o, s.Key, files); err != nil {
		return err
	}
	if err := o.await(); err != nil {
		return err
	}
	s.Offset, s.Length = o.start, a.out.n-o.start
	a.segments = append(a.segments, s)
	return nil
}

// segmentKey returns the key of a segment with the files. It depends on their names, modes and contents.
func segmentKey(files []member) string {
	h := sha256.New()
	var text []byte
	for _, m := range files {
		text = strconv.AppendUint(text[:0], uint64(m.entry.Mode), 8)
		text = append(append(append(text, ' '), m.name...), 0)
		text = append(append(text, m.entry.ID...), '\n')
		_, _ = h.Write(text) // never fails
	}
	return hex.EncodeToString(h.Sum(nil))
}

// compressors are gzip writers, which need much memory.
var compressors = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

func (a *archiver) writeSegment(o *ordered, key string, files []member) error {
	if a.from != nil {
		if s, ok := a.from.segments[key]; ok {
			if err := o.await(); err != nil {
				return err
			}
			n, err := io.Copy(o, io.NewSectionReader(a.from, s.Offset, s.Length))
			if err == nil && n != s.Length {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
	}
	zip := compressors.Get().(*gzip.Writer)
	defer func() {
		zip.Reset(nil)
		compressors.Put(zip)
	}()
	zip.Reset(o)
	t := tar.NewWriter(zip)
	for _, m := range files {
		if err := a.writeMember(t, m, o.await); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	if err := t.Flush(); err != nil { // pads the last file; the stream continues in the next segment
		return err
	}
	return zip.Close()
}

// ordered is the output of a segment. It keeps the bytes until the segments before it are written, or are too many to
// be kept.
type ordered struct {
	*archiver
	before <-chan struct{} // closed once the segment before it has ended
	kept   bytes.Buffer
	isNext bool
	start  int64 // of the segment in the archive
}

// Write implements [io.Writer].
func (o *ordered) Write(p []byte) (int, error) {
	if !o.isNext && o.kept.Len()+len(p) <= maxUnwritten {
		return o.kept.Write(p)
	}
	if err := o.await(); err != nil {
		return 0, err
	}
	return o.out.Write(p)
}

// await waits until the segments before it are written, and writes what was kept. It returns the error of a segment
// before it.
func (o *ordered) await() error {
	if o.isNext {
		return nil
	}
	<-o.before
	if err := errors.Join(o.ctx.Err(), o.err()); err != nil {
		return err
	}
	o.isNext, o.start = true, o.out.n
	_, err := o.out.Write(o.kept.Bytes())
	o.kept = bytes.Buffer{}
	return err
}

func (a *archiver) writeMember(t *tar.Writer, m member, await func() error) error {
	header := tar.Header{Format: tar.FormatPAX, Name: m.name, ModTime: time.Unix(0, 0)}
	if m.entry.Mode.IsDir() {
		header.Name += "/"
	}
	return writeEntry(a.ctx, t, a.content, m.entry, header, await)
}

// writeEntry writes an entry with its content. The header has the name and what does not depend on the entry. Await is
// called before a large file is read: memory for it must not be held while others that write before it wait for memory.
func writeEntry(ctx context.Context, t *tar.Writer, content Content, e *Entry, header tar.Header,
	await func() error) error {
	header.Mode = int64(e.Mode.Perm())
	if e.Mode.IsDir() {
		header.Typeflag = tar.TypeDir
		return t.WriteHeader(&header)
	}
	data, lease, err := readLeased(ctx, content, e, await)
	if err != nil {
		return err
	}
	defer lease.Release()
	header.Typeflag, header.Size = tar.TypeReg, int64(len(data))
	if e.Mode&fs.ModeSymlink != 0 {
		header.Typeflag, header.Linkname, header.Size, data = tar.TypeSymlink, string(data), 0, nil
	}
	if err := t.WriteHeader(&header); err != nil {
		return err
	}
	_, err = t.Write(data)
	return err
}

// largeFile is the size in bytes from which a file has a lease of memory while it is read.
const largeFile = 4 << 20

// readLeased reads a file, with a lease of memory for a large file that is not in memory yet; nil for others.
func readLeased(ctx context.Context, content Content, e *Entry, await func() error) ([]byte, *guard.Lease, error) {
	switch c := content.(type) {
	case *memory:
		data, err := c.Read(e.ID)
		return data, nil, err
	case BoundedContent:
		if data, ok, err := c.ReadAtMost(e.ID, largeFile-1); ok || err != nil {
			return data, nil, err
		}
	}
	size, err := content.Size(e.ID)
	if err != nil || size < largeFile { // Read returns the error
		data, err := content.Read(e.ID)
		return data, nil, err
	}
	if err := await(); err != nil {
		return nil, nil, err
	}
	lease, err := guard.BudgetOf(ctx).Acquire(ctx, "storing a large file", 2*size)
	if err != nil {
		return nil, nil, err
	}
	data, err := content.Read(e.ID)
	if err != nil {
		lease.Release()
		return nil, nil, err
	}
	return data, lease, nil
}
