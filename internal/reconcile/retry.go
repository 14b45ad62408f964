package reconcile

import (
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// errPanic marks the outcome of a step that panicked: stalled for the reader, yet retried.
var errPanic = errors.New("the step panicked")

// Retry says how passes are spread over time.
type Retry struct {
	Min    time.Duration // first wait after a failure
	Max    time.Duration // cap of the wait, however often it failed
	Jitter float64       // fraction of an interval by which it may be longer or shorter, 0 to 1
}

// DefaultRetry are the flags' defaults.
var DefaultRetry = Retry{Min: 750 * time.Millisecond, Max: 15 * time.Minute, Jitter: 0.05}

func (r Retry) jitter(d time.Duration) time.Duration {
	if r.Jitter <= 0 {
		return d
	}
	return time.Duration(float64(d) * (1 + r.Jitter*(2*rand.Float64()-1)))
}

// tries counts the failures in a row of each object.
type tries struct {
	mu    sync.Mutex
	count map[types.NamespacedName]int
}

func newTries() *tries { return &tries{count: map[types.NamespacedName]int{}} }

// next returns the wait after one more failure: doubling from Min, capped by Max and by the object's interval if set.
func (t *tries) next(key types.NamespacedName, r Retry, interval time.Duration) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.count[key]
	t.count[key] = n + 1
	limit := r.Max
	if interval > 0 {
		limit = min(limit, interval)
	}
	wait := limit
	if n < 32 {
		wait = min(limit, r.Min<<n)
	}
	return r.jitter(max(wait, time.Millisecond))
}

func (t *tries) reset(key types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.count, key)
}
