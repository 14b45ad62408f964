package delivery

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/internal/notify/queue"
)

// providersDir is the directory of the queues of providers, below that of the dispatcher.
const providersDir = "providers"

// isDiskFailure reports whether the operating system refused an operation: the disk is full, read-only or fails, or
// too many files are open. It may pass without anything being lost.
func isDiskFailure(err error) bool {
	var errno syscall.Errno
	return errors.As(err, &errno)
}

// lazyQueue is a queue that is opened at its first use. If that fails, the next use tries again. It is safe for
// concurrent use; only one goroutine may call next.
type lazyQueue struct {
	dir    string
	limits queue.Limits

	mu    sync.Mutex
	queue *queue.Queue
}

// newOutbox returns the queue of the deliveries of a provider.
func newOutbox(dir string, provider types.NamespacedName, limits queue.Limits) *lazyQueue {
	return &lazyQueue{limits: limits,
		dir: filepath.Join(dir, providersDir, filepath.Base(provider.Namespace), filepath.Base(provider.Name))}
}

// open returns the queue, and opens it if it is not open.
func (l *lazyQueue) open() (*queue.Queue, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queue == nil {
		q, err := queue.Open(l.dir, l.limits)
		if err != nil {
			return nil, err
		}
		l.queue = q
	}
	return l.queue, nil
}

// append adds a record behind all others. It returns the queue.
func (l *lazyQueue) append(data []byte, at time.Time) (*queue.Queue, error) {
	q, err := l.open()
	if err != nil {
		return nil, err
	}
	return q, q.Append(data, at)
}

// opened returns the queue, nil if it is not open.
func (l *lazyQueue) opened() *queue.Queue {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queue
}

// next returns up to limit of the oldest records, and the queue that has them.
func (l *lazyQueue) next(limit int) (*queue.Queue, []queue.Record) {
	q := l.opened()
	if q == nil {
		return nil, nil
	}
	return q, q.NextBatch(limit)
}

// reopen opens the queue if it exists on disk and is not open, because it is that of an earlier process or after a
// failure.
func (l *lazyQueue) reopen() error {
	if _, err := os.Lstat(l.dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	_, err := l.open()
	return err
}

// len returns the number of records.
func (l *lazyQueue) len() int {
	if q := l.opened(); q != nil {
		return q.Len()
	}
	return 0
}

// size returns the bytes of the queue on disk.
func (l *lazyQueue) size() int64 {
	if q := l.opened(); q != nil {
		return q.Size()
	}
	return 0
}

// takeDropped returns the number of records that were dropped unread since the last call.
func (l *lazyQueue) takeDropped() int {
	if q := l.opened(); q != nil {
		return q.TakeDropped()
	}
	return 0
}

func (l *lazyQueue) clear() error {
	if q := l.opened(); q != nil {
		return q.Clear()
	}
	return nil
}

func (l *lazyQueue) close() error {
	if q := l.opened(); q != nil {
		return q.Close()
	}
	return nil
}

// remove deletes the queue, which must be empty. Its next use opens a new one.
func (l *lazyQueue) remove() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queue == nil {
		return nil
	}
	q := l.queue
	l.queue = nil
	return q.Remove()
}
