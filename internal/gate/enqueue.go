package gate

import (
	"context"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// GatedKind is a kind whose objects gates can hold.
type GatedKind struct {
	schema.GroupKind
	Object client.Object     // an empty object of the kind
	List   client.ObjectList // an empty list of the kind
}

// EnqueueSelected returns a function that enqueues the objects that a selector selects. It lists each kind once, from
// the cache.
func EnqueueSelected(ctx context.Context, cache client.Reader, e *reconcile.Edges,
	kinds []GatedKind) func(selects func(reconcile.Ref, reconcile.Gated) bool) {
	return func(selects func(reconcile.Ref, reconcile.Gated) bool) {
		for _, kind := range kinds {
			list := kind.List.DeepCopyObject().(client.ObjectList)
			if cache.List(ctx, list, client.UnsafeDisableDeepCopy) != nil {
				return // the process stops
			}
			_ = apimeta.EachListItem(list, func(o runtime.Object) error { // the function returns no error
				obj, ok := o.(reconcile.Gated)
				if !ok {
					return nil
				}
				if ref := reconcile.RefTo(kind.GroupKind, obj.GetNamespace(), obj.GetName()); selects(ref, obj) {
					e.Enqueue(ref)
				}
				return nil
			})
		}
	}
}
