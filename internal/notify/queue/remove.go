package queue

import (
	"errors"
	"os"
	"path/filepath"
)

// Remove closes the queue and deletes its directory with all records. The queue must not be used afterwards. If a
// segment cannot be deleted, the mark stays, so that acknowledged records do not return.
func (q *Queue) Remove() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.segments) > 0 {
		q.dropOldest()
	}
	if q.mark != nil {
		_ = q.mark.Close()
		q.mark = nil
	}
	q.dirDirty, q.markDirty = false, false
	left, err := filepath.Glob(filepath.Join(q.dir, "*"+extension))
	for _, name := range left {
		err = errors.Join(err, os.Remove(name))
	}
	if err != nil {
		return err
	}
	return os.RemoveAll(q.dir)
}

// dropOldest deletes the oldest segment. A file that cannot be deleted is ignored later, since it is before the mark.
func (q *Queue) dropOldest() {
	q.segments[0].close()
	_ = os.Remove(q.segments[0].path(q.dir))
	q.segments = q.segments[1:]
}
