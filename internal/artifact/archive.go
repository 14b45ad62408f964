package artifact

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"path"
	"strconv"
	"time"

	"github.com/sluice-gitops/sluice/internal/guard"
)

// segmentFiles is how many files share a segment on average. Boundaries follow from the paths alone.
const segmentFiles = 64

// An archive is a tar stream, compressed in segments. Each segment is a separate gzip member, and gzip readers treat
// the members as one stream (RFC 1952, 2.2). A segment is a series of files in the order of their paths. The hash of a
// path decides whether a new segment begins at that path. The same files therefore give the same bytes, independent of
// the other files in the tree. So an archive depends only on its tree, and an archive that differs from another one in
// one file can be written by copying all other segments.

// segment is the position of a series of files in an archive.
type segment struct {
	Key    string `json:"key"`
	Offset int64  `json:"offset"`
	Length int64  `json:"length"`
}

// previous is an archive to copy unchanged segments from.
type previous struct {
	io.ReaderAt
	segments map[string]segment
}

// member is a file that is going to be written to an archive.
type member struct {
	name  string
	entry *Entry
}

// archiver writes one archive.
type archiver struct {
	ctx      context.Context
	out      *counting
	zip      *gzip.Writer
	content  Content
	from     *previous // may be nil
	run      []member  // the files of the current segment
	text     []byte    // buffer of keyOf, reused
	buffer   []byte    // for copying
	segments []segment
}

// writeArchive writes the tree to w and returns the segments of the archive. From may be nil.
func writeArchive(ctx context.Context, w io.Writer, t *Tree, from *previous) ([]segment, error) {
	a := &archiver{ctx: ctx, out: &counting{w: w}, zip: gzip.NewWriter(nil), content: t.content, from: from,
		buffer: make([]byte, 128<<10)}
	err := t.Walk(func(name string, e *Entry) error {
		if t.leadsOut(name, e) {
			return nil // must not be in the archive
		}
		if cut(name) {
			if err := errors.Join(ctx.Err(), a.flush()); err != nil {
				return err
			}
		}
		a.run = append(a.run, member{name, e})
		return nil
	})
	if err == nil {
		err = a.flush()
	}
	if err != nil {
		return nil, err
	}
	a.zip.Reset(a.out)
	_, err = a.zip.Write(make([]byte, 1024)) // the end of a tar stream: two blocks of zeros
	return a.segments, errors.Join(err, a.zip.Close())
}

// leadsOut reports whether an entry is a symlink that leads out of the tree.
func (t *Tree) leadsOut(name string, e *Entry) bool {
	if e.Mode&fs.ModeSymlink == 0 {
		return false
	}
	_, err := t.linkTarget(path.Dir(name), e)
	return errors.Is(err, fs.ErrInvalid)
}

// cut reports whether a segment begins at the path.
func cut(name string) bool {
	h := fnv.New32a()
	_, _ = io.WriteString(h, name) // never fails
	return h.Sum32()%segmentFiles == 0
}

// flush writes the collected files as one segment.
func (a *archiver) flush() error {
	if len(a.run) == 0 {
		return nil
	}
	s := segment{Key: a.keyOf(), Offset: a.out.n}
	if err := a.writeSegment(s.Key); err != nil {
		return err
	}
	s.Length = a.out.n - s.Offset
	a.segments, a.run = append(a.segments, s), a.run[:0]
	return nil
}

// keyOf returns the key of a segment with the collected files. It depends on their names, modes and contents.
func (a *archiver) keyOf() string {
	text := a.text[:0]
	for _, m := range a.run {
		text = strconv.AppendUint(text, uint64(m.entry.Mode), 8)
		text = append(append(append(text, ' '), m.name...), 0)
		text = append(append(text, m.entry.ID...), '\n')
	}
	a.text = text
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

func (a *archiver) writeSegment(key string) error {
	if a.from != nil {
		if s, ok := a.from.segments[key]; ok {
			n, err := io.CopyBuffer(a.out, io.NewSectionReader(a.from, s.Offset, s.Length), a.buffer)
			if err == nil && n != s.Length {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
	}
	a.zip.Reset(a.out)
	t := tar.NewWriter(a.zip)
	for _, m := range a.run {
		if err := a.writeMember(t, m); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	if err := t.Flush(); err != nil { // pads the last file; the stream continues in the next segment
		return err
	}
	return a.zip.Close()
}

func (a *archiver) writeMember(t *tar.Writer, m member) error {
	header := tar.Header{Format: tar.FormatPAX, Name: m.name, ModTime: time.Unix(0, 0)}
	if m.entry.Mode.IsDir() {
		header.Name += "/"
	}
	return writeEntry(a.ctx, t, a.content, m.entry, header)
}

// writeEntry writes an entry with its content. The header has the name and what does not depend on the entry.
func writeEntry(ctx context.Context, t *tar.Writer, content Content, e *Entry, header tar.Header) error {
	header.Mode = int64(e.Mode.Perm())
	if e.Mode.IsDir() {
		header.Typeflag = tar.TypeDir
		return t.WriteHeader(&header)
	}
	lease, err := leaseFor(ctx, content, e)
	if err != nil {
		return err
	}
	defer lease.Release()
	data, err := content.Read(e.ID)
	if err != nil {
		return err
	}
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

// leaseFor returns memory for a large file that is not in memory yet; nil for others.
func leaseFor(ctx context.Context, content Content, e *Entry) (*guard.Lease, error) {
	if _, inMemory := content.(*memory); inMemory {
		return nil, nil
	}
	size, err := content.Size(e.ID)
	if err != nil || size < largeFile { // Read returns the error
		return nil, nil
	}
	return guard.BudgetOf(ctx).Acquire(ctx, "storing a large file", 2*size)
}

// counting counts the bytes written.
type counting struct {
	w io.Writer
	n int64
}

func (c *counting) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
