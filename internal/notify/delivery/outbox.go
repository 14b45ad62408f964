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

// of returns what do returns of the queue, and the zero value if it is not open.
func of[T any](l *lazyQueue, do func(*queue.Queue) T) (result T) {
	if q := l.opened(); q != nil {
		result = do(q)
	}
	return result
}

// next returns up to limit of the oldest records.
func (l *lazyQueue) next(limit int) []queue.Record {
	return of(l, func(q *queue.Queue) []queue.Record { return q.NextBatch(limit) })
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

func (l *lazyQueue) len() int     { return of(l, (*queue.Queue).Len) }
func (l *lazyQueue) size() int64  { return of(l, (*queue.Queue).Size) }
func (l *lazyQueue) clear() error { return of(l, (*queue.Queue).Clear) }
func (l *lazyQueue) close() error { return of(l, (*queue.Queue).Close) }

// takeDropped returns the number of records that were dropped unread since the last call.
func (l *lazyQueue) takeDropped() int { return of(l, (*queue.Queue).TakeDropped) }

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
