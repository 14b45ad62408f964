package manager

import (
	"errors"
	"path/filepath"

	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/egress"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source"
	"github.com/sluice-gitops/sluice/internal/source/git"
	"github.com/sluice-gitops/sluice/internal/verify/cosign"
)

// sources starts the controllers of the source kinds.
type sources struct {
	mgr     ctrlmanager.Manager
	kernel  *reconcile.Kernel
	storage *storage
	options Options
	secrets source.Secrets

	egress     *egress.Policy // the one way out
	identities *auth.Identities
	registries *source.Registries
	git        *source.GitRepository
	signatures *source.Signatures
}

func runSources(mgr ctrlmanager.Manager, k *reconcile.Kernel, s *storage, out *wayOut, repositories *source.GitRepository, o Options) error {
	r := &sources{
		mgr: mgr, kernel: k, storage: s, options: o, secrets: source.Secrets{Reader: mgr.GetAPIReader()},
		egress: out.policy, identities: out.identities, git: repositories,
	}
	r.registries = &source.Registries{Secrets: r.secrets, Egress: r.egress, Identities: r.identities}
	r.signatures = &source.Signatures{Secrets: r.secrets, Egress: r.egress, Public: &cosign.PublicRoot{Egress: r.egress, Clock: k.Clock}}
	return errors.Join(
		r.gitRepositories(),
		r.ociRepositories(),
		r.helm(),
		r.buckets(),
		r.artifactGenerators(),
	)
}

func (r *sources) gitRepositories() error {
	return keep(r, source.GitRepositoryGroupKind, func() *sourcev1.GitRepository { return &sourcev1.GitRepository{} }, r.git)
}

// newRepositories makes what reads git repositories, and keeps their mirrors, for all who need them.
func newRepositories(mgr ctrlmanager.Manager, k *reconcile.Kernel, s *storage, out *wayOut, o Options) *source.GitRepository {
	return &source.GitRepository{
		Secrets:    source.Secrets{Reader: mgr.GetAPIReader()},
		Objects:    mgr.GetClient(),
		Store:      s.store,
		Mirrors:    git.NewMirrors(filepath.Join(o.StoragePath, "mirrors")),
		Egress:     out.policy,
		Identities: out.identities,
		GitHubApps: &auth.GitHubApps{},
		SSH:        &git.SSHAlgorithms{HostKeys: o.SSHHostKeys, KeyExchanges: o.SSHKeyExchanges},
		Clock:      k.Clock,
	}
}

func (r *sources) ociRepositories() error {
	return keep(r, source.OCIRepositoryGroupKind, func() *sourcev1.OCIRepository { return &sourcev1.OCIRepository{} }, &source.OCIRepository{
		Registries: r.registries,
		Signatures: r.signatures,
		Store:      r.storage.store,
	})
}

// keep starts the controller of a kind whose objects keep an artifact.
func keep[T source.Object](r *sources, gk schema.GroupKind, newObject func() T, fetcher source.Fetcher[T]) error {
	return reconcile.Register(r.mgr, r.kernel, reconcile.Kind[T]{
		GroupKind:  gk,
		New:        newObject,
		Concurrent: r.options.Concurrent,
		Sort:       reconcile.Source,
		Step:       &source.Keeper[T]{Kind: gk, Store: r.storage.store, Fetcher: fetcher},
	})
}
