package hostguard

import (
	"context"
	"sync"
	"time"
)

// Request is an admitted request to a host.
type Request struct {
	host    *host
	owner   *owner
	caller  string
	hasSlot bool
	release sync.Once
}

// Release frees the request's slot. Further calls have no effect.
func (r *Request) Release() {
	r.release.Do(func() {
		r.host.mu.Lock()
		defer r.host.mu.Unlock()
		r.free()
	})
}

// free frees the request's slot, with the lock held.
func (r *Request) free() {
	r.endProbe()
	if r.hasSlot {
		r.hasSlot = false
		r.host.freeSlot(r.owner)
	}
}

// endProbe lets the next request test the host if this one ended without a result. The lock is held.
func (r *Request) endProbe() {
	if r.owner.probe == r {
		r.owner.probe, r.owner.pausedUntil = nil, time.Time{}
	}
	if r.host.probe == r {
		r.host.probe = nil
	}
}

// HostHasAnswered reports whether the host has answered a request of the owner, and has not timed out since.
func (r *Request) HostHasAnswered() bool {
	r.host.mu.Lock()
	defer r.host.mu.Unlock()
	return r.owner.hasAnswered
}

// RateLimited records that the host asked the request's caller to wait for d, which is cut to one hour.
func (r *Request) RateLimited(d time.Duration) {
	if d <= 0 {
		return
	}
	r.host.mu.Lock()
	defer r.host.mu.Unlock()
	now, limits := r.host.now(), r.owner.rateLimits
	for caller, until := range limits {
		if !now.Before(until) {
			delete(limits, caller)
		}
	}
	until := now.Add(min(d, maxRateLimit))
	if until.After(limits[r.caller]) && len(limits) < maxCallers {
		limits[r.caller] = until
	}
}

// Progress records that the host sent data. Requests that wait for a slot continue to wait.
func (r *Request) Progress() {
	r.host.mu.Lock()
	defer r.host.mu.Unlock()
	r.owner.progress()
}

// Await records that data is expected from the host from now on. The caller must end the wait by one of its methods.
func (r *Request) Await() Wait {
	r.host.mu.Lock()
	defer r.host.mu.Unlock()
	o := r.owner
	if o.awaited == 0 {
		o.lastReceived = r.host.now() // idle time starts now
	}
	o.awaited++
	return Wait{owner: o, received: o.received, pauses: o.pauses}
}

// Wait is a period in which a request waits for data from the host.
type Wait struct {
	owner            *owner
	received, pauses int64 // at the start
}

// Answered ends the wait: the host answered a request. This ends a pause.
func (w Wait) Answered() {
	o, h := w.owner, w.owner.host
	h.mu.Lock()
	defer h.mu.Unlock()
	o.awaited--
	o.progress()
	o.timeouts, o.hasAnswered, o.probe, o.pausedUntil = 0, true, nil, time.Time{}
	clear(h.failing)
	h.probe = nil
}

// TimedOut ends the wait: the host did not send data in time. Requests of the owner to it are paused, unless it sent
// data to another request of the owner during the wait. Timeouts of requests that were in flight together count once.
// If ctx has ended, or its deadline has passed, the host had less time than it is given, and the timeout is not its
// fault.
func (w Wait) TimedOut(ctx context.Context) {
	o, h := w.owner, w.owner.host
	h.mu.Lock()
	defer h.mu.Unlock()
	o.awaited--
	if hasEnded(ctx) || o.received != w.received || o.pauses != w.pauses {
		return
	}
	o.pausedUntil = h.now().Add(min(minPause<<min(o.timeouts, 10), maxPause))
	o.timeouts++
	o.pauses++
	o.hasAnswered, o.probe = false, nil
	h.failing[o.name] = true
}

// hasEnded reports whether a context has ended. A connection can fail by the deadline of a context shortly before the
// context itself ends.
func hasEnded(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// Ended ends the wait without a statement about the host, such as when the caller canceled the request.
func (w Wait) Ended() {
	w.owner.host.mu.Lock()
	defer w.owner.host.mu.Unlock()
	w.owner.awaited--
}
