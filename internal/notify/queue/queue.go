// Package queue is a queue of bytes on disk, which survives a process that is killed at any instruction.
//
// What was appended is in files of records, the segments, that are named by where they begin in the stream of
// all bytes ever appended. A small file beside them tells up to where the stream was acknowledged. So a
// record is given out again until it was acknowledged: at least once. A process that opens the queue never
// writes to a segment of another one: what that one left half written is a tail in which no record begins.
package queue

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"
	"time"
)

// Limits bound a queue on disk.
type Limits struct {
	Bytes   int64 // of all segments: beyond, the oldest segment goes
	Segment int64 // bytes from which on a segment is full
}

// DefaultLimits hold some fifty thousand events.
var DefaultLimits = Limits{Bytes: 64 << 20, Segment: 4 << 20}

// Record is what was appended at once.
type Record struct {
	Data []byte
	Time time.Time // as it was given

	begin, end int64 // where it and the next one begin in the stream
}

// Queue is a queue in a directory. One process may have it open. Many goroutines may append to it; one takes from it.
type Queue struct {
	dir    string
	limits Limits

	mu       sync.Mutex
	segments []*segment      // the oldest first, which holds what is read next; the last one may be open for more
	read     int64           // where what is read next begins in the stream; all before is acknowledged, or lost
	done     map[int64]int64 // records after it that are acknowledged already: where they end, by where they begin
	lost     int             // records that were dropped since somebody asked
	marks    *os.File        // where read is kept
	marked   bool            // marks is ahead of the disk
	files    bool            // files came since the directory was written to disk
}

// Open opens the queue of a directory, which is made if there is none.
func Open(dir string, limits Limits) (*Queue, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the directory of a queue: %w", err)
	}
	q := &Queue{dir: dir, limits: limits, done: map[int64]int64{}}
	if err := q.load(); err != nil {
		return nil, err
	}
	return q, nil
}

// Append adds a record at the end. Once it returns, the record outlives the process; see [Queue.Sync] for the
// machine. The oldest records go if there is no room.
func (q *Queue) Append(data []byte, at time.Time) error {
	if len(data) > MaxRecord {
		return fmt.Errorf("a record of a queue has %d bytes, which is more than %d", len(data), MaxRecord)
	}
	record := encode(data, at)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.makeRoom(int64(len(record)))
	last, err := q.open(int64(len(record)))
	if err != nil {
		return err
	}
	if _, err := last.file.WriteAt(record, last.size); err != nil {
		q.retire() // it may end in a part of the record
		return fmt.Errorf("cannot write to a queue: %w", err)
	}
	last.size += int64(len(record))
	last.left++
	last.dirty = true
	return nil
}

// makeRoom drops the oldest segments until n more bytes are within the limit.
func (q *Queue) makeRoom(n int64) {
	var size int64
	for _, s := range q.segments {
		size += s.size
	}
	for size+n > q.limits.Bytes && len(q.segments) > 0 {
		oldest := q.segments[0]
		size -= oldest.size
		q.lost += oldest.left
		q.pass(oldest.end())
		q.dropOldest()
		_ = q.mark() // else the mark is behind, at files that are gone
	}
}

// open returns the segment that n more bytes go to.
func (q *Queue) open(n int64) (*segment, error) {
	end := q.read
	if len(q.segments) > 0 {
		last := q.segments[len(q.segments)-1]
		if last.writable() && (last.size == 0 || last.size+n <= q.limits.Segment) {
			return last, nil
		}
		end = max(end, last.end())
		q.retire()
	}
	s, err := create(q.dir, end)
	if err != nil {
		return nil, err
	}
	q.segments = append(q.segments, s)
	q.files = true
	return s, nil
}

// retire ends the last segment. One that is empty goes, as the next one has its name.
func (q *Queue) retire() {
	i := len(q.segments) - 1
	if i < 0 {
		return
	}
	last := q.segments[i]
	last.full = true
	if last.size == 0 {
		last.close()
		_ = os.Remove(last.path(q.dir))
		q.segments = q.segments[:i]
	}
}

// Next returns the oldest record that was not acknowledged, and whether there is one. What is damaged is
// skipped, and counts as lost.
func (q *Queue) Next() (Record, bool) {
	if few := q.NextFew(1); len(few) > 0 {
		return few[0], true
	}
	return Record{}, false
}

