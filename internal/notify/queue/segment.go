package queue

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// segment is a file of records.
type segment struct {
	base, size int64 // offset of the first record in the stream; bytes of complete records
	owned      map[string]int64
	pending    int       // records that are not acknowledged
	file       *os.File  // nil while the segment is not read or written
	unreadable time.Time // since when the disk does not return its records; zero: it does
	sealed     bool      // nothing is written to it any more
	dirty      bool      // it has records that are not synced
}

const extension = ".records"

func (s *segment) end() int64     { return s.base + s.size }
func (s *segment) writable() bool { return s.file != nil && !s.sealed }

// add counts n bytes of a complete record.
func (s *segment) add(owner string, n int64) {
	if s.owned == nil {
		s.owned = map[string]int64{}
	}
	s.size += n
	s.owned[owner] += n
}

func (s *segment) path(dir string) string {
	return filepath.Join(dir, fmt.Sprintf("%019d%s", s.base, extension))
}

func baseOf(file string) (int64, error) {
	return strconv.ParseInt(strings.TrimSuffix(file, extension), 10, 64)
}

// create creates the segment that begins at base. A file of this name has no complete record: it is left from a failure
// of the disk.
func create(dir string, base int64) (*segment, error) {
	const flags = os.O_RDWR | os.O_CREATE | os.O_EXCL
	s := &segment{base: base}
	var err error
	if s.file, err = os.OpenFile(s.path(dir), flags, 0o600); errors.Is(err, fs.ErrExist) {
		if err = os.Remove(s.path(dir)); err == nil {
			s.file, err = os.OpenFile(s.path(dir), flags, 0o600)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot create a queue segment: %w", err)
	}
	return s, nil
}

func (s *segment) close() {
	if s.file != nil {
		_ = s.file.Close() // Sync reports write errors
		s.file = nil
	}
}

// mayRecover reports whether a read that the disk refused is tried again: for a minute, unless limited otherwise.
func (s *segment) mayRecover(retry time.Duration) bool {
	if s.unreadable.IsZero() {
		s.unreadable = time.Now()
	}
	if s.sealed && !s.dirty {
		s.close() // the next read opens it again
	}
	return time.Since(s.unreadable) < cmp.Or(retry, time.Minute)
}

// readAt reads the record that begins at an offset of the stream.
func (s *segment) readAt(dir string, offset int64) (Record, error) {
	if s.file == nil {
		f, err := os.Open(s.path(dir))
		if err != nil {
			return Record{}, err
		}
		s.file, s.sealed = f, true
	}
	r, err := decode(io.NewSectionReader(s.file, offset-s.base, s.end()-offset))
	r.begin, r.end = offset, offset+headerSize+int64(len(r.Data))
	return r, err
}

// scan sets the size of the segment from its complete records, and counts those at or after an offset as pending.
func (s *segment) scan(dir string, from int64, ownerOf func([]byte) string) error {
	f, err := os.Open(s.path(dir))
	if err != nil {
		return err
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, 64<<10)
	for {
		r, err := decode(in)
		if errors.Is(err, io.EOF) || errors.Is(err, errTorn) {
			return nil
		}
		if err != nil {
			return err
		}
		if s.end() >= from {
			s.pending++
		}
		s.add(ownerOf(r.Data), headerSize+int64(len(r.Data)))
	}
}

// load opens the segments of an earlier process. They are sealed, and deleted if nothing is pending.
func (q *Queue) load() error {
	q.readOffset = readMark(q.dir)
	entries, err := os.ReadDir(q.dir)
	if err != nil {
		return fmt.Errorf("cannot read the queue directory: %w", err)
	}
	for _, e := range entries {
		base, err := baseOf(e.Name())
		if err != nil || base < 0 || !strings.HasSuffix(e.Name(), extension) {
			continue
		}
		s := &segment{base: base, sealed: true}
		if err := s.scan(q.dir, q.readOffset, q.ownerOf); err != nil {
			return fmt.Errorf("cannot read a queue segment: %w", err)
		}
		if s.pending == 0 {
			_ = os.Remove(s.path(q.dir)) // if it is left, it is ignored again
			continue
		}
		q.segments = append(q.segments, s)
	}
	return nil // in stream order, since ReadDir sorts by name
}
