package alert

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
)

// labelsTimeout limits the first lookup of a kind, which starts its informer.
const labelsTimeout = 10 * time.Second

// CachedLabels returns a function that reads labels from the manager's cache. Kinds of the scheme are read from the
// cache of their controller, which holds an object as it was when it was reconciled; other kinds are cached as
// metadata.
func CachedLabels(mgr ctrlmanager.Manager) Labels {
	return func(ctx context.Context, kind string, key types.NamespacedName) labels.Set {
		mapping, err := mgr.GetRESTMapper().RESTMapping(schema.GroupKind{Group: notificationv1.GroupOf(kind),
			Kind: kind})
		if err != nil {
			return nil // the kind is not installed
		}
		var obj client.Object
		if known, err := mgr.GetScheme().New(mapping.GroupVersionKind); err == nil {
			obj, _ = known.(client.Object)
		}
		if obj == nil {
			metadata := &metav1.PartialObjectMetadata{}
			metadata.SetGroupVersionKind(mapping.GroupVersionKind)
			obj = metadata
		}
		ctx, cancel := context.WithTimeout(ctx, labelsTimeout)
		defer cancel()
		if err := mgr.GetCache().Get(ctx, key, obj); err != nil {
			return nil
		}
		return obj.GetLabels()
	}
}
