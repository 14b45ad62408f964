package delivery

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-gitops/sluice/internal/notify/queue"
)

// flusher syncs changed queues to the disk together, after a short delay, so that no caller waits for the disk.
type flusher struct {
	mu      sync.Mutex
	changed map[*queue.Queue]bool
	wake    chan struct{}
}

func newFlusher() *flusher {
	return &flusher{changed: map[*queue.Queue]bool{}, wake: make(chan struct{}, 1)}
}

// add schedules a sync of a queue.
func (f *flusher) add(q *queue.Queue) {
	f.mu.Lock()
	f.changed[q] = true
	f.mu.Unlock()
	signal(f.wake)
}

// run syncs queues, an interval after they changed, until ctx is done.
func (f *flusher) run(ctx context.Context, c clock.Clock, interval time.Duration) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
		}
		select {
		case <-ctx.Done():
			return
		case <-c.After(interval):
		}
		f.mu.Lock()
		queues := f.changed
		f.changed = map[*queue.Queue]bool{}
		f.mu.Unlock()
		for q := range queues {
			if err := q.Sync(); err != nil {
				log.FromContext(ctx).Error(err, "cannot sync an event queue to disk, a machine crash may lose events")
			}
		}
	}
}
