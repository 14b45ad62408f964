package manager

import (
	"context"
	"errors"
	"path/filepath"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	"github.com/sluice-gitops/sluice/internal/credentials/verify/cosign"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/process/metrics"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/rollout"
	"github.com/sluice-gitops/sluice/internal/source"
	"github.com/sluice-gitops/sluice/internal/source/access"
)

// observeSources enqueues what builds on a source when its artifact changes.
func (p *process) observeSources(ctx context.Context) error {
	return source.Observe(ctx, p.kernel.Edges, p.mgr.GetCache())
}

func (p *process) addSources(context.Context) error {
	signatures := &access.Signatures{Connector: p.remotes,
		Public: &cosign.PublicRoot{Egress: p.remotes.Egress, Clock: p.GetClock()}}
	return errors.Join(
		addSource(p, source.GitRepositoryGroupKind, &source.GitRepository{
			Access: p.git, Objects: p.mgr.GetClient(), Store: p.storage.Store, Mirrors: p.mirrors, Clock: p.GetClock(),
		}, gitKey),
		addSource(p, source.OCIRepositoryGroupKind, &source.OCIRepository{
			Registries: p.registries, Signatures: signatures,
		}, nil),
		addSource(p, source.BucketGroupKind, &source.Bucket{
			Access: &access.Buckets{Connector: p.remotes, Metadata: p.remotes.Identities.Metadata},
			Store:  p.storage.Store, Dir: filepath.Join(p.StoragePath, "buckets"), Budget: p.storage.Budget,
		}, nil),
		p.addHelm(signatures),
		p.addArtifactGenerators(),
	)
}

func (p *process) addHelm(signatures *access.Signatures) error {
	charts := &source.HelmCharts{
		Connector: p.remotes, Objects: p.mgr.GetClient(), Registries: p.registries, Store: p.storage.Store,
		Limits: p.HelmLimits,
	}
	return errors.Join(
		p.mgr.Add(guard.Runnable("exposing metrics", metrics.ForIndexes(&charts.Indexes))),
		addSource(p, source.HelmRepositoryGroupKind, &source.HelmRepository{Charts: charts}, nil),
		addSource(p, source.HelmChartGroupKind, &source.HelmChart{
			Objects: p.mgr.GetClient(), Secrets: p.remotes.Secrets, Charts: charts, Signatures: signatures,
			Artifacts: p.storage.Fetcher, Clock: p.GetClock(),
		}, chartKey),
	)
}

func (p *process) addArtifactGenerators() error {
	return registerKind(p, reconcile.Kind[*extensionsv1beta1.ArtifactGenerator]{
		GroupKind:    source.ArtifactGeneratorGroupKind,
		GateBehavior: reconcile.BlocksSource,
		Finalizer:    extensionsv1beta1.ArtifactGeneratorFinalizer,
		Step: &source.ArtifactGenerator{
			Client:                p.mgr.GetClient(),
			Store:                 p.storage.Store,
			Artifacts:             p.storage.Fetcher,
			Outputs:               source.Outputs{Client: p.mgr.GetClient(), Reader: p.mgr.GetAPIReader()},
			Events:                p.kernel.Events,
			NoCrossNamespaceRefs:  p.RefusesCrossNamespaceRefs(),
			OneNamespace:          !p.WatchAllNamespaces,
			ControllerNamespace:   p.RuntimeNamespace,
			DefaultServiceAccount: p.DefaultAccount,
			Impersonate:           p.impersonate,
		},
	})
}

// impersonate returns a client that acts as a service account.
func (p *process) impersonate(account types.NamespacedName) (client.Client, error) {
	cfg := rest.CopyConfig(p.mgr.GetConfig())
	cfg.Impersonate = rest.ImpersonationConfig{UserName: rollout.UserName(account)}
	return client.New(cfg, client.Options{Scheme: p.mgr.GetScheme(), Mapper: p.mgr.GetRESTMapper()})
}

// addSource starts the controller of a kind that has an artifact. The key may be nil.
func addSource[T any, P interface {
	*T
	source.Object
}, R source.Revision](p *process, gk schema.GroupKind, fetcher source.Fetcher[P, R], key func(P) string) error {
	return registerKind(p, reconcile.Kind[P]{GroupKind: gk, GateBehavior: reconcile.BlocksSource, ShardKey: key,
		Step: &source.Controller[P, R]{Kind: gk, Store: p.storage.Store, Fetcher: fetcher}})
}
