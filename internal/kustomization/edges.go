package kustomization

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// anyChangeGroupKind stands for Kustomizations in the edges of those whose readyExpr may look at anything in them.
var anyChangeGroupKind = schema.GroupKind{Group: KustomizationGroupKind.Group, Kind: KustomizationGroupKind.Kind + "*"}

// ObserveDependencies fires the edges of Kustomizations.
func ObserveDependencies(ctx context.Context, e *reconcile.Edges, c cache.Cache) error {
	changed := func(before, after *kustomizev1.Kustomization) bool {
		return before.ResourceVersion != after.ResourceVersion
	}
	return errors.Join(
		reconcile.Observe(ctx, e, c, KustomizationGroupKind, &kustomizev1.Kustomization{}, dependencyMoved),
		reconcile.Observe(ctx, e, c, anyChangeGroupKind, &kustomizev1.Kustomization{}, changed),
	)
}

// dependencyMoved tells whether a change of a Kustomization is one that its dependents act on. That one
// stalls tells them of a cycle, which may have closed where they do not look.
func dependencyMoved(before, after *kustomizev1.Kustomization) bool {
	return reconcile.IsReady(before) != reconcile.IsReady(after) ||
		reconcile.IsStalled(before) != reconcile.IsStalled(after) ||
		before.Status.LastAppliedRevision != after.Status.LastAppliedRevision ||
		before.Generation != after.Generation
}
