package reconcile

import (
	"context"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// writer writes the status of one pass.
type writer[T Object] struct {
	*loop[T]
	before T // as the pass found it, for events
	base   T // as the API server has it, for the next patch
}

// writeTime is how long a status may take to be written.
const writeTime = 10 * time.Second

// write patches what changed of the status since it was last written; nothing when nothing did. A request
// that is under way when the process is told to stop comes to its end: what was written is told, as no later
// process would.
func (w *writer[T]) write(ctx context.Context, obj T) error {
	if equality.Semantic.DeepEqual(obj, w.base) {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTime)
	defer cancel()
	// Patch decodes the answer into its argument: a copy, so that the step's pointers into obj stay valid.
	sent := obj.DeepCopyObject().(T)
	if err := w.Client.Status().Patch(ctx, sent, client.MergeFrom(w.base)); err != nil {
		return err
	}
	obj.SetResourceVersion(sent.GetResourceVersion())
	w.base = obj.DeepCopyObject().(T)
	w.written.keep(sent)
	return nil
}

// patchFinalizers writes the object's finalizers, which were before, guarded by its resource version.
func (l *loop[T]) patchFinalizers(ctx context.Context, obj T, before []string) error {
	base := obj.DeepCopyObject().(T)
	base.SetFinalizers(before)
	sent := obj.DeepCopyObject().(T)
	if err := l.Client.Patch(ctx, sent, client.MergeFromWithOptions(base,
		client.MergeFromWithOptimisticLock{})); err != nil {
		return err
	}
	obj.SetResourceVersion(sent.GetResourceVersion())
	l.written.keep(sent)
	return nil
}

// written keeps what we last wrote of each object until the cache has caught up, so that a pass that is woken at once
// never reads a status older than its own last word.
type written[T Object] struct {
	mu   sync.Mutex
	last map[types.NamespacedName]T
}

func newWritten[T Object]() *written[T] {
	return &written[T]{last: map[types.NamespacedName]T{}}
}

func (w *written[T]) keep(obj T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last[client.ObjectKeyFromObject(obj)] = obj.DeepCopyObject().(T)
}

func (w *written[T]) forget(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.last, key)
}

// newest returns what was written last if the cached object is older than that, else the cached object.
func (w *written[T]) newest(cached T) T {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := client.ObjectKeyFromObject(cached)
	last, ok := w.last[key]
	if !ok {
		return cached
	}
	if last.GetUID() == cached.GetUID() && older(cached.GetResourceVersion(), last.GetResourceVersion()) {
		return last.DeepCopyObject().(T)
	}
	delete(w.last, key)
	return cached
}

// older compares resource versions, which are ordered numbers for every built-in and custom resource (KEP-5504).
func older(a, b string) bool {
	x, err1 := strconv.ParseUint(a, 10, 64)
	y, err2 := strconv.ParseUint(b, 10, 64)
	return err1 == nil && err2 == nil && x < y
}
