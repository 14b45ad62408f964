package manager

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/kustomization"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source"
)

// observeSources wakes what builds on a source when its artifact is another one.
func (p *process) observeSources(ctx context.Context) error {
	e, c := p.kernel.Edges, p.mgr.GetCache()
	return errors.Join(
		observe(ctx, e, c, sourcev1.GitRepositoryKind, &sourcev1.GitRepository{}),
		observe(ctx, e, c, sourcev1.OCIRepositoryKind, &sourcev1.OCIRepository{}),
		observe(ctx, e, c, sourcev1.BucketKind, &sourcev1.Bucket{}),
		observe(ctx, e, c, sourcev1.HelmChartKind, &sourcev1.HelmChart{}),
		reconcile.Observe(ctx, e, c, source.HelmRepositoryGroupKind, &sourcev1.HelmRepository{},
			source.HelmRepositoryMoved),
		observe(ctx, e, c, sourcev1.ExternalArtifactKind, &sourcev1.ExternalArtifact{}),
	)
}

func observe[T sourcev1.Source](ctx context.Context, e *reconcile.Edges, c cache.Cache, kind string, obj T) error {
	return reconcile.Observe(ctx, e, c, schema.GroupKind{Group: sourcev1.GroupVersion.Group, Kind: kind}, obj,
		kustomization.SourceMoved)
}
