package guard

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Reasons of the faults of a budget.
const (
	// ReasonWaitingForMemory is the reason when other work has the memory: a retry may succeed.
	ReasonWaitingForMemory = "WaitingForMemory"
	// ReasonTooLarge is the reason when work needs more memory than the whole budget.
	ReasonTooLarge = "TooLarge"
)

const (
	defaultWait = 20 * time.Second // of work for its share
	retryDelay  = 15 * time.Second // after a wait without success
	collectGap  = 2 * time.Second  // between collections of garbage while work waits
	smallShare  = 64               // work that begins with less than this part of the budget does not queue
	modestShare = 8                // owners that use less than this part of the budget do not queue
)

// Budget is memory, in bytes, that all work of a process shares. Work that needs much memory takes a [Lease] first, and
// grows it as it learns how much it needs. Waiting work is served in the order of its arrival.
//
// No tenant gets more than three quarters of a budget, so that work of others goes on. A tenant with less than an
// eighth passes the work that waits.
//
// A lease that grows while it holds memory could wait for others that wait for it. So only one such lease waits at a
// time. Others end with an error, give back what they have, and are retried.
type Budget struct {
	total int64
	wait  time.Duration

	mu      sync.Mutex
	used    int64
	owned   map[string]int64 // bytes of each owner
	queue   []*request       // in the order of arrival; a lease that grows comes first
	growing bool             // a lease that holds memory waits
	shrink  []func()

	collecting sync.Mutex
	collected  time.Time
}

// request is work that waits.
type request struct {
	owner   string
	bytes   int64
	granted chan struct{} // closed once it has the bytes
}

// NewBudget returns a budget of total bytes.
func NewBudget(total int64) *Budget {
	return &Budget{total: total, wait: defaultWait, owned: map[string]int64{}}
}

// Total returns the size of the budget in bytes.
func (b *Budget) Total() int64 { return b.total }

// Used returns the bytes that leases hold.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// Waiting returns the number of requests that wait.
func (b *Budget) Waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queue)
}

// OnPressure adds a function that is called before work waits. It should drop caches whose values hold memory of the
// budget. It must not use the budget.
func (b *Budget) OnPressure(shrink func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shrink = append(b.shrink, shrink)
}

// NewLease returns a lease without bytes from the budget of ctx, for work that learns how much it needs.
func NewLease(ctx context.Context, work string) *Lease {
	return &Lease{budget: BudgetOf(ctx), work: work, owner: OwnerOf(ctx)}
}

// Acquire returns a lease of bytes. It waits while other work has them. The error is a fault with one of the reasons
// above, or that of ctx. Work says what the memory is for, after "memory for".
func (b *Budget) Acquire(ctx context.Context, work string, bytes int64) (*Lease, error) {
	l := &Lease{budget: b, work: work, owner: OwnerOf(ctx)}
	if err := l.Grow(ctx, bytes); err != nil {
		return nil, err
	}
	return l, nil
}

// Lease is a part of a budget. Grow and Shrink must not be called concurrently with each other or with Take.
type Lease struct {
	budget      *Budget
	work, owner string

	taking  sync.Mutex // one at a time
	refusal error      // the first one of Take

	mu       sync.Mutex
	bytes    int64
	free     int64 // bytes that Take has added and not given out yet
	released bool
}

// leaseStep is the number of bytes by which [Lease.Take] grows a lease at least.
const leaseStep = 1 << 20

// Take takes bytes of the lease for work that learns step by step how much it needs, such as one that reads a stream.
// The lease grows if it has too few. Take may be called concurrently. A nil lease has no limit.
func (l *Lease) Take(ctx context.Context, bytes int64) error {
	if l == nil {
		return nil
	}
	l.taking.Lock()
	defer l.taking.Unlock()
	l.mu.Lock()
	l.free -= bytes
	more := -l.free
	l.mu.Unlock()
	if more <= 0 {
		return nil
	}
	more = max(more, leaseStep)
	err := l.Grow(ctx, more)
	l.refusal = cmp.Or(l.refusal, err)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.free += bytes
		return err
	}
	l.free += more
	return nil
}

// Refusal returns the first error of Take, for work whose library hides it.
func (l *Lease) Refusal() error {
	l.taking.Lock()
	defer l.taking.Unlock()
	return l.refusal
}

