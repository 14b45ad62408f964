package source

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// Observe enqueues the dependents of sources whose artifact changes.
func Observe(ctx context.Context, e *reconcile.Edges, c cache.Cache) error {
	return errors.Join(
		observeKind(ctx, e, c, sourcev1.GitRepositoryKind, &sourcev1.GitRepository{}),
		observeKind(ctx, e, c, sourcev1.OCIRepositoryKind, &sourcev1.OCIRepository{}),
		observeKind(ctx, e, c, sourcev1.BucketKind, &sourcev1.Bucket{}),
		observeKind(ctx, e, c, sourcev1.HelmChartKind, &sourcev1.HelmChart{}),
		reconcile.Observe(ctx, e, c, HelmRepositoryGroupKind, &sourcev1.HelmRepository{}, HelmRepositoryChanged),
		observeKind(ctx, e, c, sourcev1.ExternalArtifactKind, &sourcev1.ExternalArtifact{}),
	)
}

func observeKind[T sourcev1.Source](ctx context.Context, e *reconcile.Edges, c cache.Cache, kind string, obj T) error {
	return reconcile.Observe(ctx, e, c, schema.GroupKind{Group: sourcev1.GroupVersion.Group, Kind: kind}, obj,
		artifactChanged)
}

// artifactChanged reports whether a source has another artifact than before.
func artifactChanged[T sourcev1.Source](before, after T) bool {
	b, a := before.GetArtifact(), after.GetArtifact()
	if b == nil || a == nil {
		return b != a
	}
	return b.Revision != a.Revision || b.Digest != a.Digest
}
