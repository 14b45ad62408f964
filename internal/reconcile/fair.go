package reconcile

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	ctrl "sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// reserve returns the number of workers in addition to the configured ones. They serve namespaces that would wait while
// others have all configured workers.
func reserve(workers int) int { return max(1, workers/2) }

// newQueue returns the work queue of a kind, which is fair by namespace: the next object is of the namespace that has
// the fewest workers, and has waited longest among those. Within a namespace, objects are served in order, changed ones
// before those of the first list, and before those whose pass would only note a change (see [Ranker]).
//
// Slow passes of one namespace cannot hold all workers. When all configured workers are busy, the reserve starts one
// object at a time of each namespace that has no worker.
//
// changes counts the passes of changed objects that run, of all kinds. Passes that would only note a change have half
// of the workers, and one while such passes run: thousands of status writes would keep the API server busy.
func newQueue(name string, limiter workqueue.TypedRateLimiter[ctrl.Request], workers int,
	changes *atomic.Int64,
) *fairQueue {
	order := newFairOrder(workers, changes)
	typed := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[ctrl.Request]{Name: name, Queue: order})
	return &fairQueue{order: order, TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
		workqueue.TypedRateLimitingQueueConfig[ctrl.Request]{Name: name,
			DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(
				workqueue.TypedDelayingQueueConfig[ctrl.Request]{Name: name, Queue: typed})})}
}

// fairQueue is a queue of client-go with a fair order. It implements priorityqueue.PriorityQueue.
type fairQueue struct {
	workqueue.TypedRateLimitingInterface[ctrl.Request]
	order *fairOrder
}

var _ priorityqueue.PriorityQueue[ctrl.Request] = (*fairQueue)(nil)

// noted is the priority of passes that would only note a change. The first list has a lower one, but all priorities
// below zero are equal to the queue.
const noted = -1

// AddWithOpts adds requests with a priority. Priorities below zero are those of the first list and of passes that would
// only note a change. The pass after an interval has neither, though the controller asks for that of the last pass.
func (q *fairQueue) AddWithOpts(o priorityqueue.AddOpts, requests ...ctrl.Request) {
	priority := ptr.Deref(o.Priority, 0)
	if o.After > 0 {
		priority = 0
	}
	for _, r := range requests {
		q.order.setPriority(r, priority)
		switch {
		case o.RateLimited:
			q.AddRateLimited(r)
		case o.After > 0:
			q.AddAfter(r, o.After)
		default:
			q.TypedRateLimitingInterface.Add(r)
		}
	}
}

// Add adds a request of a changed object.
func (q *fairQueue) Add(r ctrl.Request) {
	q.order.setPriority(r, 0)
	q.TypedRateLimitingInterface.Add(r)
}

// wake belongs to no object. Its only effect is that a worker that waits for requests asks for one again: the end of
// the last change lets several notes start, but only the worker that ends it asks for more work.
var wake ctrl.Request

// GetWithPriority returns the next request and its priority, and lets another worker go on if a further note may start.
func (q *fairQueue) GetWithPriority() (ctrl.Request, int, bool) {
	r, shutdown := q.Get()
	for r == wake && !shutdown {
		q.TypedRateLimitingInterface.Done(wake)
		r, shutdown = q.Get()
	}
	if q.order.startsNote() {
		q.TypedRateLimitingInterface.Add(wake)
	}
	return r, q.order.priorityOf(r), shutdown
}

// Done ends the work on a request.
func (q *fairQueue) Done(r ctrl.Request) {
	q.order.done(r)
	q.TypedRateLimitingInterface.Done(r)
}

// fairOrder is the order of a queue. Len is the number of requests that may start now. The queue calls Len before Pop,
// and after Done, as the worker that is done asks for more work. Other workers ask when a request is added.
type fairOrder struct {
	workers, reserve int
	changes          *atomic.Int64

	mu         sync.Mutex
	wakes      bool // wake is in the queue
	running    int
	notes      int // of those that run, passes that only note a change
	waiting    int
	turns      int // that were served
	arrivals   int // of namespaces
	namespaces map[string]*tenant
	priorities map[ctrl.Request]int // below zero, of requests that wait or will be added
	taken      map[ctrl.Request]int // their priorities, while they are in work
}

// tenant is a namespace with requests that wait or are in work.
type tenant struct {
	changed, listed []ctrl.Request // in order
	running         int
	served, arrived int // turn in which it was served last, and its number
}

