package manager

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/sluice-gitops/sluice/internal/access"
	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/gate"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source/git"
)

// process is what the controllers of one process share.
type process struct {
	Options
	mgr        ctrlmanager.Manager
	recorder   reconcile.Recorder
	kernel     *reconcile.Kernel
	book       *gate.Book
	storage    *storage
	out        *wayOut
	registries *access.Registries
	git        *access.Git
	mirrors    *git.Mirrors

	ends []func() // what is to be done at the end, in the order that it was begun
}

func newProcess(ctx context.Context, cfg *rest.Config, o Options) (p *process, err error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst = o.KubeAPIQPS, o.KubeAPIBurst
	cfg.UserAgent = "sluice"
	cfg.WarningHandler = rest.NoWarnings{} // the API server's warnings are for who wrote the manifest, not for our log

	p = &process{Options: o}
	if p.mgr, err = connect(ctx, cfg, o); err != nil {
		return nil, err
	}
	if p.storage, err = newStorage(o); err != nil {
		return nil, err
	}
	if p.out, err = newWayOut(p.mgr, o); err != nil {
		return nil, err
	}
	recorder, end, err := recordEvents(ctx, p.mgr)
	if err != nil {
		return nil, err
	}
	p.recorder, p.ends = recorder, append(p.ends, end)
	p.kernel = newKernel(p.mgr, reconcile.EmitToCluster(recorder), o)
	p.registries = &access.Registries{Connector: p.out.Connector}
	p.git = &access.Git{
		Connector:  p.out.Connector,
		GitHubApps: &auth.GitHubApps{},
		SSH:        &git.SSHAlgorithms{HostKeys: p.SSHHostKeys, KeyExchanges: p.SSHKeyExchanges},
	}
	p.mirrors = git.NewMirrors(filepath.Join(p.StoragePath, "mirrors"))
	return p, nil
}

// definitionsPatience is how long the cluster may take to serve our kinds: they are often installed together
// with the controllers.
const definitionsPatience = time.Minute

// connect makes the manager once the cluster serves our kinds.
func connect(ctx context.Context, cfg *rest.Config, o Options) (mgr ctrlmanager.Manager, err error) {
	_ = wait.PollUntilContextTimeout(ctx, time.Second, definitionsPatience, true, func(context.Context) (bool, error) {
		mgr, err = newManager(cfg, o)
		return !apimeta.IsNoMatchError(err), nil
	}) // err says what it waited for
	switch {
	case apimeta.IsNoMatchError(err):
		return nil, fmt.Errorf("the cluster does not serve all kinds of Sluice: %w. Run sluice install, or sluice "+
			"install --crds-only", err)
	case err != nil:
		return nil, fmt.Errorf("cannot reach the cluster: %w", err)
	}
	return mgr, nil
}

// runControllers starts what the chosen controllers share, and then each of them.
func (p *process) runControllers(ctx context.Context) error {
	for _, run := range []func(context.Context) error{p.serveArtifacts, p.observeSources, p.keepBook,
		p.runNotifications} {
		if err := run(ctx); err != nil {
			return err
		}
	}
	for _, controller := range []struct {
		name string
		run  func(context.Context) error
	}{
		{SourceController, p.runSources},
		{KustomizeController, p.runKustomizations},
		{GatingController, p.runGates},
		{NotificationController, p.runReceivers},
		{ImageReflectorController, p.runImages},
		{ImageAutomationController, p.runImageAutomations},
	} {
		if !p.runs(controller.name) {
			continue
		}
		if err := controller.run(ctx); err != nil {
			return err
		}
	}
	return p.observeConfigs(ctx)
}

// end ends what was begun, the last one first.
func (p *process) end() {
	for i := len(p.ends) - 1; i >= 0; i-- {
		p.ends[i]()
	}
}

func newKernel(mgr ctrlmanager.Manager, events reconcile.Events, o Options) *reconcile.Kernel {
	retry := o.Retry
	retry.Jitter = float64(o.JitterPercentage) / 100
	return &reconcile.Kernel{
		Client: mgr.GetClient(),
		Edges:  reconcile.NewEdges(),
		Events: events,
		Clock:  o.clock(),
		Retry:  retry,
	}
}

// observeConfigs wakes objects whose referenced ConfigMap or Secret changed; only those labelled for it are
// watched, by metadata alone.
func (p *process) observeConfigs(ctx context.Context) error {
	if p.ConfigsSelector == "" {
		return nil
	}
	for _, kind := range []string{"ConfigMap", "Secret"} {
		changed := func(before, after *metav1.PartialObjectMetadata) bool {
			return before.ResourceVersion != after.ResourceVersion
		}
		if err := reconcile.Observe(ctx, p.kernel.Edges, p.mgr.GetCache(), schema.GroupKind{Kind: kind},
			configMetadata(kind), changed); err != nil {
			return err
		}
	}
	return nil
}
