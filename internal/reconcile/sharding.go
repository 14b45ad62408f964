package reconcile

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/reconcile/shard"
)

// Objects that another process reconciles are in the cache as well: other objects may refer to them, and gates must
// know which of them wait.

// Leaver is a step that keeps something about objects between passes, in memory or on disk.
type Leaver[T Object] interface {
	// Leave forgets it, as another process reconciles the object from now on, and may give it back later. It is called
	// again for objects that it knows nothing about.
	Leave(obj T)
}

// isMine reports whether this process reconciles an object, and not another shard or replica.
func (l *loop[T]) isMine(obj T) bool {
	return l.isSelected(obj) && (l.Shards == nil || l.Shards.Owns(l.shardKey(obj)))
}

func (l *loop[T]) isSelected(obj T) bool {
	return l.AnyLabels || l.Selector == nil || l.Selector.Matches(labels.Set(obj.GetLabels()))
}

// isShared reports whether other processes may reconcile objects of the kind.
func (l *loop[T]) isShared() bool {
	return l.Shards != nil || !l.AnyLabels && l.Selector != nil && !l.Selector.Empty()
}

func (l *loop[T]) shardKey(obj T) string {
	if l.ShardKey != nil {
		return l.ShardKey(obj)
	}
	return l.nameOf(client.ObjectKeyFromObject(obj))
}

// take begins work on an object, if it is this replica's. It returns the context of the work and the object as it is to
// be used: at first as the API server has it, as the replica before may have written what is not in the cache yet. It
// is false if there is nothing to do.
func (l *loop[T]) take(ctx context.Context, obj T) (_ context.Context, _ T, end func(), ok bool, err error) {
	if !l.isSelected(obj) {
		return ctx, obj, nil, false, nil
	}
	if l.Shards == nil {
		return ctx, obj, func() {}, true, nil
	}
	name := l.nameOf(client.ObjectKeyFromObject(obj))
	work, ok := l.Shards.Begin(ctx, l.shardKey(obj), name)
	if !ok {
		return ctx, obj, nil, false, nil
	}
	if shard.IsFirst(work.Context) {
		live := l.New()
		err := l.Live.Get(work.Context, client.ObjectKeyFromObject(obj), live)
		if apierrors.IsNotFound(err) {
			work.End()
			return ctx, obj, nil, false, nil
		}
		if err != nil {
			l.Shards.Forget(name)
			work.End()
			return ctx, obj, nil, false, err
		}
		l.writes.store(live)
		obj = live
	}
	return work.Context, obj, work.End, true, nil
}

// leave forgets an object that another process reconciles.
func (l *loop[T]) leave(obj T) {
	gone := l.New()
	gone.SetNamespace(obj.GetNamespace())
	gone.SetName(obj.GetName())
	l.forget(gone)
	if leaver, ok := l.Step.(Leaver[T]); ok {
		_ = guard.Run("leaving an object", func() { leaver.Leave(obj) })
	}
	l.observeElsewhere(obj)
}

// observeElsewhere records what the status of an object of another process says for gates: what waits at them, and what
// has become of what they let through.
func (l *loop[T]) observeElsewhere(obj T) {
	var references []Ref
	if l.ShardKey != nil {
		references = l.Step.References(obj) // the key may change with them
	}
	gated, ok := Object(obj).(Gated)
	if !ok || l.Gates == nil || l.GateBehavior == Ungated {
		l.Edges.Set(l.ref(obj), references)
		return
	}
	ref, gates := l.ref(obj), l.Gates.GatesFor(l.ref(obj), gated)
	l.Edges.Set(ref, append(references, gates...))
	waits := gated.Held().DeepCopy()
	waits.HeldBy = slices.DeleteFunc(waits.HeldBy, func(by meta.HoldingGate) bool { // the status may be an old one
		return !slices.ContainsFunc(gates, func(g Ref) bool { return g.NamespacedName.String() == by.Gate })
	})
	l.Gates.SetWaiting(ref, waits)
	if l.GateBehavior == HoldsSync {
		has := &meta.Held{Admitted: l.admittedOf(obj)}
		if has.Admitted != nil {
			has.Reverted = revertedOf(obj)
		}
		l.Gates.SetObserved(ref, watchOf(l.Gates.Snapshot(gates, gated)).gates, has)
	}
}

// observeOthers keeps what gates know of objects of other processes up to date.
func (l *loop[T]) observeOthers(ctx context.Context, mgr manager.Manager) error {
	if !l.isShared() {
		return nil
	}
	informer, err := mgr.GetCache().GetInformer(ctx, l.New())
	if err != nil {
		return err
	}
	observe := func(o any) {
		if obj, ok := o.(T); ok && !l.isMine(obj) {
			l.observeElsewhere(obj)
		}
	}
	_, err = informer.AddEventHandler(guard.EventHandler("observing objects of other processes",
		cache.ResourceEventHandlerFuncs{AddFunc: observe, UpdateFunc: func(_, o any) { observe(o) }}))
	if l.Shards != nil {
		l.Shards.Observe(func(changed func(string) bool) {
			guard.Go("moving objects", func() { l.enqueueMoved(ctx, changed) })
		})
	}
	return err
}

// enqueueMoved enqueues the objects that became this replica's, or another one's.
func (l *loop[T]) enqueueMoved(ctx context.Context, changed func(key string) bool) {
	objects, err := l.all(ctx)
	if err != nil { // the cache is not filled: each object is enqueued when it is
		log.Log.V(1).Info("moved objects are not enqueued", "kind", l.GroupKind.Kind, "reason", err.Error())
		return
	}
	for _, obj := range objects {
		if changed(l.shardKey(obj)) {
			l.Edges.Enqueue(l.ref(obj))
		}
	}
}

// all returns all objects of the kind in the cache. They must not be changed.
func (l *loop[T]) all(ctx context.Context) ([]T, error) {
	gvk, err := apiutil.GVKForObject(l.New(), l.Client.Scheme())
	if err != nil {
		return nil, err
	}
	gvk.Kind += "List"
	o, err := l.Client.Scheme().New(gvk)
	if err != nil {
		return nil, err
	}
	list, ok := o.(client.ObjectList)
	if !ok {
		return nil, runtime.NewNotRegisteredErrForKind(l.Client.Scheme().Name(), gvk)
	}
	if err := l.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	var all []T
	err = apimeta.EachListItem(list, func(o runtime.Object) error {
		if obj, ok := o.(T); ok {
			all = append(all, obj)
		}
		return nil
	})
	return slices.Clip(all), err
}
