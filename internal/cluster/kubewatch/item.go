package kubewatch

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/sluice-gitops/sluice/internal/guard"
)

// item is what is left of an object as soon as it was decoded: its name, version and value. A reflector keeps all
// objects of a list until the list is complete, and others decide how many there are, and how large.
type item[O metav1.Object, V any] struct {
	metav1.PartialObjectMetadata

	value  V
	object O // only for handlers that take whole objects
}

// DeepCopyObject implements [runtime.Object].
func (i *item[O, V]) DeepCopyObject() runtime.Object {
	c := *i
	return &c
}

// itemOf returns what the watch keeps of an object. It reports false for an object of another type. An item is returned
// as it is.
func (w *Watch[O, V, S]) itemOf(obj any) (*item[O, V], bool) {
	if i, ok := obj.(*item[O, V]); ok {
		return i, true
	}
	o, ok := obj.(O)
	if !ok {
		return nil, false
	}
	i := &item[O, V]{value: w.valueOf(o)}
	i.Namespace, i.Name, i.ResourceVersion = o.GetNamespace(), o.GetName(), o.GetResourceVersion()
	if h := w.store.handler; h.Object != nil && (h.Whole == nil || h.Whole(w.key)) {
		i.object = o
	}
	return i, true
}

// list returns a page of a list with items instead of objects.
func (w *Watch[O, V, S]) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	page, err := w.store.client.List(ctx, w.key, w.key.restrict(o))
	if err != nil {
		return page, err
	}
	m, err := meta.ListAccessor(page)
	if err != nil {
		return page, err
	}
	items := &metainternal.List{ListMeta: metav1.ListMeta{ResourceVersion: m.GetResourceVersion(),
		Continue: m.GetContinue(), RemainingItemCount: m.GetRemainingItemCount()}}
	return items, meta.EachListItem(page, func(o runtime.Object) error {
		if i, ok := w.itemOf(o); ok {
			items.Items = append(items.Items, i)
		}
		return nil
	})
}

// connect returns a watch whose events have items instead of objects.
func (w *Watch[O, V, S]) connect(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
	events, err := w.store.client.Watch(ctx, w.key, w.key.restrict(o))
	if err != nil {
		return events, err
	}
	return apiwatch.Filter(events, func(e apiwatch.Event) (apiwatch.Event, bool) {
		guard.Run("reading an event of a watch", func() {
			switch o, ok := e.Object.(O); {
			case !ok: // such as an error
			case e.Type == apiwatch.Bookmark:
				bookmark := &item[O, V]{}
				bookmark.ResourceVersion, bookmark.Annotations = o.GetResourceVersion(), o.GetAnnotations()
				e.Object = bookmark
			default:
				e.Object, _ = w.itemOf(o)
			}
		})
		return e, true
	}), nil
}

// valueOf returns the value that is stored for an object: the zero value if the projection panics.
func (w *Watch[O, V, S]) valueOf(o O) (value V) {
	guard.Run("reading a watched object", func() { value = w.project(o) })
	return value
}
