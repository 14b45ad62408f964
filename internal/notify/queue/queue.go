// Package queue is a first-in, first-out queue of byte records on disk. It survives a process that is killed
// at any instruction.
//
// Records are appended to segment files. A small file, the acknowledgement mark, holds the position up to which
// all records are acknowledged. A record is returned until it is acknowledged, so delivery is at least once.
// docs/design/event-queue.md describes the format and the guarantees.
package queue

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"sync"
	"time"
)

// Limits bound a queue on disk.
type Limits struct {
	Bytes   int64 // total size of all segments; above it, the oldest segment is dropped
	Segment int64 // size of one segment; above it, a new segment is started
	// Owner returns whom a record counts for. If several have records, each may use at most as much of the queue as it
	// leaves free. Nil: the queue is not divided.
	Owner func(data []byte) string
	// ReadRetry is how long records that the disk does not return are kept, before they are dropped; 0: a minute.
	ReadRetry time.Duration
}

// ErrShare is the error of a record whose owner has used up its share, while others have records in the queue.
var ErrShare = errors.New("the share of its namespace in the queue is used up")

// DefaultLimits hold about fifty thousand events.
var DefaultLimits = Limits{Bytes: 64 << 20, Segment: 4 << 20}

// Record is one appended value.
type Record struct {
	Data []byte
	Time time.Time // the time passed to Append

	begin, end int64 // offsets in the stream of this record and of the next one
}

// Queue is a queue in a directory. Only one process may have it open. Any number of goroutines may append;
// only one goroutine may read.
type Queue struct {
	dir    string
	limits Limits

	mu         sync.Mutex
	segments   []*segment      // oldest first; only the last one may be writable
	readOffset int64           // stream offset of the next record to read; all before it is acknowledged or dropped
	acked      map[int64]int64 // records after readOffset that are acknowledged: begin to end offset
	dropped    int             // records dropped since the last call of TakeDropped
	mark       *os.File        // stores readOffset; nil until the first acknowledgement
	markDirty  bool            // mark has changes that are not synced
	dirDirty   bool            // files were created since the directory was synced
}

// Open opens the queue in a directory and creates the directory if it does not exist.
func Open(dir string, limits Limits) (*Queue, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot create the queue directory: %w", err)
	}
	q := &Queue{dir: dir, limits: limits, acked: map[int64]int64{}}
	if err := q.load(); err != nil {
		return nil, err
	}
	return q, nil
}

// Append adds a record of at most [MaxRecord] bytes at the end. After it returns, the record survives the
// process; it survives the machine after the next [Queue.Sync]. If the queue is full, the oldest
// records are dropped. The error is [ErrShare] if the record would take the room of others.
func (q *Queue) Append(data []byte, at time.Time) error {
	if len(data) > MaxRecord {
		return fmt.Errorf("the record has %d bytes; the maximum is %d", len(data), MaxRecord)
	}
	record := encode(data, at)
	q.mu.Lock()
	defer q.mu.Unlock()
	owner := q.ownerOf(data)
	if q.exceedsShare(owner, int64(len(record))) {
		return ErrShare
	}
	q.makeRoom(int64(len(record)))
	last, err := q.writableSegment(int64(len(record)))
	if err != nil {
		return err
	}
	if _, err := last.file.WriteAt(record, last.size); err != nil {
		q.sealLast() // it may end in a partial record
		return fmt.Errorf("cannot write to the queue: %w", err)
	}
	last.add(owner, int64(len(record)))
	last.pending++
	last.dirty = true
	return nil
}

// Size returns the total size of all segments in bytes.
func (q *Queue) Size() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.size()
}

func (q *Queue) size() (total int64) {
	for _, s := range q.segments {
		total += s.size
	}
	return total
}

func (q *Queue) ownerOf(data []byte) string {
	if q.limits.Owner == nil {
		return ""
	}
	return q.limits.Owner(data)
}

// exceedsShare reports whether n more bytes of an owner would leave less free than the owner uses, while others have
// records.
func (q *Queue) exceedsShare(owner string, n int64) bool {
	if q.limits.Owner == nil {
		return false
	}
	owned := int64(0)
	for _, s := range q.segments {
		owned += s.owned[owner]
	}
	others := q.size() - owned
	return others > 0 && owned+n > (q.limits.Bytes-others)/2
}

// makeRoom drops the oldest segments until n more bytes fit into the limit.
func (q *Queue) makeRoom(n int64) {
	size := q.size()
	for size+n > q.limits.Bytes && len(q.segments) > 0 {
		oldest := q.segments[0]
		size -= oldest.size
		q.dropped += oldest.pending
		q.advance(oldest.end())
		q.dropOldest()
		_ = q.writeMark() // an old mark does no harm: it points to deleted segments
	}
}

// writableSegment returns the segment to which n more bytes are written.
func (q *Queue) writableSegment(n int64) (*segment, error) {
	end := q.readOffset
	if len(q.segments) > 0 {
		last := q.segments[len(q.segments)-1]
		if last.writable() && (last.size == 0 || last.size+n <= q.limits.Segment) {
			return last, nil
		}
		end = max(end, last.end())
		q.sealLast()
	}
	s, err := create(q.dir, end)
	if err != nil {
		return nil, err
	}
	q.segments = append(q.segments, s)
	q.dirDirty = true
	return s, nil
}

