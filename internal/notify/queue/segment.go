package queue

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// A record is a header, and the data: four bytes of its length, four of a checksum over all that follows,
// eight of its time in nanoseconds.
const (
	header    = 16
	MaxRecord = 1 << 20 // bytes of data
)

var (
	checksums = crc32.MakeTable(crc32.Castagnoli)
	errTorn   = errors.New("the record is not whole")
)

func encode(data []byte, at time.Time) []byte {
	b := make([]byte, header, header+len(data))
	binary.BigEndian.PutUint32(b, uint32(len(data)))
	binary.BigEndian.PutUint64(b[8:], uint64(at.UnixNano()))
	b = append(b, data...)
	binary.BigEndian.PutUint32(b[4:], crc32.Checksum(b[8:], checksums))
	return b
}

// decode reads one record. The error is io.EOF at the end, and errTorn if what follows is no record.
func decode(r io.Reader) (Record, error) {
	var head [header]byte
	switch _, err := io.ReadFull(r, head[:]); {
	case errors.Is(err, io.EOF):
		return Record{}, io.EOF
	case errors.Is(err, io.ErrUnexpectedEOF):
		return Record{}, errTorn
	case err != nil:
		return Record{}, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > MaxRecord {
		return Record{}, errTorn
	}
	data := make([]byte, n)
	if _, err := io.ReadFull(r, data); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return Record{}, errTorn
	} else if err != nil {
		return Record{}, err
	}
	if crc32.Update(crc32.Checksum(head[8:], checksums), checksums, data) != binary.BigEndian.Uint32(head[4:]) {
		return Record{}, errTorn
	}
	return Record{Data: data, Time: time.Unix(0, int64(binary.BigEndian.Uint64(head[8:])))}, nil
}

// segment is a file of records.
type segment struct {
	base, size int64    // where it begins in the stream; bytes of whole records
	left       int      // records that were not acknowledged
	file       *os.File // nil while nobody reads or writes it
	full       bool     // nothing is written to it any more
	dirty      bool     // it is ahead of the disk
}

const extension = ".records"

func (s *segment) end() int64     { return s.base + s.size }
func (s *segment) writable() bool { return s.file != nil && !s.full }
func (s *segment) path(dir string) string {
	return filepath.Join(dir, fmt.Sprintf("%019d%s", s.base, extension))
}
func baseOf(file string) (int64, error) {
	return strconv.ParseInt(strings.TrimSuffix(file, extension), 10, 64)
}

// create makes the segment that begins at base.
func create(dir string, base int64) (*segment, error) {
	s := &segment{base: base}
	var err error
	if s.file, err = os.OpenFile(s.path(dir), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		return nil, fmt.Errorf("cannot make a segment of a queue: %w", err)
	}
	return s, nil
}

func (s *segment) close() {
	if s.file != nil {
		_ = s.file.Close() // Sync tells of what was not written
		s.file = nil
	}
}

// at reads the record that begins at an offset of the stream.
func (s *segment) at(dir string, offset int64) (Record, error) {
	if s.file == nil {
		f, err := os.Open(s.path(dir))
		if err != nil {
			return Record{}, err
		}
		s.file, s.full = f, true
	}
	r, err := decode(io.NewSectionReader(s.file, offset-s.base, s.end()-offset))
	r.begin, r.end = offset, offset+header+int64(len(r.Data))
	return r, err
}

// scan counts the whole records of a file, and those that begin at from or after it.
func (s *segment) scan(dir string, from int64) error {
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
			s.left++
		}
		s.size += header + int64(len(r.Data))
	}
}

// load finds what an earlier process left.
func (q *Queue) load() error {
	q.read = readMark(q.dir)
	entries, err := os.ReadDir(q.dir)
	if err != nil {
		return fmt.Errorf("cannot read the directory of a queue: %w", err)
	}
	for _, e := range entries {
		base, err := baseOf(e.Name())
		if err != nil || base < 0 || !strings.HasSuffix(e.Name(), extension) {
			continue
		}
		s := &segment{base: base, full: true}
		if err := s.scan(q.dir, q.read); err != nil {
			return fmt.Errorf("cannot read a segment of a queue: %w", err)
		}
		if s.left == 0 {
			if err := os.Remove(s.path(q.dir)); err != nil {
				return fmt.Errorf("cannot remove a segment of a queue: %w", err)
			}
			continue
		}
		q.segments = append(q.segments, s)
	}
	return nil // sorted, as their names are
}

// The mark is eight bytes of an offset, and four of their checksum: it is written at once, and one that is
// torn by the machine is as none.
const markFile = "acknowledged"

func readMark(dir string) int64 {
	b, err := os.ReadFile(filepath.Join(dir, markFile))
	if err != nil || len(b) != 12 || crc32.Checksum(b[:8], checksums) != binary.BigEndian.Uint32(b[8:]) {
		return 0
	}
	return max(0, int64(binary.BigEndian.Uint64(b)))
}

// mark keeps where the queue is read.
func (q *Queue) mark() error {
	if q.marks == nil {
		f, err := os.OpenFile(filepath.Join(q.dir, markFile), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return fmt.Errorf("cannot keep what of a queue is done: %w", err)
		}
		q.marks, q.files = f, true
	}
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 12), uint64(q.read))
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, checksums))
	if _, err := q.marks.WriteAt(b, 0); err != nil {
		return fmt.Errorf("cannot keep what of a queue is done: %w", err)
	}
	q.marked = true
	return nil
}

func syncDirectory(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
