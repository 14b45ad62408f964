package delivery

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-gitops/sluice/internal/notify/queue"
)

// behind are the queues of which not all is on the disk. They are written together, a little later, so that
// nobody waits for a disk.
type behind struct {
	mu     sync.Mutex
	queues map[*queue.Queue]bool
	any    chan struct{}
}

func newBehind() *behind {
	return &behind{queues: map[*queue.Queue]bool{}, any: make(chan struct{}, 1)}
}

func (d *behind) add(q *queue.Queue) {
	d.mu.Lock()
	d.queues[q] = true
	d.mu.Unlock()
	signal(d.any)
}

// run writes until ctx ends.
func (d *behind) run(ctx context.Context, c clock.Clock, every time.Duration) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.any:
		}
		select {
		case <-ctx.Done():
			return
		case <-c.After(every):
		}
		d.mu.Lock()
		queues := d.queues
		d.queues = map[*queue.Queue]bool{}
		d.mu.Unlock()
		for q := range queues {
			if err := q.Sync(); err != nil {
				log.FromContext(ctx).Error(err,
					"cannot write to disk what is to be delivered: it is lost if the machine fails")
			}
		}
	}
}
