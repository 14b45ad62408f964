package apply

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// settle is how long moves are gathered before the owner is told: one deletion rarely comes alone.
	settle = 50 * time.Millisecond
	// Live objects that move all the time must not keep us busy: after a burst, one edge now and then.
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
	delayed map[Owner]map[Ref]*time.Timer
}

func newNotifier(call func(Owner)) *notifier {
	return &notifier{
		call: call, pending: map[Owner]*time.Timer{}, limits: map[Owner]*rate.Limiter{},
		delayed: map[Owner]map[Ref]*time.Timer{},
	}
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

// later tells the owner after a while, in place of what was to be told later of the same object.
func (n *notifier) later(o Owner, about Ref, d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return
	}
	if n.delayed[o] == nil {
		n.delayed[o] = map[Ref]*time.Timer{}
	}
	if t := n.delayed[o][about]; t != nil {
		t.Stop()
	}
	n.delayed[o][about] = time.AfterFunc(d, func() { n.wake(o) })
}

func (n *notifier) forget(o Owner) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if t := n.pending[o]; t != nil {
		t.Stop()
	}
	for _, t := range n.delayed[o] {
		t.Stop()
	}
	delete(n.pending, o)
	delete(n.limits, o)
	delete(n.delayed, o)
}

func (n *notifier) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	for o, t := range n.pending {
		t.Stop()
		delete(n.pending, o)
	}
	for o, timers := range n.delayed {
		for _, t := range timers {
			t.Stop()
		}
		delete(n.delayed, o)
	}
}