// Grow adds bytes to the lease. It waits while other work has them. After an error, the lease is as before and should
// be released.
func (l *Lease) Grow(ctx context.Context, bytes int64) error {
	l.mu.Lock()
	held := l.bytes
	l.mu.Unlock()
	if err := l.budget.take(ctx, l, held, bytes); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.released {
		l.budget.give(l.owner, bytes)
		return nil
	}
	l.bytes += bytes
	return nil
}

// Bytes returns the size of the lease.
func (l *Lease) Bytes() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes
}

// Shrink gives back all but the given number of bytes.
func (l *Lease) Shrink(to int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if more := l.bytes - to; more > 0 {
		l.bytes, l.free = to, min(l.free, to)
		l.budget.give(l.owner, more)
	}
}

// Release gives back all bytes. Further calls do nothing.
func (l *Lease) Release() {
	if l == nil {
		return
	}
	l.Shrink(0)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.released = true
}

// HoldWhile releases a lease when the owner of its memory is no longer reachable.
func HoldWhile[T any](l *Lease, owner *T) {
	runtime.AddCleanup(owner, func(l *Lease) { l.Release() }, l)
}

// take takes bytes for work that holds some already.
func (b *Budget) take(ctx context.Context, l *Lease, held, bytes int64) error {
	if bytes <= 0 {
		return nil
	}
	if held+bytes >= b.total/markShare {
		workOf(ctx).Mark()
	}
	if most := b.most(l.owner); held+bytes > most {
		return fault.New(ReasonTooLarge, "%s needs more than %s of memory, which is all that it may use", l.work,
			Bytes(most)).WithHint("Make it smaller, or raise the memory limit of the controller").Final()
	}
	b.mu.Lock()
	passes := held > 0 && !b.growing || held == 0 && bytes <= b.total/smallShare || b.mayPass(l.owner, bytes)
	if passes && b.fits(l.owner, bytes) {
		b.add(l.owner, bytes)
		b.mu.Unlock()
		return nil
	}
	b.mu.Unlock()
	b.relieve()
	b.mu.Lock()
	if held > 0 && b.growing {
		b.mu.Unlock()
		return b.busy(l.work, held+bytes)
	}
	r := &request{owner: l.owner, bytes: bytes, granted: make(chan struct{})}
	if held > 0 { // others may wait for it
		b.growing = true
		b.queue = append([]*request{r}, b.queue...)
	} else {
		b.queue = append(b.queue, r)
	}
	b.grant()
	b.mu.Unlock()
	err := b.await(ctx, r, l.work, held+bytes)
	if held > 0 {
		b.mu.Lock()
		b.growing = false
		b.mu.Unlock()
	}
	return err
}

// mayPass reports whether a request need not queue: nothing waits that it would delay, or its owner uses little. Else
// an owner whose large leases grow one after the other would stop all others. The caller holds the lock.
func (b *Budget) mayPass(owner string, bytes int64) bool {
	return owner != "" && b.owned[owner]+bytes <= b.total/modestShare ||
		!slices.ContainsFunc(b.queue, func(r *request) bool { return r.owner == owner || !b.waitsForItsOwner(r) })
}

// waitsForItsOwner reports whether a request is beyond the share of its owner, so that it lets others pass. The caller
// holds the lock.
func (b *Budget) waitsForItsOwner(r *request) bool {
	return r.owner != "" && b.owned[r.owner]+r.bytes > b.most(r.owner)
}

