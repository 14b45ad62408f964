package reconcile

import (
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
)

// Retry configures retries after failures and how passes are spread over time.
type Retry struct {
	Min    time.Duration // delay after the first failure; it doubles with each further one
	Max    time.Duration // maximum delay
	Jitter float64       // maximum deviation from an interval, as a fraction of it, 0 to 1
}

// DefaultRetry holds the default values of the flags.
var DefaultRetry = Retry{Min: 750 * time.Millisecond, Max: 15 * time.Minute, Jitter: 0.05}

func (r Retry) jitter(d time.Duration) time.Duration {
	if r.Jitter <= 0 {
		return d
	}
	return time.Duration(float64(d) * (1 + r.Jitter*(2*rand.Float64()-1)))
}

// Each namespace has a budget of retries of a kind, so that many objects that fail do not take the time of others.
// Passes of objects with a short interval count as well.
const (
	retriesPerSecond = 10
	retryBurst       = 100
	maxRetryBudgets  = 10_000 // namespaces whose budget is remembered

	minInterval   = time.Second // between passes of an object, also if its interval is shorter
	shortInterval = 10 * time.Second
)

// retryBudgets are the budgets of namespaces.
type retryBudgets struct {
	mu       sync.Mutex
	limiters map[string]*rate.Limiter
}

// delay returns when a retry may start: after wanted, or later if the namespace has used its budget.
func (b *retryBudgets) delay(namespace string, now time.Time, wanted time.Duration) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.limiters[namespace]
	if l == nil {
		if b.limiters == nil || len(b.limiters) >= maxRetryBudgets {
			b.limiters = map[string]*rate.Limiter{}
		}
		l = rate.NewLimiter(retriesPerSecond, retryBurst)
		b.limiters[namespace] = l
	}
	return max(wanted, l.ReserveN(now, 1).DelayFrom(now))
}

// failureCounter counts the consecutive failures of each object.
type failureCounter struct {
	mu    sync.Mutex
	count map[types.NamespacedName]int
}

func newFailureCounter() *failureCounter {
	return &failureCounter{count: map[types.NamespacedName]int{}}
}

// backoff counts a failure and returns the delay before the next attempt: exponential from Min, at most Max and, if it
// is set, the object's interval.
func (f *failureCounter) backoff(key types.NamespacedName, r Retry, interval time.Duration) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.count[key]
	f.count[key] = n + 1
	limit := r.Max
	if interval > 0 {
		limit = min(limit, interval)
	}
	delay := limit
	if n < 32 {
		delay = min(limit, r.Min<<n)
	}
	return r.jitter(max(delay, time.Millisecond))
}

func (f *failureCounter) reset(key types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.count, key)
}