// sealLast ends writing to the last segment. An empty segment is removed, since the next one has the same name.
func (q *Queue) sealLast() {
	i := len(q.segments) - 1
	if i < 0 {
		return
	}
	last := q.segments[i]
	last.sealed = true
	if last.size == 0 {
		last.close()
		_ = os.Remove(last.path(q.dir))
		q.segments = q.segments[:i]
	}
}

// Next returns the oldest record that is not acknowledged, and whether there is one. Damaged records are
// skipped and counted as dropped. Records that the disk does not return are kept for a while: call it again later.
func (q *Queue) Next() (Record, bool) {
	if batch := q.NextBatch(1); len(batch) > 0 {
		return batch[0], true
	}
	return Record{}, false
}

// NextBatch returns up to limit of the oldest records that are not acknowledged, oldest first. The batch is
// empty only if there is no such record, or the disk does not return it.
func (q *Queue) NextBatch(limit int) []Record {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.segments) > 0 {
		oldest := q.segments[0]
		q.readOffset = max(q.readOffset, oldest.base)
		if oldest.pending > 0 {
			batch, err := q.readBatch(oldest, limit)
			if len(batch) > 0 || err != nil && oldest.mayRecover(q.limits.ReadRetry) {
				return batch
			}
			q.dropped += oldest.pending
			oldest.pending, oldest.sealed = 0, true
		}
		q.advance(oldest.end())
		if oldest.writable() {
			break // everything is read, and more records may be appended
		}
		q.dropOldest()
		_ = q.writeMark()
	}
	return nil
}

// readBatch reads records of the oldest segment up to the first damaged one. The error is of the disk.
func (q *Queue) readBatch(oldest *segment, limit int) (batch []Record, err error) {
	for offset := q.readOffset; offset < oldest.end() && len(batch) < limit; {
		if end, ok := q.acked[offset]; ok {
			offset = end
			continue
		}
		r, err := oldest.readAt(q.dir, offset)
		if errors.Is(err, errTorn) || errors.Is(err, io.EOF) || errors.Is(err, fs.ErrNotExist) {
			return batch, nil
		}
		if err != nil {
			return batch, err
		}
		oldest.unreadable = time.Time{}
		batch = append(batch, r)
		offset = r.end
	}
	return batch, nil
}

// advance moves readOffset forward and forgets the acknowledgements before it.
func (q *Queue) advance(offset int64) {
	q.readOffset = offset
	maps.DeleteFunc(q.acked, func(begin, _ int64) bool { return begin < offset })
}

// Ack acknowledges a record that Next or NextBatch returned. A record that is acknowledged before an older one
// is returned again after a restart unless the older one is acknowledged as well.
func (q *Queue) Ack(r Record) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, isAcked := q.acked[r.begin]
	if isAcked || len(q.segments) == 0 || r.begin < q.readOffset || r.end > q.segments[0].end() {
		return nil // acknowledged before, or dropped
	}
	q.segments[0].pending--
	q.acked[r.begin] = r.end
	if r.begin != q.readOffset {
		return nil
	}
	for end, ok := q.acked[q.readOffset]; ok; end, ok = q.acked[q.readOffset] {
		q.advance(end)
	}
	return q.writeMark()
}

// Len returns the number of records that are not acknowledged.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for _, s := range q.segments {
		n += s.pending
	}
	return n
}

// TakeDropped returns the number of records that were dropped unread since the last call.
func (q *Queue) TakeDropped() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.dropped
	q.dropped = 0
	return n
}

// Sync flushes records and acknowledgements to the disk, so that they survive the machine. It does not block
// other calls while it waits for the disk.
func (q *Queue) Sync() error {
	q.mu.Lock()
	var files []*os.File
	for _, s := range q.segments {
		if s.dirty && s.file != nil {
			files = append(files, s.file)
			s.dirty = false
		}
	}
	if q.markDirty {
		files = append(files, q.mark)
		q.markDirty = false
	}
	directory := q.dirDirty
	q.dirDirty = false
	q.mu.Unlock()

	var errs []error
	for _, f := range files {
		if err := f.Sync(); !errors.Is(err, os.ErrClosed) { // closed: the segment was dropped
			errs = append(errs, err)
		}
	}
	if directory {
		errs = append(errs, syncDirectory(q.dir))
	}
	q.closeIdle()
	return errors.Join(errs...)
}

// closeIdle closes the files of sealed segments that are not read yet.
func (q *Queue) closeIdle() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, s := range q.segments {
		if i > 0 && s.sealed && !s.dirty {
			s.close()
		}
	}
}

// Close flushes everything to the disk and closes the files. Records may still be appended after it: they
// survive the process, but not the machine.
func (q *Queue) Close() error {
	err := q.Sync()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sealLast()
	for _, s := range q.segments {
		s.close()
	}
	if q.mark != nil {
		err = errors.Join(err, q.mark.Close())
		q.mark = nil
	}
	return err
}

// Clear drops all records.
func (q *Queue) Clear() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.segments) > 0 {
		q.advance(q.segments[0].end())
		q.dropOldest()
	}
	return q.writeMark()
}
