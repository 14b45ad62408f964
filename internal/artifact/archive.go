package artifact

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"path"
	"time"
)

const (
	// segmentFiles is how many files share a segment on average. Boundaries follow from the paths alone.
	segmentFiles = 64
	// Limits of an archive that is read.
	maxArchiveBytes   = 1 << 30
	maxArchiveEntries = 1_000_000
)

// An archive is a tar stream, compressed in segments: each is a gzip member of its own, and gzip readers take the
// members as one stream (RFC 1952, 2.2). A segment is a run of files in the order of their paths, cut where the hash of a
// path says so; the same files give the same bytes, whatever stands around them. So an archive is a function of its tree
// alone, and one that differs in a file can be written from another by copying all segments but one.

// segment is where a run of files lies in an archive.
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

// member is a file on its way into an archive.
type member struct {
	name  string
	entry *Entry
}

// writeArchive writes the tree to w and returns the segments that it is made of. From may be nil.
func writeArchive(w io.Writer, t *Tree, from *previous) ([]segment, error) {
	out := &counting{w: w}
	var segments []segment
	var run []member
	flush := func() error {
		if len(run) == 0 {
			return nil
		}
		s := segment{Key: keyOf(run), Offset: out.n}
		if err := writeSegment(out, t.content, run, s.Key, from); err != nil {
			return err
		}
		s.Length = out.n - s.Offset
		segments, run = append(segments, s), run[:0]
		return nil
	}
	err := t.Walk(func(name string, e *Entry) error {
		if e.Mode&fs.ModeSymlink != 0 {
			if _, err := t.lookup("archive", name, true); err != nil {
				return nil // a link that leads out or nowhere is left out: nobody could follow it
			}
		}
		if cut(name) {
			if err := flush(); err != nil {
				return err
			}
		}
		run = append(run, member{name, e})
		return nil
	})
	if err := errors.Join(err, flush()); err != nil {
		return nil, err
	}
	z := gzip.NewWriter(out)
	_, err = z.Write(make([]byte, 1024)) // the end of a tar stream: two blocks of zeros
	return segments, errors.Join(err, z.Close())
}

// cut tells whether a segment begins at the path.
func cut(name string) bool {
	h := fnv.New32a()
	_, _ = io.WriteString(h, name) // never fails
	return h.Sum32()%segmentFiles == 0
}

func keyOf(run []member) string {
	h := sha256.New()
	for _, m := range run {
		fmt.Fprintf(h, "%o %s\x00%s\n", uint32(m.entry.Mode), m.name, m.entry.ID)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func writeSegment(w io.Writer, c Content, run []member, key string, from *previous) error {
	if from != nil {
		if s, ok := from.segments[key]; ok {
			_, err := io.Copy(w, io.NewSectionReader(from, s.Offset, s.Length))
			return err
		}
	}
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	for _, m := range run {
		data, err := c.Read(m.entry.ID)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		header := &tar.Header{
			Format: tar.FormatPAX, Typeflag: tar.TypeReg, Name: m.name, Size: int64(len(data)),
			Mode: int64(m.entry.Mode.Perm()), ModTime: time.Unix(0, 0),
		}
		if m.entry.Mode&fs.ModeSymlink != 0 {
			header.Typeflag, header.Linkname, header.Size, data = tar.TypeSymlink, string(data), 0, nil
		}
		if err := t.WriteHeader(header); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		if _, err := t.Write(data); err != nil {
			return err
		}
	}
	if err := t.Flush(); err != nil { // pads the last file; the stream goes on in the next segment
		return err
	}
	return z.Close()
}

// counting counts what is written.
type counting struct {
	w io.Writer
	n int64
}

func (c *counting) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// ReadArchive reads a .tar.gz into a tree in memory. Entries that lead out of the root, devices, and archives beyond the
// bounds are refused: nothing of such an archive is used.
func ReadArchive(r io.Reader) (*Tree, error) {
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, err
	}
	files, left := map[string]file{}, int64(maxArchiveBytes)
	t := tar.NewReader(z)
	for n := 0; ; n++ {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return newMemoryTree(files), nil
		}
		if err != nil {
			return nil, err
		}
		if n >= maxArchiveEntries {
			return nil, fmt.Errorf("the archive has more than %d entries", maxArchiveEntries)
		}
		name := path.Clean(h.Name)
		if !fs.ValidPath(name) {
			return nil, fmt.Errorf("the archive's entry %q leads out of it", h.Name)
		}
		switch h.Typeflag {
		case tar.TypeDir:
		case tar.TypeReg:
			if left -= h.Size; left < 0 || h.Size < 0 {
				return nil, fmt.Errorf("the archive unpacks to more than %d MiB", maxArchiveBytes>>20)
			}
			data, err := io.ReadAll(t)
			if err != nil {
				return nil, err
			}
			mode := fs.FileMode(0o644)
			if h.Mode&0o111 != 0 {
				mode = 0o755
			}
			files[name] = file{mode, data}
		case tar.TypeSymlink:
			if !fs.ValidPath(path.Join(path.Dir(name), h.Linkname)) || path.IsAbs(h.Linkname) {
				return nil, fmt.Errorf("the archive's symlink %q leads out of it", h.Name)
			}
			files[name] = file{fs.ModeSymlink | 0o777, []byte(h.Linkname)}
		default:
			return nil, fmt.Errorf("the archive's entry %q is of type %q: only files, directories and symlinks are allowed", h.Name, h.Typeflag)
		}
	}
}