// await waits until a request is granted. A request that ends without leaves the queue.
func (b *Budget) await(ctx context.Context, r *request, work string, bytes int64) error {
	timer, collect := time.NewTimer(b.wait), time.NewTicker(collectGap)
	defer timer.Stop()
	defer collect.Stop()
	err := error(nil)
	for err == nil {
		select {
		case <-r.granted:
			return nil
		case <-ctx.Done():
			err = fault.New(ReasonWaitingForMemory, "%s waits for %s of memory", work, Bytes(bytes)).
				Because(ctx.Err()).After(retryDelay)
		case <-timer.C:
			err = b.busy(work, bytes)
		case <-collect.C:
			b.relieve()
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-r.granted:
		return nil // in the meantime
	default:
	}
	for i := range b.queue {
		if b.queue[i] == r {
			b.queue = append(b.queue[:i:i], b.queue[i+1:]...)
			break
		}
	}
	b.grant()
	return err
}

// IsMemory reports whether err's chain contains a fault of a budget.
func IsMemory(err error) bool { return IsWaitingForMemory(err) || hasReason(err, ReasonTooLarge) }

// IsWaitingForMemory reports whether err's chain contains a fault of a budget that a retry may not have, as other work
// has the memory.
func IsWaitingForMemory(err error) bool { return hasReason(err, ReasonWaitingForMemory) }

func hasReason(err error, reason string) bool {
	for f := fault.As(err); f != nil; f = fault.As(f.Err) {
		if f.Reason == reason {
			return true
		}
	}
	return false
}

func (b *Budget) busy(work string, bytes int64) error {
	refused.Inc()
	return fault.New(ReasonWaitingForMemory, "%s needs %s of memory, which other work uses", work, Bytes(bytes)).
		WithHint("It is retried. If it happens often, raise the memory limit of the controller").After(retryDelay)
}

// most returns how many bytes work of an owner may use at most.
func (b *Budget) most(owner string) int64 {
	if owner == "" {
		return b.total
	}
	return b.total / 4 * 3
}

func (b *Budget) fits(owner string, bytes int64) bool {
	return b.used+bytes <= b.total && b.owned[owner]+bytes <= b.most(owner)
}

// add adds bytes, which may be negative, to what an owner uses.
func (b *Budget) add(owner string, bytes int64) {
	b.used += bytes
	if b.owned[owner] += bytes; b.owned[owner] == 0 {
		delete(b.owned, owner)
	}
}

// give returns bytes, and grants requests that they suffice for.
func (b *Budget) give(owner string, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(owner, -bytes)
	b.grant()
}

// grant grants requests in order. A request beyond the share of its owner lets others pass. The caller holds the lock.
func (b *Budget) grant() {
	left := b.queue[:0:0]
	for i, r := range b.queue {
		if b.fits(r.owner, r.bytes) {
			b.add(r.owner, r.bytes)
			close(r.granted)
			continue
		}
		left = append(left, r)
		if !b.waitsForItsOwner(r) {
			left = append(left, b.queue[i+1:]...) // they wait behind it
			break
		}
	}
	b.queue = left
}

// relieve drops caches and collects garbage, as leases may be held by values that are not used any longer.
func (b *Budget) relieve() {
	b.mu.Lock()
	shrink := b.shrink
	b.mu.Unlock()
	for _, f := range shrink {
		f()
	}
	b.collecting.Lock()
	defer b.collecting.Unlock()
	if time.Since(b.collected) >= collectGap {
		runtime.GC()
		b.collected = time.Now()
	}
}

// Bytes returns a number of bytes as text.
func Bytes(n int64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

type (
	budgetKey struct{}
	ownerKey  struct{}
)

// WithOwner returns a context whose work counts for an owner, such as a namespace.
func WithOwner(ctx context.Context, owner string) context.Context {
	return context.WithValue(ctx, ownerKey{}, owner)
}

// OwnerOf returns the owner of [WithOwner]; empty if there is none.
func OwnerOf(ctx context.Context) string {
	owner, _ := ctx.Value(ownerKey{}).(string)
	return owner
}

// WithBudget returns a context whose work uses a budget other than that of the process.
func WithBudget(ctx context.Context, b *Budget) context.Context {
	return context.WithValue(ctx, budgetKey{}, b)
}

// BudgetOf returns the budget of a context: that of [WithBudget], or that of the process.
func BudgetOf(ctx context.Context) *Budget {
	if b, ok := ctx.Value(budgetKey{}).(*Budget); ok {
		return b
	}
	return Memory()
}

// Memory returns the budget of the process.
var Memory = sync.OnceValue(func() *Budget { return NewBudget(MemoryLimit() / 2) })

var refused = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "sluice_memory_budget_refused_total",
	Help: "Pieces of work that did not get their share of the memory budget in time, and are retried.",
})

// Metrics returns the metrics of panics and of the memory budget.
func Metrics() []prometheus.Collector {
	gauge := func(name, help string, value func(*Budget) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
			func() float64 { return value(Memory()) })
	}
	return []prometheus.Collector{panics, refused,
		gauge("sluice_memory_budget_bytes", "Memory that all work shares, in bytes.",
			func(b *Budget) float64 { return float64(b.Total()) }),
		gauge("sluice_memory_budget_used_bytes", "Memory that work uses, as estimated, in bytes.",
			func(b *Budget) float64 { return float64(b.Used()) }),
		gauge("sluice_memory_budget_waiting", "Pieces of work that wait for memory.",
			func(b *Budget) float64 { return float64(b.Waiting()) })}
}
