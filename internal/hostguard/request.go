package hostguard

import (
	"sync"
	"time"
)

// Request is an admitted request to a host.
type Request struct {
	host    *host
	caller  string
	hasSlot bool
	release sync.Once
}

// Release frees the request's slot. Further calls have no effect.
func (r *Request) Release() {
	r.release.Do(func() {
		r.endProbe()
		if r.hasSlot {
			<-r.host.slots
		}
	})
}

// endProbe lets the next request test the host if this one ended without a result.
func (r *Request) endProbe() {
	h := r.host
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.probe == r {
		h.probe, h.pausedUntil = nil, time.Time{}
	}
}

// HostHasAnswered reports whether the host has answered a request, and has not timed out since.
func (r *Request) HostHasAnswered() bool {
	r.host.mu.Lock()
	defer r.host.mu.Unlock()
	return r.host.hasAnswered
}

// RateLimited records that the host asked the request's caller to wait for d, which is cut to one hour.
func (r *Request) RateLimited(d time.Duration) {
	if d <= 0 {
		return
	}
	h, now := r.host, r.host.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	for caller, until := range h.rateLimits {
		if !now.Before(until) {
			delete(h.rateLimits, caller)
		}
	}
	until := now.Add(min(d, maxRateLimit))
	if until.After(h.rateLimits[r.caller]) && len(h.rateLimits) < maxCallers {
		h.rateLimits[r.caller] = until
	}
}

// Progress records that the host sent data. Requests that wait for a slot continue to wait.
func (r *Request) Progress() { r.host.progress() }

// Await records that data is expected from the host from now on. The caller must end the wait by one of its methods.
func (r *Request) Await() Wait {
	h := r.host
	if h.awaited.Load() == 0 {
		h.lastReceived.Store(int64(h.now().Sub(h.guard.epoch))) // idle time starts now
	}
	h.awaited.Add(1)
	return Wait{host: h, received: h.received.Load(), pauses: h.pauses.Load()}
}

// Wait is a period in which a request waits for data from the host.
type Wait struct {
	host             *host
	received, pauses int64 // at the start
}

// Answered ends the wait: the host answered a request. This ends a pause.
func (w Wait) Answered() {
	w.Ended()
	h := w.host
	h.progress()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timeouts, h.hasAnswered, h.probe, h.pausedUntil = 0, true, nil, time.Time{}
}

// TimedOut ends the wait: the host did not send data in time. Requests to it are paused, unless it sent data to
// another request during the wait. Timeouts of requests that were in flight together count once.
func (w Wait) TimedOut() {
	w.Ended()
	h := w.host
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.received.Load() != w.received || h.pauses.Load() != w.pauses {
		return
	}
	h.pausedUntil = h.now().Add(min(minPause<<min(h.timeouts, 10), maxPause))
	h.timeouts++
	h.pauses.Add(1)
	h.hasAnswered, h.probe = false, nil
}

// Ended ends the wait without a statement about the host, such as when the caller canceled the request.
func (w Wait) Ended() { w.host.awaited.Add(-1) }
