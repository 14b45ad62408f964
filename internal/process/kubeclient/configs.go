package kubeclient

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// ObserveConfigs enqueues objects whose referenced ConfigMap or Secret changes. Only the metadata of those that match
// the selector of --watch-configs-label-selector is watched; without a selector, none is.
func ObserveConfigs(ctx context.Context, c cache.Cache, edges *reconcile.Edges, selector string) error {
	if selector == "" {
		return nil
	}
	changed := func(before, after *metav1.PartialObjectMetadata) bool {
		return before.ResourceVersion != after.ResourceVersion
	}
	for _, kind := range []string{"ConfigMap", "Secret"} {
		err := reconcile.Observe(ctx, edges, c, schema.GroupKind{Kind: kind}, ConfigMetadata(kind), changed)
		if err != nil {
			return err
		}
	}
	return nil
}
