package artifact

import (
	"compress/gzip"
	"context"
	"errors"
	"hash/fnv"
	"io"
	"io/fs"
	"path"
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

// writeArchive writes the tree to w and returns the segments of the archive. From may be nil.
func writeArchive(ctx context.Context, w io.Writer, t *Tree, from *previous) ([]segment, error) {
	a := newArchiver(ctx, w, t.content, from)
	var run []member // the files of the current segment
	err := t.Walk(func(name string, e *Entry) error {
		if t.leadsOut(name, e) {
			return nil // must not be in the archive
		}
		if cut(name) && len(run) > 0 {
			if err := a.add(run); err != nil {
				return err
			}
			run = nil
		}
		run = append(run, member{name, e})
		return nil
	})
	if err == nil && len(run) > 0 {
		err = a.add(run)
	}
	if failed := a.wait(); failed != nil {
		err = failed
	}
	if err != nil {
		return nil, err
	}
	z := gzip.NewWriter(a.out)
	_, err = z.Write(make([]byte, 1024)) // the end of a tar stream: two blocks of zeros
	return a.segments, errors.Join(err, z.Close())
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
