package apply

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/sluice-gitops/sluice/internal/guard"
)

const (
	// notifyDelay collects the changes of several objects into one notification.
	notifyDelay = 50 * time.Millisecond
	// Objects that drift all the time must not keep the process busy: after a burst, notifications have an interval.
	notifyBurst    = 30
	notifyInterval = 10 * time.Second
)

// notifier notifies owners that one of their objects drifted.
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

// notify calls the function for an owner soon. Calls until then are merged.
func (n *notifier) notify(o Owner) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || n.pending[o] != nil {
		return
	}
	limit := n.limits[o]
	if limit == nil {
		limit = rate.NewLimiter(rate.Every(notifyInterval), notifyBurst)
		n.limits[o] = limit
	}
	n.pending[o] = guard.AfterFunc("reporting drift", max(notifyDelay, limit.Reserve().Delay()), func() {
		n.mu.Lock()
		due := n.pending[o] != nil
		delete(n.pending, o)
		n.mu.Unlock()
		if due {
			n.call(o)
		}
	})
}

// notifyAfter notifies an owner after a delay. It replaces the earlier delay for the same object.
func (n *notifier) notifyAfter(o Owner, object Ref, d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return
	}
	if n.delayed[o] == nil {
		n.delayed[o] = map[Ref]*time.Timer{}
	}
	if t := n.delayed[o][object]; t != nil {
		t.Stop()
	}
	n.delayed[o][object] = guard.AfterFunc("reporting drift", d, func() { n.notify(o) })
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