// NextFew returns the oldest records that were not acknowledged, the oldest first: one at least if there is
// one, and most at most.
func (q *Queue) NextFew(most int) []Record {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.segments) > 0 {
		oldest := q.segments[0]
		q.read = max(q.read, oldest.base)
		if oldest.left > 0 {
			if few := q.few(oldest, most); len(few) > 0 {
				return few
			}
			q.lost += oldest.left
			oldest.left, oldest.full = 0, true
		}
		q.pass(oldest.end())
		if oldest.writable() {
			break // all of it was read, and more may come
		}
		q.dropOldest()
		_ = q.mark()
	}
	return nil
}

// few reads records of the oldest segment, up to one that is damaged.
func (q *Queue) few(oldest *segment, most int) (all []Record) {
	for at := q.read; at < oldest.end() && len(all) < most; {
		if end, ok := q.done[at]; ok {
			at = end
			continue
		}
		r, err := oldest.at(q.dir, at)
		if err != nil {
			break
		}
		all = append(all, r)
		at = r.end
	}
	return all
}

// pass goes on to an offset of the stream, whatever was acknowledged before it.
func (q *Queue) pass(to int64) {
	q.read = to
	maps.DeleteFunc(q.done, func(begin, _ int64) bool { return begin < to })
}

// Ack says that a record that Next or NextFew returned is dealt with. One that stands behind others comes
// again after a restart unless those were acknowledged as well.
func (q *Queue) Ack(r Record) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, twice := q.done[r.begin]; twice || len(q.segments) == 0 || r.begin < q.read || r.end > q.segments[0].end() {
		return nil // or it was dropped meanwhile
	}
	q.segments[0].left--
	q.done[r.begin] = r.end
	if r.begin != q.read {
		return nil
	}
	for end, ok := q.done[q.read]; ok; end, ok = q.done[q.read] {
		q.pass(end)
	}
	return q.mark()
}

// Waiting tells how many records were not acknowledged.
func (q *Queue) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for _, s := range q.segments {
		n += s.left
	}
	return n
}

// Lost tells how many records were dropped unread since it was asked last.
func (q *Queue) Lost() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.lost
	q.lost = 0
	return n
}

// Sync writes to the disk what was appended and acknowledged, so that it outlives the machine. It holds up no
// other call.
func (q *Queue) Sync() error {
	q.mu.Lock()
	var files []*os.File
	for _, s := range q.segments {
		if s.dirty && s.file != nil {
			files = append(files, s.file)
			s.dirty = false
		}
	}
	if q.marked {
		files = append(files, q.marks)
		q.marked = false
	}
	directory := q.files
	q.files = false
	q.mu.Unlock()

	var errs []error
	for _, f := range files {
		if err := f.Sync(); !errors.Is(err, os.ErrClosed) { // closed: the segment is gone
			errs = append(errs, err)
		}
	}
	if directory {
		errs = append(errs, syncDirectory(q.dir))
	}
	q.closeIdle()
	return errors.Join(errs...)
}

// closeIdle closes the files of segments that are full and not read yet.
func (q *Queue) closeIdle() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, s := range q.segments {
		if i > 0 && s.full && !s.dirty {
			s.close()
		}
	}
}

// Close writes all to the disk and closes the files. What is appended after it is lost with the machine, but
// not with the process.
func (q *Queue) Close() error {
	err := q.Sync()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.retire()
	for _, s := range q.segments {
		s.close()
	}
	if q.marks != nil {
		err = errors.Join(err, q.marks.Close())
		q.marks = nil
	}
	return err
}

// Clear drops all that waits.
func (q *Queue) Clear() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.segments) > 0 {
		q.pass(q.segments[0].end())
		q.dropOldest()
	}
	return q.mark()
}

// Remove closes the queue and takes it off the disk, with all that waits in it. It is not to be used any more.
func (q *Queue) Remove() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.segments) > 0 { // before the mark: what was acknowledged must not come again
		q.dropOldest()
	}
	if q.marks != nil {
		_ = q.marks.Close()
		q.marks = nil
	}
	q.files, q.marked = false, false
	return os.RemoveAll(q.dir)
}

// dropOldest removes the oldest segment. A file that cannot be removed is before the mark, so that it is only
// in the way.
func (q *Queue) dropOldest() {
	q.segments[0].close()
	_ = os.Remove(q.segments[0].path(q.dir))
	q.segments = q.segments[1:]
}
