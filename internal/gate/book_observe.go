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
)

// +kubebuilder:rbac:groups=gating.toolkit.fluxcd.io,resources=gates,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch

// Observe keeps the book by the gates of the cache.
func (b *Book) Observe(ctx context.Context, c cache.Cache) error {
	return b.handle(ctx, c, &gatingv1.Gate{}, toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { b.put(o) },
		UpdateFunc: func(_, o any) { b.put(o) },
		DeleteFunc: func(o any) {
			if key, ok := keyOf(o); ok {
				b.Drop(key)
			}
		},
	})
}

func (b *Book) put(o any) {
	if g, ok := o.(*gatingv1.Gate); ok {
		b.Put(g)
	}
}

// ObserveNamespaces lets gates select by the labels of namespaces, which the cache knows by their metadata.
func (b *Book) ObserveNamespaces(ctx context.Context, c cache.Cache) error {
	b.Namespace = NamespaceLabels(c)
	return b.handle(ctx, c, namespaceMetadata(), toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(o any, initial bool) {
			if key, ok := keyOf(o); ok && !initial {
				b.NamespaceMoved(key.Name)
			}
		},
		UpdateFunc: func(before, after any) {
			was, ok1 := before.(client.Object)
			is, ok2 := after.(client.Object)
			if ok1 && ok2 && !maps.Equal(was.GetLabels(), is.GetLabels()) {
				b.NamespaceMoved(is.GetName())
			}
		},
	})
}

// namespaceTimeout bounds the read of a namespace; one that is not read in time is as one that is not there.
const namespaceTimeout = 10 * time.Second

// NamespaceLabels reads the labels of namespaces.
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

func (b *Book) handle(ctx context.Context, c cache.Cache, kind client.Object, h toolscache.ResourceEventHandler) error {
	informer, err := c.GetInformer(ctx, kind)
	if err != nil {
		return err
	}
	registration, err := informer.AddEventHandler(h)
	if err == nil {
		b.synced = append(b.synced, registration.HasSynced)
	}
	return err
}

// WaitForSync implements [reconcile.Gatekeeper].
func (b *Book) WaitForSync(ctx context.Context) error {
	for _, synced := range b.synced {
		if !toolscache.WaitForCacheSync(ctx.Done(), synced) {
			return fmt.Errorf("the gates cannot be listed: %w", context.Cause(ctx))
		}
	}
	return nil
}

func keyOf(o any) (types.NamespacedName, bool) {
	if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	m, ok := o.(client.Object)
	if !ok {
		return types.NamespacedName{}, false
	}
	return client.ObjectKeyFromObject(m), true
}
