package reconcile

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrl "sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Ref identifies an object, whatever its version.
type Ref struct {
	schema.GroupKind
	types.NamespacedName
}

// RefTo makes a Ref.
func RefTo(gk schema.GroupKind, namespace, name string) Ref {
	return Ref{gk, types.NamespacedName{Namespace: namespace, Name: name}}
}

type queue = workqueue.TypedRateLimitingInterface[ctrl.Request]

// Edges knows which objects wait for or build on which others, and wakes them when those change. Nothing polls.
type Edges struct {
	mu         sync.RWMutex
	queues     map[schema.GroupKind]queue
	dependents map[Ref]map[Ref]struct{}
	references map[Ref][]Ref
}

// NewEdges returns an empty set of edges.
func NewEdges() *Edges {
	return &Edges{
		queues:     map[schema.GroupKind]queue{},
		dependents: map[Ref]map[Ref]struct{}{},
		references: map[Ref][]Ref{},
	}
}

// Set replaces what the dependent refers to; none removes it.
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

// Fire wakes every object that refers to ref.
func (e *Edges) Fire(ref Ref) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	for d := range e.dependents[ref] {
		e.wake(d)
	}
}

// Wake queues one object at once.
func (e *Edges) Wake(ref Ref) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	e.wake(ref)
}

func (e *Edges) wake(ref Ref) {
	if q := e.queues[ref.GroupKind]; q != nil {
		q.Add(ctrl.Request{NamespacedName: ref.NamespacedName})
	}
}

// Attach makes a queue the one that objects of a kind are woken in.
func (e *Edges) Attach(gk schema.GroupKind, q queue) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.queues[gk] = q
}

// Observe fires the edges of a kind from its informer: when an object appears, goes, or changes so that
// changed says so.
func Observe[T client.Object](ctx context.Context, e *Edges, c ctrlcache.Cache, gk schema.GroupKind, obj T,
	changed func(before, after T) bool) error {
	return ObserveAs(ctx, e, c, obj, func(o T) Ref { return RefTo(gk, o.GetNamespace(), o.GetName()) }, changed)
}

// ObserveAs is Observe for edges that stand for more than one object each.
func ObserveAs[T client.Object](ctx context.Context, e *Edges, c ctrlcache.Cache, obj T, edge func(T) Ref,
	changed func(before, after T) bool) error {
	informer, err := c.GetInformer(ctx, obj)
	if err != nil {
		return err
	}
	fire := func(o any) {
		if tombstone, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = tombstone.Obj
		}
		if t, ok := o.(T); ok {
			e.Fire(edge(t))
		}
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    fire,
		DeleteFunc: fire,
		UpdateFunc: func(before, after any) {
			b, ok1 := before.(T)
			a, ok2 := after.(T)
			if ok1 && ok2 && changed(b, a) {
				fire(after)
			}
		},
	})
	return err
}
