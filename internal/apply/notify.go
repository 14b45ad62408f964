package apply

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// settle is how long moves are gathered before the owner is told: one deletion rarely comes alone.
	settle = 50 * time.Millisecond
	// A live object over which somebody else fights must not keep us busy: after a burst, one edge now and then.
	edgeBurst = 30
	edgeEvery = 10 * time.Second
)

// notifier tells owners that something of theirs moved.
type notifier struct {
	call func(Owner)

	mu      sync.Mutex
	closed  bool
	pending map[Owner]*time.Timer
	limits  map[Owner]*rate.Limiter
}

func newNotifier(call func(Owner)) *notifier {
	return &notifier{call: call, pending: map[Owner]*time.Timer{}, limits: map[Owner]*rate.Limiter{}}
}

func (n *notifier) wake(o Owner) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || n.pending[o] != nil {
		return
	}
	limit := n.limits[o]
	if limit == nil {
		limit = rate.NewLimiter(rate.Every(edgeEvery), edgeBurst)
		n.limits[o] = limit
	}
	n.pending[o] = time.AfterFunc(max(settle, limit.Reserve().Delay()), func() {
		n.mu.Lock()
		live := n.pending[o] != nil
		delete(n.pending, o)
		n.mu.Unlock()
		if live {
			n.call(o)
		}
	})
}

func (n *notifier) forget(o Owner) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if t := n.pending[o]; t != nil {
		t.Stop()
	}
	delete(n.pending, o)
	delete(n.limits, o)
}

func (n *notifier) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	for o, t := range n.pending {
		t.Stop()
		delete(n.pending, o)
	}
}
