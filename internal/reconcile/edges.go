package reconcile

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	ctrl "sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sluice-gitops/sluice/internal/guard"
)

// Ref identifies an object by group, kind, namespace and name.
type Ref struct {
	schema.GroupKind
	types.NamespacedName
}

// RefTo returns the Ref of an object.
func RefTo(gk schema.GroupKind, namespace, name string) Ref {
	return Ref{gk, types.NamespacedName{Namespace: namespace, Name: name}}
}

// ShardKey returns the key of an object that need not be on the replica of others; see [Kind].
func (r Ref) ShardKey() string { return r.GroupKind.String() + "/" + r.NamespacedName.String() }

type queue = workqueue.TypedRateLimitingInterface[ctrl.Request]

// Edges is the graph of which objects depend on which others. When an object changes, its dependents are enqueued, so
// that nothing has to poll.
type Edges struct {
	mu         sync.RWMutex
	queues     map[schema.GroupKind]queue
	dependents map[Ref]map[Ref]struct{}
	references map[Ref][]Ref
	rankers    map[schema.GroupKind]func(dependent, changed Ref) bool

	changes atomic.Int64 // passes of changed objects that run, of all kinds
}

// Ranker is a [Step] that knows which passes can wait for others.
type Ranker interface {
	// OnlyNotes reports whether the pass of an object would only note in its status that an object which it refers to
	// has changed. Such passes come after all others of a namespace. It must not wait for a request.
	OnlyNotes(obj, changed Ref) bool
}

// NewEdges returns an empty graph.
func NewEdges() *Edges {
	return &Edges{
		queues:     map[schema.GroupKind]queue{},
		dependents: map[Ref]map[Ref]struct{}{},
		references: map[Ref][]Ref{},
		rankers:    map[schema.GroupKind]func(dependent, changed Ref) bool{},
	}
}

// Set replaces the references of a dependent; no references remove it.
func (e *Edges) Set(dependent Ref, references []Ref) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.references[dependent] {
		delete(e.dependents[r], dependent)
		if len(e.dependents[r]) == 0 {
			delete(e.dependents, r)
		}
	}
	delete(e.references, dependent)
	for _, r := range references {
		if e.dependents[r] == nil {
			e.dependents[r] = map[Ref]struct{}{}
		}
		e.dependents[r][dependent] = struct{}{}
	}
	if len(references) > 0 {
		e.references[dependent] = references
	}
}

// Add adds a reference to those of a dependent, until they are next replaced by [Edges.Set].
func (e *Edges) Add(dependent, reference Ref) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, found := e.dependents[reference][dependent]; found {
		return
	}
	if e.dependents[reference] == nil {
		e.dependents[reference] = map[Ref]struct{}{}
	}
	e.dependents[reference][dependent] = struct{}{}
	e.references[dependent] = append(slices.Clip(e.references[dependent]), reference)
}

// NotifyDependents enqueues every object that refers to ref. Those whose pass would only note the change come last, so
// that a commit which many objects refer to does not delay the few that it changes.
func (e *Edges) NotifyDependents(ref Ref) {
	e.mu.RLock()
	dependents := slices.Collect(maps.Keys(e.dependents[ref]))
	e.mu.RUnlock()
	var last []Ref
	for _, d := range dependents {
		if e.onlyNotes(d, ref) {
			last = append(last, d)
		} else {
			e.Enqueue(d)
		}
	}
	for _, d := range last {
		e.enqueueLast(d)
	}
}

// onlyNotes reports whether the pass of a dependent would only note the change of ref.
func (e *Edges) onlyNotes(dependent, ref Ref) (result bool) {
	e.mu.RLock()
	ranker := e.rankers[dependent.GroupKind]
	e.mu.RUnlock()
	return ranker != nil && guard.Do("ordering passes", func() error {
		result = ranker(dependent, ref)
		return nil
	}) == nil && result
}

// Enqueue enqueues one object.
func (e *Edges) Enqueue(ref Ref) {
	if q := e.queueOf(ref); q != nil {
		q.Add(ctrl.Request{NamespacedName: ref.NamespacedName})
	}
}

// enqueueLast enqueues one object after those that changed, unless it is enqueued before them already.
func (e *Edges) enqueueLast(ref Ref) {
	q, ok := e.queueOf(ref).(priorityqueue.PriorityQueue[ctrl.Request])
	if !ok {
		e.Enqueue(ref)
		return
	}
	q.AddWithOpts(priorityqueue.AddOpts{Priority: ptr.To(noted)}, ctrl.Request{NamespacedName: ref.NamespacedName})
}

func (e *Edges) queueOf(ref Ref) queue {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.queues[ref.GroupKind]
}

// SetRanker sets how passes of a kind are ordered. See [Ranker].
func (e *Edges) SetRanker(gk schema.GroupKind, onlyNotes func(dependent, changed Ref) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rankers[gk] = onlyNotes
}

// SetQueue sets the queue of a kind. Objects of kinds without a queue are not enqueued.
func (e *Edges) SetQueue(gk schema.GroupKind, q queue) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.queues[gk] = q
}

// Observe notifies the dependents of the objects of a kind, by its informer: when an object is added or deleted, or
// updated such that changed reports true.
func Observe[T client.Object](ctx context.Context, e *Edges, c ctrlcache.Cache, gk schema.GroupKind, obj T,
	changed func(before, after T) bool) error {
	return ObserveAs(ctx, e, c, obj, func(o T) Ref { return RefTo(gk, o.GetNamespace(), o.GetName()) }, changed)
}

// ObserveAs is [Observe] for objects whose dependents refer to something other than the object itself, as returned by
// ref.
func ObserveAs[T client.Object](ctx context.Context, e *Edges, c ctrlcache.Cache, obj T, ref func(T) Ref,
	changed func(before, after T) bool) error {
	informer, err := c.GetInformer(ctx, obj)
	if err != nil {
		return err
	}
	notify := func(o any) {
		if t, ok := o.(T); ok {
			e.NotifyDependents(ref(t))
		}
	}
	_, err = informer.AddEventHandler(guard.EventHandler("observing references", cache.ResourceEventHandlerFuncs{
		AddFunc:    notify,
		DeleteFunc: notify,
		UpdateFunc: func(before, after any) {
			b, ok1 := before.(T)
			a, ok2 := after.(T)
			if ok1 && ok2 && changed(b, a) {
				notify(after)
			}
		},
	}))
	return err
}
