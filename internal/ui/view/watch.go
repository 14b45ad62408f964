package view

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/cluster/resourceversion"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// Watch keeps the model up to date with all kinds until the context ends. Where the client may not list a kind in all
// namespaces, it watches that kind in the given namespace only. Watch returns at once; [Model.Status] reports progress.
func (m *Model) Watch(ctx context.Context, c client.WithWatch, namespace string) {
	for _, k := range kind.All() {
		m.setLoading(k.Name(), true)
		w := &watcher{model: m, kind: k, client: c}
		guard.Go("watch of "+k.Name()+" for the UI", func() { w.run(ctx, namespace) })
	}
}

// watcher watches one kind.
type watcher struct {
	model     *Model
	kind      *kind.Kind
	client    client.WithWatch
	namespace string
}

func (w *watcher) run(ctx context.Context, fallback string) {
	err := w.client.List(ctx, w.kind.NewList(), client.Limit(1))
	if apierrors.IsForbidden(err) {
		w.namespace = fallback
	}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list := w.kind.NewList()
			err := w.client.List(ctx, list, client.InNamespace(w.namespace), &client.ListOptions{Raw: &o,
				Limit: o.Limit, Continue: o.Continue})
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return w.client.Watch(ctx, w.kind.NewList(), client.InNamespace(w.namespace), &client.ListOptions{Raw: &o})
		},
	}
	informer := cache.NewSharedIndexInformer(resourceversion.Relisting(lw), w.kind.New(), 0, nil)
	if err := w.configure(informer); err != nil {
		w.model.setProblem(w.kind.Name(), err.Error())
		return
	}
	guard.Go("first list of "+w.kind.Name()+" for the UI", func() {
		if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			w.model.setProblem(w.kind.Name(), "")
			w.model.setLoading(w.kind.Name(), false)
		}
	})
	informer.RunWithContext(ctx)
}

// configure makes the informer keep records instead of whole objects, and report its errors.
func (w *watcher) configure(informer cache.SharedIndexInformer) error {
	if err := informer.SetTransform(w.record); err != nil {
		return err
	}
	err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		w.model.setProblem(w.kind.Name(), describe(w.kind, err))
	})
	if err != nil {
		return err
	}
	work := "event of " + w.kind.Name() + " for the UI"
	_, err = informer.AddEventHandler(guard.EventHandler(work, cache.ResourceEventHandlerFuncs{
		AddFunc:    w.put,
		UpdateFunc: func(_, o any) { w.put(o) },
		DeleteFunc: func(o any) {
			if r, ok := o.(*record); ok {
				w.model.remove(r.item.ID)
			}
		},
	}))
	return err
}

// record is what the informer keeps of an object.
type record struct {
	metav1.ObjectMeta
	item *Item
}

// record is a [cache.TransformFunc].
func (w *watcher) record(o any) (any, error) {
	obj, ok := o.(reconcile.Object)
	if !ok {
		return o, nil // a record already, or a tombstone
	}
	r := &record{ObjectMeta: metav1.ObjectMeta{Namespace: obj.GetNamespace(), Name: obj.GetName(),
		ResourceVersion: obj.GetResourceVersion()}}
	if err := guard.Do("record for the UI", func() error { r.item = Of(w.kind, obj); return nil }); err != nil {
		r.item = &Item{ID: ID(w.kind.Name(), r.Namespace, r.Name), Kind: w.kind.Name(), Namespace: r.Namespace,
			Name: r.Name, State: Failed, Reason: "Unreadable", Message: err.Error(), version: r.ResourceVersion}
	}
	return r, nil
}

func (w *watcher) put(o any) {
	if r, ok := o.(*record); ok {
		w.model.setProblem(w.kind.Name(), "")
		w.model.put(r.item)
	}
}

// describe says why a kind cannot be watched, and what to do.
func describe(k *kind.Kind, err error) string {
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("You may not list %s objects. Ask an administrator for the verbs list and watch.", k.Name())
	case apierrors.IsNotFound(err), apimeta.IsNoMatchError(err):
		return fmt.Sprintf("The cluster does not serve %s. Run sluice install.", k.Name())
	case apierrors.IsUnauthorized(err):
		return "The cluster rejected the credentials. Log in again, and restart this command."
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
		return "" // the informer lists again
	}
	return fmt.Sprintf("Lost the connection to the cluster, connecting again: %v", err)
}
