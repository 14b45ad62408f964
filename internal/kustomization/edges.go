package kustomization

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/cache"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
)

// ObserveDependencies enqueues Kustomizations when their dependencies change.
func (c *Controller) ObserveDependencies(ctx context.Context, cache cache.Cache) error {
	return c.dependencies().Observe(ctx, c.Clusters.Edges, cache, func(before, after *kustomizev1.Kustomization) bool {
		return before.Status.LastAppliedRevision != after.Status.LastAppliedRevision
	})
}
