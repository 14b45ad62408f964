package reconcile

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/cluster/resourceversion"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/reconcile/shard"
)

// statusWriter writes the status in one pass.
type statusWriter[T Object] struct {
	*loop[T]
	before T // the object at the start of the pass, for events
	base   T // the object as the API server has it, for the next patch
}

func newStatusWriter[T Object](l *loop[T], obj T) *statusWriter[T] {
	return &statusWriter[T]{loop: l, before: obj.DeepCopyObject().(T), base: obj.DeepCopyObject().(T)}
}

// writeTimeout bounds one status patch.
const writeTimeout = 10 * time.Second

// write patches what changed of the status since the last write, and does nothing if nothing changed. A request that
// has started is completed even if the process is stopping, so that the status reports what was done.
func (w *statusWriter[T]) write(ctx context.Context, obj T) error {
	if meta.Equal(obj, w.base) {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	// Patch decodes the response into its argument: a copy keeps the step's pointers into obj valid.
	sent := obj.DeepCopyObject().(T)
	if err := w.patch(ctx, sent); err != nil {
		return err
	}
	obj.SetResourceVersion(sent.GetResourceVersion())
	w.base = obj.DeepCopyObject().(T)
	w.writes.store(sent)
	return nil
}

// maxConflicts bounds how often a write is repeated because others changed the object meanwhile.
const maxConflicts = 5

// patch sends one status patch. If the spec can move the object to another replica, the patch is sent for the version
// that this pass knows: else a pass of the replica before could overwrite what the next one wrote.
func (w *statusWriter[T]) patch(ctx context.Context, sent T) error {
	if w.Shards == nil || w.ShardKey == nil {
		return w.Client.Status().Patch(ctx, sent, client.MergeFrom(w.base))
	}
	for i := 0; ; i++ {
		err := w.Client.Status().Patch(ctx, sent,
			client.MergeFromWithOptions(w.base, client.MergeFromWithOptimisticLock{}))
		if !apierrors.IsConflict(err) || i == maxConflicts {
			return err
		}
		live := w.New()
		if err := w.Live.Get(ctx, client.ObjectKeyFromObject(sent), live); err != nil {
			return err
		}
		if !w.isMine(live) {
			return shard.ErrMoved
		}
		w.base.SetResourceVersion(live.GetResourceVersion())
	}
}

// patchFinalizers writes the object's finalizers with optimistic locking. before is their previous value.
func (l *loop[T]) patchFinalizers(ctx context.Context, obj T, before []string) error {
	base := obj.DeepCopyObject().(T)
	base.SetFinalizers(before)
	sent := obj.DeepCopyObject().(T)
	if err := l.Client.Patch(ctx, sent, client.MergeFromWithOptions(base,
		client.MergeFromWithOptimisticLock{})); err != nil {
		return err
	}
	obj.SetResourceVersion(sent.GetResourceVersion())
	l.writes.store(sent)
	return nil
}

// writeCache keeps the last version that we wrote of each object until the informer's cache has it, so that a pass
// never reads a status older than our own last write.
type writeCache[T Object] struct {
	mu     sync.Mutex
	last   map[types.NamespacedName]T
	cached map[types.NamespacedName]string // the resource version that the informer's cache has at least
}

func newWriteCache[T Object]() *writeCache[T] {
	return &writeCache[T]{last: map[types.NamespacedName]T{}, cached: map[types.NamespacedName]string{}}
}

// store keeps what we wrote. The event of a write may come before its response: then there is nothing to keep.
func (w *writeCache[T]) store(obj T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := client.ObjectKeyFromObject(obj)
	if cached, ok := w.cached[key]; ok && !resourceversion.Newer(obj.GetResourceVersion(), cached) {
		delete(w.last, key)
		return
	}
	w.last[key] = obj.DeepCopyObject().(T)
}

func (w *writeCache[T]) forget(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.last, key)
	delete(w.cached, key)
}

// follow is a predicate that lets all events of the informer pass, and drops what its cache has.
func (w *writeCache[T]) follow() predicate.Predicate {
	return guard.Predicate("following the cache", predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { w.caughtUp(e.Object); return true },
		UpdateFunc: func(e event.UpdateEvent) bool { w.caughtUp(e.ObjectNew); return true },
		DeleteFunc: func(e event.DeleteEvent) bool { w.forget(client.ObjectKeyFromObject(e.Object)); return true },
	})
}

// caughtUp notes that the informer's cache has an object.
func (w *writeCache[T]) caughtUp(cached client.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := client.ObjectKeyFromObject(cached)
	w.cached[key] = cached.GetResourceVersion()
	if last, ok := w.last[key]; ok && !isAhead(last, cached) {
		delete(w.last, key)
	}
}

// newest returns the last written version if it is newer than the cached object, else the cached object.
func (w *writeCache[T]) newest(cached T) T {
	w.mu.Lock()
	defer w.mu.Unlock()
	last, ok := w.last[client.ObjectKeyFromObject(cached)]
	if ok && isAhead(last, cached) {
		return last.DeepCopyObject().(T)
	}
	return cached
}

// isAhead reports whether what we wrote is newer than what the informer's cache has of the same object.
func isAhead(written, cached client.Object) bool {
	return written.GetUID() == cached.GetUID() &&
		resourceversion.Newer(written.GetResourceVersion(), cached.GetResourceVersion())
}
