package manager

import (
	"context"
	"errors"
	"path/filepath"

	"k8s.io/apimachinery/pkg/runtime/schema"

	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/access"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source"
	"github.com/sluice-gitops/sluice/internal/verify/cosign"
)

// sources are the controllers of the source kinds, with what several of them share.
type sources struct {
	*process
	signatures *access.Signatures
}

func (p *process) runSources(context.Context) error {
	r := &sources{p, &access.Signatures{Connector: p.out.Connector,
		Public: &cosign.PublicRoot{Egress: p.out.Egress, Clock: p.clock()}}}
	return errors.Join(
		r.gitRepositories(),
		r.ociRepositories(),
		r.helm(),
		r.buckets(),
		r.artifactGenerators(),
	)
}

func (r *sources) gitRepositories() error {
	return keep(r, source.GitRepositoryGroupKind, func() *sourcev1.GitRepository { return &sourcev1.GitRepository{} },
		&source.GitRepository{
			Access:  r.git,
			Objects: r.mgr.GetClient(),
			Store:   r.storage.store,
			Mirrors: r.mirrors,
			Clock:   r.clock(),
		})
}

func (r *sources) ociRepositories() error {
	return keep(r, source.OCIRepositoryGroupKind, func() *sourcev1.OCIRepository { return &sourcev1.OCIRepository{} },
		&source.OCIRepository{
			Registries: r.registries,
			Signatures: r.signatures,
			Store:      r.storage.store,
		})
}

func (r *sources) buckets() error {
	return keep(r, source.BucketGroupKind, func() *sourcev1.Bucket { return &sourcev1.Bucket{} }, &source.Bucket{
		Access: &access.Buckets{Connector: r.out.Connector, Metadata: r.out.Identities.Metadata},
		Store:  r.storage.store,
		Dir:    filepath.Join(r.StoragePath, "buckets"),
	})
}

func (r *sources) artifactGenerators() error {
	return reconcile.Register(r.mgr, r.kernel, reconcile.Kind[*extensionsv1beta1.ArtifactGenerator]{
		GroupKind:    source.ArtifactGeneratorGroupKind,
		New:          func() *extensionsv1beta1.ArtifactGenerator { return &extensionsv1beta1.ArtifactGenerator{} },
		Concurrent:   r.Concurrent,
		GateBehavior: reconcile.BlocksSource,
		Finalizer:    extensionsv1beta1.ArtifactGeneratorFinalizer,
		Step: &source.ArtifactGenerator{
			Client:               r.mgr.GetClient(),
			Store:                r.storage.store,
			Artifacts:            r.storage.fetcher,
			Outputs:              source.Published{Client: r.mgr.GetClient(), Reader: r.mgr.GetAPIReader()},
			NoCrossNamespaceRefs: r.noCrossNamespaceRefs(),
		},
	})
}

// keep starts the controller of a kind whose objects keep an artifact.
func keep[T source.Object](r *sources, gk schema.GroupKind, newObject func() T, fetcher source.Fetcher[T]) error {
	return reconcile.Register(r.mgr, r.kernel, reconcile.Kind[T]{
		GroupKind:    gk,
		New:          newObject,
		Concurrent:   r.Concurrent,
		GateBehavior: reconcile.BlocksSource,
		Step:         &source.Keeper[T]{Kind: gk, Store: r.storage.store, Fetcher: fetcher},
	})
}
