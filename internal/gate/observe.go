package gate

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// +kubebuilder:rbac:groups=gating.toolkit.fluxcd.io,resources=gates,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch

// Observe keeps the index up to date with the gates of a cache.
func (x *Index) Observe(ctx context.Context, c cache.Cache) error {
	put := func(o any) {
		if g, ok := o.(*gatingv1.Gate); ok {
			x.Put(g)
		}
	}
	return x.handle(ctx, c, &gatingv1.Gate{}, toolscache.ResourceEventHandlerFuncs{
		AddFunc:    put,
		UpdateFunc: func(_, o any) { put(o) },
		DeleteFunc: func(o any) {
			if key, ok := keyOf(o); ok {
				x.Delete(key)
			}
		},
	})
}

// ObserveMembers keeps the waves of gates up to date with the objects of a cache that they can order.
func (x *Index) ObserveMembers(ctx context.Context, c cache.Cache, kinds []GatedKind) error {
	for _, kind := range kinds {
		if gated, ok := kind.Object.(reconcile.Gated); !ok || !isDivided(gated) {
			continue
		}
		observe := func(o any) {
			if obj, ok := o.(reconcile.Gated); ok {
				x.ObserveMember(reconcile.RefTo(kind.GroupKind, obj.GetNamespace(), obj.GetName()), obj)
			}
		}
		if err := x.handle(ctx, c, kind.Object, toolscache.ResourceEventHandlerFuncs{
			AddFunc:    observe,
			UpdateFunc: func(_, o any) { observe(o) },
			DeleteFunc: func(o any) {
				if key, ok := keyOf(o); ok {
					x.ObserveMember(reconcile.Ref{GroupKind: kind.GroupKind, NamespacedName: key}, nil)
				}
			},
		}); err != nil {
			return err
		}
	}
	return nil
}

// isDivided reports whether waves order the objects of a kind.
func isDivided(obj reconcile.Gated) bool {
	_, ok := sourceOf(obj)
	return ok
}

// ObserveNamespaces lets gates select by the labels of namespaces. The cache holds only the metadata of namespaces.
func (x *Index) ObserveNamespaces(ctx context.Context, c cache.Cache) error {
	x.Namespace = NamespaceLabels(c)
	return x.handle(ctx, c, namespaceMetadata(), toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(o any, initial bool) {
			if key, ok := keyOf(o); ok && !initial {
				x.NamespaceChanged(key.Name)
			}
		},
		UpdateFunc: func(before, after any) {
			previous, ok1 := before.(client.Object)
			current, ok2 := after.(client.Object)
			if ok1 && ok2 && !maps.Equal(previous.GetLabels(), current.GetLabels()) {
				x.NamespaceChanged(current.GetName())
			}
		},
	})
}

// namespaceTimeout bounds the read of a namespace.
const namespaceTimeout = 10 * time.Second

// NamespaceLabels returns a function for [Index.Namespace] that reads from r.
func NamespaceLabels(r client.Reader) func(string) (labels.Set, bool) {
	return func(name string) (labels.Set, bool) {
		ctx, cancel := context.WithTimeout(context.Background(), namespaceTimeout)
		defer cancel()
		n := namespaceMetadata()
		err := r.Get(ctx, types.NamespacedName{Name: name}, n)
		return n.Labels, err == nil
	}
}

func namespaceMetadata() *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return m
}

func (x *Index) handle(ctx context.Context, c cache.Cache, kind client.Object,
	h toolscache.ResourceEventHandler) error {
	informer, err := c.GetInformer(ctx, kind)
	if err != nil {
		return err
	}
	registration, err := informer.AddEventHandler(guard.EventHandler("observing gates", h))
	if err == nil {
		x.synced = append(x.synced, registration.HasSynced)
	}
	return err
}

// WaitForSync implements [reconcile.Gatekeeper].
func (x *Index) WaitForSync(ctx context.Context) error {
	for _, synced := range x.synced {
		if !toolscache.WaitForCacheSync(ctx.Done(), synced) {
			return fmt.Errorf("cannot list the gates: %w", context.Cause(ctx))
		}
	}
	return nil
}

func keyOf(o any) (types.NamespacedName, bool) {
	obj, ok := o.(client.Object)
	if !ok {
		return types.NamespacedName{}, false
	}
	return client.ObjectKeyFromObject(obj), true
}
