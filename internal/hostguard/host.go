package hostguard

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// host is the state of one host.
type host struct {
	name     string
	guard    *Guard
	slots    chan struct{}
	lastUsed time.Time // guarded by guard.mu

	lastReceived atomic.Int64 // nanoseconds since guard.epoch
	received     atomic.Int64 // counts the calls that set lastReceived
	awaited      atomic.Int64 // requests that wait for data now
	pauses       atomic.Int64 // counts the pauses so far

	mu          sync.Mutex
	rateLimits  map[string]time.Time // by caller: the end of its rate limit
	timeouts    int                  // in a row
	hasAnswered bool                 // since the last timeout
	pausedUntil time.Time
	probe       *Request // the one that tests the host after a pause
}

func newHost(name string, g *Guard) *host {
	return &host{name: name, guard: g, slots: make(chan struct{}, g.options.Concurrency),
		rateLimits: map[string]time.Time{}}
}

func (h *host) now() time.Time { return h.guard.options.Clock.Now() }

func (h *host) admit(ctx context.Context, caller string) (*Request, error) {
	r := &Request{host: h, caller: caller}
	if err := h.checkRateLimit(caller); err != nil {
		return nil, err
	}
	if err := h.checkPause(r); err != nil {
		return nil, err
	}
	if h.guard.options.Concurrency == 0 {
		return r, nil
	}
	if err := h.acquireSlot(ctx); err != nil {
		r.endProbe()
		return nil, err
	}
	r.hasSlot = true
	if err := h.checkRateLimit(caller); err != nil { // the host may have imposed it in the meantime
		r.Release()
		return nil, err
	}
	return r, nil
}

// acquireSlot waits for a slot while the host makes progress with the requests in flight.
func (h *host) acquireSlot(ctx context.Context) error {
	select {
	case h.slots <- struct{}{}:
		return nil
	default:
	}
	stall := h.guard.options.StallTimeout
	for {
		idle := h.idle()
		if idle >= stall {
			return h.guard.fault("host '%s' stalled with %d requests in flight", h.name, cap(h.slots)).
				WithHint("Further requests are sent once it answers").After(max(stall, h.guard.options.ProbeTimeout))
		}
		timer := h.guard.options.Clock.NewTimer(stall - idle)
		select {
		case h.slots <- struct{}{}:
			timer.Stop()
			return nil
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case <-timer.C():
		}
	}
}

// idle returns how long the host sent nothing although data was awaited. Time in which the receiver reads nothing
// does not count.
func (h *host) idle() time.Duration {
	if h.awaited.Load() == 0 {
		return 0
	}
	return h.now().Sub(h.guard.epoch) - time.Duration(h.lastReceived.Load())
}

// progress records that the host sent something.
func (h *host) progress() {
	h.received.Add(1)
	h.lastReceived.Store(int64(h.now().Sub(h.guard.epoch)))
}

func (h *host) checkRateLimit(caller string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	if until := h.rateLimits[caller]; now.Before(until) {
		return h.guard.fault("host '%s' is rate limiting us until %s", h.name, until.UTC().Format(time.RFC3339)).
			WithHint("Requests resume then").After(until.Sub(now))
	}
	return nil
}

// checkPause returns a fault while the host is paused. The first request after a pause becomes the probe.
func (h *host) checkPause(r *Request) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	if now.Before(h.pausedUntil) {
		return h.guard.fault("host '%s' does not answer; requests to it are paused", h.name).
			WithHint("%s", h.guard.options.Hint).After(h.pausedUntil.Sub(now))
	}
	if h.timeouts > 0 && h.guard.options.ProbeTimeout > 0 {
		h.probe, h.pausedUntil = r, now.Add(h.guard.options.ProbeTimeout)
	}
	return nil
}
