package guard

import (
	"context"

	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// EventHandler returns a handler of an informer's events that skips an event whose handler panics. An informer counts
// its first list as handled only if no handler panics, so it would never be synced otherwise. For a deletion that the
// informer missed, the handler gets the object as it was known last, as for any other deletion.
func EventHandler(work string, h cache.ResourceEventHandler) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(o any, initial bool) { Run(work, func() { h.OnAdd(o, initial) }) },
		UpdateFunc: func(before, after any) { Run(work, func() { h.OnUpdate(before, after) }) },
		DeleteFunc: func(o any) {
			if missed, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = missed.Obj
			}
			Run(work, func() { h.OnDelete(o) })
		},
	}
}

// Indexer returns a function for an index of a cache. An object for which f panics is not in the index.
func Indexer(work string, f client.IndexerFunc) client.IndexerFunc {
	return func(o client.Object) (keys []string) {
		if !Run(work, func() { keys = f(o) }) {
			return nil
		}
		return keys
	}
}

// Runnable returns a runnable of a manager that starts again after a panic, as by [Keep]. Its error would end the
// process otherwise.
func Runnable(work string, r manager.Runnable) manager.Runnable {
	return &runnable{work, r}
}

type runnable struct {
	work string
	manager.Runnable
}

// Start implements manager.Runnable.
func (r *runnable) Start(ctx context.Context) (err error) {
	Keep(ctx, r.work, func() { err = r.Runnable.Start(ctx) })
	return err
}

// NeedLeaderElection implements manager.LeaderElectionRunnable, with the manager's default.
func (r *runnable) NeedLeaderElection() bool {
	elected, ok := r.Runnable.(manager.LeaderElectionRunnable)
	return !ok || elected.NeedLeaderElection()
}

// Predicate returns a predicate that lets an event pass when p panics.
func Predicate(work string, p predicate.Predicate) predicate.Predicate {
	pass := func(f func() bool) (passes bool) {
		return !Run(work, func() { passes = f() }) || passes
	}
	return predicate.Funcs{
		CreateFunc:  func(e event.CreateEvent) bool { return pass(func() bool { return p.Create(e) }) },
		UpdateFunc:  func(e event.UpdateEvent) bool { return pass(func() bool { return p.Update(e) }) },
		DeleteFunc:  func(e event.DeleteEvent) bool { return pass(func() bool { return p.Delete(e) }) },
		GenericFunc: func(e event.GenericEvent) bool { return pass(func() bool { return p.Generic(e) }) },
	}
}
