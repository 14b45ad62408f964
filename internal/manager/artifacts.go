package manager

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source"
	"github.com/sluice-gitops/sluice/internal/sync"
)

// observeSources wakes what builds on a source when its artifact is another one.
func observeSources(ctx context.Context, mgr ctrlmanager.Manager, e *reconcile.Edges) error {
	return errors.Join(
		observe(ctx, mgr, e, sourcev1.GitRepositoryKind, &sourcev1.GitRepository{}),
		observe(ctx, mgr, e, sourcev1.OCIRepositoryKind, &sourcev1.OCIRepository{}),
		observe(ctx, mgr, e, sourcev1.BucketKind, &sourcev1.Bucket{}),
		observe(ctx, mgr, e, sourcev1.HelmChartKind, &sourcev1.HelmChart{}),
		reconcile.Observe(ctx, e, mgr.GetCache(), source.HelmRepositoryGroupKind, &sourcev1.HelmRepository{}, source.HelmRepositoryMoved),
		observe(ctx, mgr, e, sourcev1.ExternalArtifactKind, &sourcev1.ExternalArtifact{}),
	)
}

func observe[T sourcev1.Source](ctx context.Context, mgr ctrlmanager.Manager, e *reconcile.Edges, kind string, obj T) error {
	return reconcile.Observe(ctx, e, mgr.GetCache(), schema.GroupKind{Group: sourcev1.GroupVersion.Group, Kind: kind}, obj, sync.SourceMoved)
}

func (r *sources) artifactGenerators() error {
	return reconcile.Register(r.mgr, r.kernel, reconcile.Kind[*extensionsv1beta1.ArtifactGenerator]{
		GroupKind:  source.ArtifactGeneratorGroupKind,
		New:        func() *extensionsv1beta1.ArtifactGenerator { return &extensionsv1beta1.ArtifactGenerator{} },
		Concurrent: r.options.Concurrent,
		Sort:       reconcile.Source,
		Finalizer:  extensionsv1beta1.ArtifactGeneratorFinalizer,
		Step: &source.ArtifactGenerator{
			Client:               r.mgr.GetClient(),
			Store:                r.storage.store,
			Artifacts:            r.storage.fetcher,
			Outputs:              source.Published{Client: r.mgr.GetClient(), Reader: r.mgr.GetAPIReader()},
			NoCrossNamespaceRefs: r.options.NoCrossNamespaceRef,
		},
	})
}
