package manager

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/sluice-gitops/sluice/internal/artifact/accessreview"
	"github.com/sluice-gitops/sluice/internal/credentials/seal"
	"github.com/sluice-gitops/sluice/internal/credentials/serviceaccount"
	"github.com/sluice-gitops/sluice/internal/fleet/stream"
	"github.com/sluice-gitops/sluice/internal/gate"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/process/eventrecorder"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/process/metrics"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/process/storage"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/reconcile/shard"
	"github.com/sluice-gitops/sluice/internal/rollout"
	"github.com/sluice-gitops/sluice/internal/source/access"
	"github.com/sluice-gitops/sluice/internal/source/git"
	"github.com/sluice-gitops/sluice/internal/tracing"
)

// process is what the controllers of one process share.
type process struct {
	options.Options
	mgr        ctrlmanager.Manager
	fence      *kubeclient.Fence // of all writes to clusters and to the bucket
	health     *kubeclient.Health
	recorder   reconcile.Recorder
	kernel     *reconcile.Kernel
	gateIndex  *gate.Index
	storage    *storage.Storage
	accounts   serviceaccount.Accounts
	remotes    access.Connector
	transport  http.RoundTripper // the transport of remotes.Egress
	registries *access.Registries
	claims     *rollout.Claims

	dependencies *rollout.DependencyWatch
	git          *access.Git
	mirrors      *git.Mirrors
	membership   *kubeclient.Membership // nil unless replicas share all objects
	stream       *stream.Cluster        // nil unless users of a hub reach the web UI

	kinds    []schema.GroupVersionKind     // that the process reconciles
	services []func(context.Context) error // they run longer than the controllers
	closers  []func()                      // in the order of creation
}

func newProcess(ctx context.Context, cfg *rest.Config, o options.Options, health *kubeclient.Health) (p *process,
	err error) {
	p = &process{Options: o, fence: kubeclient.NewFence(o), health: health}
	if p.mgr, err = kubeclient.Connect(ctx, cfg, o, p.fence, health); err != nil {
		return nil, err
	}
	if p.storage, err = storage.Open(o, p.fence.WrapStorage); err != nil {
		return nil, err
	}
	p.accounts = serviceaccount.Accounts{Reader: p.mgr.GetAPIReader(), Client: p.mgr.GetClient()}
	if err := p.connectRemotes(); err != nil {
		return nil, err
	}
	seals, err := kubeclient.SealKey(ctx, p.mgr, o.RuntimeNamespace, o.StoragePath)
	if err != nil {
		return nil, err
	}
	recorder, stop, err := eventrecorder.Start(ctx, p.mgr, o.RuntimeNamespace)
	if err != nil {
		return nil, err
	}
	p.recorder, p.closers = recorder, append(p.closers, stop)
	if err := p.createKernel(ctx, seals); err != nil {
		return nil, err
	}
	p.claims = &rollout.Claims{Edges: p.kernel.Edges}
	return p, p.watchDependencies()
}

// watchDependencies creates the watch of the dependencies of all controllers.
func (p *process) watchDependencies() error {
	reviewer, err := accessreview.New(p.mgr.GetConfig(), "")
	if err != nil {
		return err
	}
	if p.dependencies, err = rollout.NewDependencyWatch(p.mgr.GetConfig(), p.kernel.Edges, reviewer); err != nil {
		return err
	}
	p.closers = append(p.closers, p.dependencies.Close)
	return nil
}

// createKernel creates the kernel of all controllers.
func (p *process) createKernel(ctx context.Context, seals *seal.Key) error {
	suspects, err := guard.ReadSuspects(filepath.Join(p.StoragePath, "in-work"), p.GetClock().Now)
	if err != nil {
		p.mgr.GetLogger().Error(err, "objects in work are not recorded", "directory", p.StoragePath)
	}
	mine, err := labels.Parse(p.WatchLabelSelector)
	if err != nil {
		return fmt.Errorf("--watch-label-selector %q: %w", p.WatchLabelSelector, err)
	}
	retry := p.Retry
	retry.Jitter = float64(p.JitterPercentage) / 100
	traces := p.Traces
	traces.Version = p.Version
	tracer, stop, err := tracing.New(ctx, traces, p.mgr.GetLogger().WithName("traces"))
	if err != nil {
		return err
	}
	p.closers = append(p.closers, stop)
	p.kernel = &reconcile.Kernel{
		Client: p.mgr.GetClient(),
		Edges:  reconcile.NewEdges(),
		Events: reconcile.EmitToCluster(p.recorder),
		Clock:  p.GetClock(),
		Retry:  retry, Suspects: suspects,
		Seals: seals, Selector: mine, Tracer: tracer, Live: p.mgr.GetAPIReader(),
	}
	if p.AutoShards {
		p.kernel.Shards = &shard.Shards{}
	}
	return nil
}