func (t *tenant) waits() bool { return len(t.changed)+len(t.listed) > 0 }

func newFairOrder(workers int, changes *atomic.Int64) *fairOrder {
	workers = max(1, workers)
	return &fairOrder{workers: workers, reserve: reserve(workers), changes: changes, namespaces: map[string]*tenant{},
		priorities: map[ctrl.Request]int{}, taken: map[ctrl.Request]int{}}
}

// setPriority sets the priority of a request before it is added. A request that waits keeps the higher one.
func (f *fairOrder) setPriority(r ctrl.Request, priority int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if priority >= 0 {
		delete(f.priorities, r)
		return
	}
	if t := f.namespaces[r.Namespace]; t == nil || !slices.Contains(t.changed, r) {
		f.priorities[r] = priority
	}
}

func (f *fairOrder) priorityOf(r ctrl.Request) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.taken[r]
}

// Push implements [workqueue.Queue].
func (f *fairOrder) Push(r ctrl.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r == wake {
		f.wakes = true
		return
	}
	t := f.namespaces[r.Namespace]
	if t == nil {
		f.arrivals++
		t = &tenant{served: f.turns, arrived: f.arrivals}
		f.namespaces[r.Namespace] = t
	}
	f.waiting++
	if f.priorities[r] < 0 {
		t.listed = append(t.listed, r)
	} else {
		t.changed = append(t.changed, r)
	}
}

// Touch implements [workqueue.Queue]: a listed request that is added again with a higher priority moves up.
func (f *fairOrder) Touch(r ctrl.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.namespaces[r.Namespace]
	if t == nil || f.priorities[r] < 0 {
		return
	}
	for i := range t.listed {
		if t.listed[i] == r {
			t.listed = append(t.listed[:i:i], t.listed[i+1:]...)
			t.changed = append(t.changed, r)
			return
		}
	}
}

// Len implements [workqueue.Queue].
func (f *fairOrder) Len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.wakes:
		return f.waiting + 1
	case f.next() == nil:
		return 0
	}
	return f.waiting
}

// Pop implements [workqueue.Queue].
func (f *fairOrder) Pop() ctrl.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.next()
	if f.wakes || t == nil { // not called without any
		f.wakes = false
		return wake
	}
	var r ctrl.Request
	if len(t.changed) > 0 {
		r, t.changed = t.changed[0], t.changed[1:]
	} else {
		r, t.listed = t.listed[0], t.listed[1:]
	}
	f.taken[r] = f.priorities[r]
	delete(f.priorities, r)
	f.count(r, 1)
	f.turns++
	f.waiting--
	f.running++
	t.running++
	t.served = f.turns
	return r
}

// next returns the namespace to serve; nil if none may start. The caller holds the lock.
func (f *fairOrder) next() *tenant {
	if f.running >= f.workers+f.reserve {
		return nil
	}
	mayNote := f.notes == 0 || f.notes < f.workers/2 && f.changes.Load() == 0
	var best *tenant
	for _, t := range f.namespaces {
		if !t.waits() || f.running >= f.workers && t.running > 0 || !mayNote && f.onlyNotes(t) {
			continue
		}
		if best == nil || t.compare(best) < 0 {
			best = t
		}
	}
	return best
}

// startsNote reports whether a pass may start now that would only note a change.
func (f *fairOrder) startsNote() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.next()
	return t != nil && f.onlyNotes(t)
}

// onlyNotes reports whether the next pass of a namespace that waits would only note a change.
func (f *fairOrder) onlyNotes(t *tenant) bool {
	return len(t.changed) == 0 && f.priorities[t.listed[0]] == noted
}

// count adds n to the number of passes that run of the kind of r.
func (f *fairOrder) count(r ctrl.Request, n int) {
	switch f.taken[r] {
	case 0:
		f.changes.Add(int64(n))
	case noted:
		f.notes += n
	}
}

// compare compares namespaces by who is served first.
func (t *tenant) compare(other *tenant) int {
	return cmp.Or(cmp.Compare(t.running, other.running), cmp.Compare(t.served, other.served),
		cmp.Compare(t.arrived, other.arrived))
}

// done ends the work on a request.
func (f *fairOrder) done(r ctrl.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.namespaces[r.Namespace]
	if t == nil {
		return
	}
	f.count(r, -1)
	delete(f.taken, r)
	f.running--
	if t.running--; t.running == 0 && !t.waits() {
		delete(f.namespaces, r.Namespace)
	}
}
