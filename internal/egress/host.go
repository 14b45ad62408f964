package egress

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// host is what is known of one host, and who is talking to it.
type host struct {
	name     string
	timeouts Timeouts
	now      func() time.Time // the policy's clock
	slots    chan struct{}
	progress atomic.Int64 // nanoseconds from epoch to the last sign of life
	awaited  atomic.Int64 // answers, and parts of them
	used     time.Time    // guarded by the policy's mutex

	mu     sync.Mutex
	waits  map[string]time.Time // until when the host wants no request of a caller
	silent int                  // requests in a row that the host let hang
	rest   time.Time            // until when a silent host is left alone
}

// epoch is what signs of life are counted from, by the clock that never jumps.
var epoch = time.Now()

func newHost(name string, limit int, timeouts Timeouts, now func() time.Time) *host {
	return &host{name: name, timeouts: timeouts, now: now, slots: make(chan struct{}, limit),
		waits: map[string]time.Time{}}
}

// alive notes a sign of life.
func (h *host) alive() { h.progress.Store(int64(time.Since(epoch))) }

func (h *host) lastAlive() time.Time { return epoch.Add(time.Duration(h.progress.Load())) }

func (h *host) idle() bool { return len(h.slots) == 0 }

// admit lets a request through, or says at once that the host wants none now. It queues only as long as the
// host gets on with the requests that it has, so that a host that hangs costs its own sources their turn and
// no one else's.
func (h *host) admit(ctx context.Context, caller string) (release func(), err error) {
	if err := h.limited(caller); err != nil {
		return nil, err
	}
	if err := h.resting(); err != nil {
		return nil, err
	}
	select {
	case h.slots <- struct{}{}:
	default:
		if err := h.queue(ctx); err != nil {
			return nil, err
		}
		if err := h.limited(caller); err != nil { // by what it said meanwhile
			<-h.slots
			return nil, err
		}
	}
	return sync.OnceFunc(func() { <-h.slots }), nil
}

// queue waits for a slot.
func (h *host) queue(ctx context.Context) error {
	for {
		quiet := h.quiet()
		if quiet >= h.timeouts.Stall {
			return failed("%s does not get on with the %d requests that it has", h.name, cap(h.slots)).
				WithHint("Others wait until it does; the last artifact keeps being served").After(h.timeouts.Answer)
		}
		timer := time.NewTimer(h.timeouts.Stall - quiet)
		select {
		case h.slots <- struct{}{}:
			timer.Stop()
			return nil
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case <-timer.C:
		}
	}
}

// expect notes that something is awaited of the host, until done is called.
func (h *host) expect() (done func()) {
	if h.awaited.Load() == 0 {
		h.alive() // nothing was until now
	}
	h.awaited.Add(1)
	return func() { h.awaited.Add(-1) }
}

// quiet is how long the host gave no sign of life although one was awaited. It is not its fault when nobody
// reads what it sends.
func (h *host) quiet() time.Duration {
	if h.awaited.Load() == 0 {
		return 0
	}
	return time.Since(h.lastAlive())
}

// limited tells whether the host asked to be left alone by the caller.
func (h *host) limited(caller string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	if until := h.waits[caller]; now.Before(until) {
		return failed("%s asks to come back after %s", h.name, until.UTC().Format(time.RFC3339)).
			WithHint("The last artifact keeps being served").After(until.Sub(now))
	}
	return nil
}

// resting tells whether the host is left alone because it hung. When the rest is over it lets one request try.
func (h *host) resting() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	switch {
	case h.silent == 0:
		return nil
	case now.Before(h.rest):
		return failed("%s does not answer", h.name).WithHint("Check the host, and the network on the way").
			After(h.rest.Sub(now))
	}
	h.rest = now.Add(h.timeouts.Answer) // the others wait for what becomes of it
	return nil
}

// heed remembers what the host says of when to come back. It says it to one caller: a host of many may limit
// one of them, and a proxy in front of many services may lack one.
func (h *host) heed(resp *http.Response, caller string) {
	now := h.now()
	d := RetryAfter(resp, now)
	if d <= 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for who, until := range h.waits {
		if !now.Before(until) {
			delete(h.waits, who)
		}
	}
	if until := now.Add(d); until.After(h.waits[caller]) && len(h.waits) < maxCallers {
		h.waits[caller] = until
	}
}

// maxCallers bounds how many callers a host's wishes are remembered of.
const maxCallers = 10_000

// answered notes that the host talks.
func (h *host) answered() {
	h.alive()
	h.mu.Lock()
	h.silent = 0
	h.mu.Unlock()
}

const (
	minRest = 10 * time.Second
	maxRest = 5 * time.Minute
)

// gaveUp notes the end of a request without an answer.
func (h *host) gaveUp(err error, began time.Time) {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() && time.Since(began) >= h.timeouts.Stall {
		h.hung(began)
		return
	}
	h.mu.Lock()
	h.rest = time.Time{} // it does not hang, whatever else: the next may try
	h.mu.Unlock()
}

// hung notes that the host let a request hang. It is left alone for a while if it gave no sign of life to
// anyone meanwhile: a host that is slow with one request is not punished for it with the others.
func (h *host) hung(began time.Time) {
	if h.lastAlive().After(began) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rest = h.now().Add(min(minRest<<min(h.silent, 10), maxRest))
	h.silent++
}
