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

// Directories of the queues of providers, below the directory of the dispatcher.
const (
	providersDir = "providers"
	spareDir     = "spare"
)

// outbox holds the deliveries of a provider in a queue, and in a second queue in another directory while the first
// cannot be written. So a failure in the directory of a provider neither loses its deliveries nor delays other
// providers. It is safe for concurrent use; only one goroutine may call next.
type outbox struct {
	provider types.NamespacedName
	queues   [2]lazyQueue // the second one is the spare
	logSpare sync.Once
}

// isDiskFailure reports whether the operating system refused an operation: the disk is full, read-only or fails, or
// too many files are open. It may pass without anything being lost.
func isDiskFailure(err error) bool {
	var errno syscall.Errno
	return errors.As(err, &errno)
}

// lazyQueue is a queue that is opened at its first use. If that fails, the next use tries again.
type lazyQueue struct {
	dir    string
	limits queue.Limits

	mu    sync.Mutex
	queue *queue.Queue
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

// remove deletes the queue. Its next use opens a new one.
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

func newOutbox(dir string, provider types.NamespacedName, limits queue.Limits) *outbox {
	o := &outbox{provider: provider}
	for i, d := range []string{providersDir, spareDir} {
		o.queues[i].limits = limits
		o.queues[i].dir = filepath.Join(dir, d, filepath.Base(provider.Namespace), filepath.Base(provider.Name))
	}
	return o
}

// append adds a delivery behind all others. It returns the queue that has it.
func (o *outbox) append(data []byte, at time.Time) (*queue.Queue, error) {
	first, second := &o.queues[0], &o.queues[1]
	if spare := second.opened(); spare != nil && spare.Len() > 0 {
		first, second = second, first // behind deliveries in the spare
	}
	q, err := first.append(data, at)
	if !isDiskFailure(err) {
		return q, err
	}
	q, errSecond := second.append(data, at)
	if isDiskFailure(errSecond) {
		return nil, err // the disk fails as a whole
	}
	o.logSpare.Do(func() {
		logger().Error(err, "cannot write a queue of a Provider; its notifications are stored in "+
			"another one. Check the disk of --storage-path", "provider", o.provider.String(), "directory", second.dir)
	})
	return q, errSecond
}

// next returns up to limit of the oldest deliveries, and the queue that has them.
func (o *outbox) next(limit int) (*queue.Queue, []queue.Record) {
	for i := range o.queues {
		q := o.queues[i].opened()
		if q == nil {
			continue
		}
		if records := q.NextBatch(limit); len(records) > 0 {
			return q, records
		}
	}
	return nil, nil
}

// reopen opens queues that exist on disk and are not open, of an earlier process or after a failure.
func (o *outbox) reopen() (err error) {
	for i := range o.queues {
		l := &o.queues[i]
		if _, statErr := os.Lstat(l.dir); l.opened() == nil && !errors.Is(statErr, fs.ErrNotExist) {
			_, openErr := l.open()
			err = errors.Join(err, openErr)
		}
	}
	return err
}

// each calls do for the open queues, and joins the errors.
func (o *outbox) each(do func(q *queue.Queue) error) (err error) {
	for i := range o.queues {
		if q := o.queues[i].opened(); q != nil {
			err = errors.Join(err, do(q))
		}
	}
	return err
}

// sum returns the sum of a number over the open queues.
func (o *outbox) sum(of func(q *queue.Queue) int64) (total int64) {
	_ = o.each(func(q *queue.Queue) error {
		total += of(q)
		return nil
	})
	return total
}

func (o *outbox) len() int    { return int(o.sum(func(q *queue.Queue) int64 { return int64(q.Len()) })) }
func (o *outbox) size() int64 { return o.sum((*queue.Queue).Size) }

// takeDropped returns the number of deliveries that were dropped unread since the last call.
func (o *outbox) takeDropped() int {
	return int(o.sum(func(q *queue.Queue) int64 { return int64(q.TakeDropped()) }))
}

func (o *outbox) clear() error { return o.each((*queue.Queue).Clear) }
func (o *outbox) close() error { return o.each((*queue.Queue).Close) }

// remove deletes both queues, which must be empty.
func (o *outbox) remove() error { return errors.Join(o.queues[0].remove(), o.queues[1].remove()) }
