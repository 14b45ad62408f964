package hostguard

import (
	"cmp"
	"context"
	"maps"
	"sync"
	"time"
)

// host is the state of one host: the requests in flight to it, and the state that each owner of requests has.
type host struct {
	name     string
	guard    *Guard
	lastUsed time.Time // guarded by guard.mu

	mu       sync.Mutex
	owners   map[string]*owner
	inFlight int           // requests that hold a slot
	freed    chan struct{} // closed when a slot is freed; replaced then
	// failing are the owners whose requests timed out since the host last answered anybody.
	failing    map[string]bool
	probe      *Request // the one that tests a host that fails for several owners
	probeUntil time.Time
}

func newHost(name string, g *Guard) *host {
	return &host{name: name, guard: g, owners: map[string]*owner{}, freed: make(chan struct{}),
		failing: map[string]bool{}}
}

func (h *host) now() time.Time { return h.guard.options.Clock.Now() }

// admit waits for a slot of the owner. The lock of the guard is not held.
func (h *host) admit(ctx context.Context, owner, caller string) (*Request, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o := h.owner(owner)
	r := &Request{host: h, owner: o, caller: caller}
	if err := o.checkRateLimit(caller); err != nil {
		return nil, err
	}
	if err := o.checkPause(r); err != nil {
		return nil, err
	}
	if err := h.checkFailing(r); err != nil {
		r.endProbe()
		return nil, err
	}
	if h.guard.options.Concurrency == 0 {
		return r, nil
	}
	if err := h.acquireSlot(ctx, o); err != nil {
		r.endProbe()
		return nil, err
	}
	r.hasSlot = true
	if err := o.checkRateLimit(caller); err != nil { // the host may have imposed it in the meantime
		r.free()
		return nil, err
	}
	return r, nil
}

// owner returns the state of an owner. Unused ones are forgotten if there are too many.
func (h *host) owner(name string) *owner {
	o := h.owners[name]
	if o == nil {
		if len(h.owners) >= maxOwners {
			now := h.now()
			maps.DeleteFunc(h.owners, func(_ string, o *owner) bool { return o.isIdle(now) })
		}
		o = &owner{host: h, name: name, rateLimits: map[string]time.Time{}}
		h.owners[name] = o
	}
	return o
}

// checkFailing returns a fault while the host fails for several owners, except for one request at a time of an owner
// that it does not fail for: this request tests the host.
func (h *host) checkFailing(r *Request) error {
	if len(h.failing) < severalOwners || h.failing[r.owner.name] {
		return nil
	}
	now := h.now()
	if h.probe != nil && now.Before(h.probeUntil) {
		return h.unanswered(h.probeUntil.Sub(now))
	}
	h.probe, h.probeUntil = r, now.Add(cmp.Or(h.guard.options.ProbeTimeout, defaultProbe))
	return nil
}

func (h *host) unanswered(wait time.Duration) error {
	return h.guard.fault("host '%s' does not answer; requests to it are paused", h.name).
		WithHint("%s", h.guard.options.Hint).After(wait)
}

// acquireSlot waits for a slot while the host makes progress with the requests of the owner in flight.
func (h *host) acquireSlot(ctx context.Context, o *owner) error {
	stall := h.guard.options.StallTimeout
	for !h.hasSlot(o) {
		idle := o.idle()
		if o.inFlight > 0 && idle >= stall {
			return h.guard.fault("host '%s' stalled with %d requests in flight", h.name, o.inFlight).
				WithHint("Further requests are sent once it answers").After(max(stall, h.guard.options.ProbeTimeout))
		}
		if err := h.wait(ctx, max(stall-idle, time.Millisecond)); err != nil {
			return err
		}
	}
	h.inFlight++
	o.inFlight++
	return nil
}

// hasSlot reports whether an owner may have another request in flight. An owner leaves a quarter of the slots to
// others, and has one slot also if others have all.
func (h *host) hasSlot(o *owner) bool {
	total := h.guard.options.Concurrency
	return o.inFlight == 0 || h.inFlight < total-total/4
}

// wait waits until a slot is freed, or for d. The lock is not held meanwhile.
func (h *host) wait(ctx context.Context, d time.Duration) error {
	freed, timer := h.freed, h.guard.options.Clock.NewTimer(d)
	defer timer.Stop()
	h.mu.Unlock()
	defer h.mu.Lock()
	select {
	case <-freed:
	case <-timer.C():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// freeSlot gives back a slot of an owner.
func (h *host) freeSlot(o *owner) {
	h.inFlight--
	o.inFlight--
	close(h.freed)
	h.freed = make(chan struct{})
}

// slotsInUse returns the number of requests that hold a slot.
func (h *host) slotsInUse() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.inFlight
}