// connectRemotes creates the access to git, registries and buckets, and the credentials of workload identity.
func (p *process) connectRemotes() (err error) {
	policy := p.SourceEgress()
	if p.transport, err = policy.Transport(egress.Options{}); err != nil {
		return err
	}
	// No object can name the URL of these requests, so the link-local address of the metadata server is allowed.
	metadata, err := (&egress.Policy{PerHost: p.HostLimit()}).Transport(egress.Options{})
	if err != nil {
		return err
	}
	identities := &auth.Identities{
		Accounts: p.accounts, Transport: p.transport, Metadata: metadata, CacheCapacity: p.TokenCacheLimit(),
		DefaultAccount: p.IdentityServiceAccount(),
	}
	p.remotes = access.Connector{Secrets: access.Secrets{Reader: p.mgr.GetAPIReader()}, Egress: policy,
		Identities: identities}
	p.registries = &access.Registries{Connector: p.remotes}
	p.git = &access.Git{
		Connector:  p.remotes,
		GitHubApps: &auth.GitHubApps{},
		SSH:        &git.SSHAlgorithms{HostKeys: p.SSHHostKeys, KeyExchanges: p.SSHKeyExchanges},
	}
	p.mirrors = git.NewMirrors(filepath.Join(p.StoragePath, "mirrors"))
	p.mirrors.Budget = p.storage.Budget
	guard.Memory().OnPressure(p.mirrors.DropCache)
	return p.mgr.Add(guard.Runnable("exposing metrics", metrics.ForTokens(identities)))
}

// addControllers adds what the enabled controllers share, and then each of them, to the manager.
func (p *process) addControllers(ctx context.Context) error {
	for _, add := range []func(context.Context) error{p.addArtifactServer, p.observeSources, p.observeGates,
		p.addNotifications} {
		if err := add(ctx); err != nil {
			return err
		}
	}
	for _, controller := range []struct {
		name string
		add  func(context.Context) error
	}{
		{name: options.SourceController, add: p.addSources},
		{name: options.KustomizeController, add: p.addKustomizations},
		{name: options.HelmController, add: p.addHelmReleases},
		{name: options.GatingController, add: p.addGates},
		{name: options.NotificationController, add: p.addReceivers},
		{name: options.ImageReflectorController, add: p.addImageReflector},
		{name: options.ImageAutomationController, add: p.addImageAutomation},
		{name: options.ResourceSetController, add: p.addResourceSets},
	} {
		if !p.Runs(controller.name) {
			continue
		}
		if err := controller.add(ctx); err != nil {
			return err
		}
	}
	return kubeclient.ObserveConfigs(ctx, p.mgr.GetCache(), p.kernel.Edges, p.ConfigsSelector)
}

// close releases what the process created, in reverse order.
func (p *process) close() {
	for _, c := range slices.Backward(p.closers) {
		c()
	}
}

// register starts a controller.
func register[T any, P interface {
	*T
	reconcile.Object
}](p *process, gk schema.GroupKind, behavior reconcile.GateBehavior, step reconcile.Step[P]) error {
	return registerKind(p, reconcile.Kind[P]{GroupKind: gk, GateBehavior: behavior, Step: step})
}

// registerKind starts the controller of a kind, with the settings of the process.
func registerKind[T any, P interface {
	*T
	reconcile.Object
}](p *process, kind reconcile.Kind[P]) error {
	kind.New, kind.Concurrent = func() P { return new(T) }, p.Concurrent
	gvk, err := apiutil.GVKForObject(kind.New(), p.mgr.GetScheme())
	if err != nil {
		return err
	}
	p.kinds = append(p.kinds, gvk)
	return reconcile.Register(p.mgr, p.kernel, kind)
}
