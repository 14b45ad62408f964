package manager

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	imagev1alpha1 "github.com/sluice-gitops/sluice/api/image/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/image/automate"
	"github.com/sluice-gitops/sluice/internal/image/change"
	"github.com/sluice-gitops/sluice/internal/image/discover"
	"github.com/sluice-gitops/sluice/internal/image/discover/plan"
	"github.com/sluice-gitops/sluice/internal/image/reflector"
	"github.com/sluice-gitops/sluice/internal/image/release"
	"github.com/sluice-gitops/sluice/internal/image/store"
	"github.com/sluice-gitops/sluice/internal/network/listen"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/process/storage"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source"
)

func (p *process) addImageReflector(ctx context.Context) error {
	tags, err := store.Open(filepath.Join(p.StoragePath, "images"))
	if err != nil {
		return fmt.Errorf("cannot open the store of image tags in --storage-path %s: %w", p.StoragePath, err)
	}
	repositories := &reflector.Repositories{
		Registries: p.registries, Store: tags, Objects: p.mgr.GetClient(), Edges: p.kernel.Edges, Clock: p.GetClock(),
	}
	views := &reflector.Views{Store: tags}
	guard.Memory().OnPressure(func() { tags.DropCache(); views.DropCache() })
	policies := &reflector.Policies{
		Objects: p.mgr.GetClient(), Namespaces: p.mgr.GetAPIReader(), Repositories: repositories,
		Views:                views,
		NoCrossNamespaceRefs: p.RefusesCrossNamespaceRefs(),
	}
	cleanup := &reflector.Cleanup{Store: tags, Reader: p.mgr.GetAPIReader(), Namespace: p.Namespace()}
	return errors.Join(
		reflector.IndexPolicies(ctx, p.mgr.GetFieldIndexer()),
		reconcile.Observe(ctx, p.kernel.Edges, p.mgr.GetCache(), reflector.RepositoryGroupKind,
			&imagev1.ImageRepository{}, reflector.RepositoryChanged),
		registerKind(p, reconcile.Kind[*imagev1.ImageRepository]{GroupKind: reflector.RepositoryGroupKind,
			GateBehavior: reconcile.BlocksSource, Step: repositories, ShardKey: imageKey[*imagev1.ImageRepository]}),
		registerKind(p, reconcile.Kind[*imagev1.ImagePolicy]{GroupKind: reflector.PolicyGroupKind,
			GateBehavior: reconcile.Ungated, Step: policies, ShardKey: imageKey[*imagev1.ImagePolicy]}),
		p.mgr.Add(guard.Runnable("removing tags", reconcile.OnEveryReplica(cleanup.Run))),
		p.addImageServer(policies),
		p.addImageDiscovery(),
	)
}

// addImageServer adds the API of image tags. Every replica serves it.
func (p *process) addImageServer(policies *reflector.Policies) error {
	if options.IsDisabled(p.ImagesAddr) {
		return nil
	}
	access, err := p.artifactAccess()
	if err != nil {
		return err
	}
	listener, err := listen.TCP(p.ImagesAddr)
	if err != nil {
		return fmt.Errorf("cannot serve image tags on --images-addr %s: %w. Choose another address with that "+
			"flag; port 0 takes a free one", p.ImagesAddr, err)
	}
	if listener, err = storage.TLS(p.mgr.Add, listener, p.Artifacts.Certificate()); err != nil {
		return err
	}
	server := &reflector.Server{Objects: p.mgr.GetClient(), Workloads: p.mgr.GetAPIReader(), Policies: policies,
		Access: access, Standby: func() bool { return !p.hasTags() }}
	p.serveHTTP("images", listener, reflector.NewServer(server))
	return nil
}

// addImageDiscovery adds the controller that creates image objects for workloads. Without it, a process whose
// --watch-label-selector does not match these objects leaves them to another process.
func (p *process) addImageDiscovery() error {
	watched, err := labels.Parse(p.WatchLabelSelector)
	if err != nil || !watched.Matches(labels.Set{plan.Discovered: "true"}) {
		return err
	}
	return discover.Register(p.mgr, p.Namespace(), discover.Replica{Shards: p.kernel.Shards, Key: imagesKey})
}

func (p *process) addImageAutomation(ctx context.Context) error {
	writers := &change.Opener{
		Objects:              p.mgr.GetClient(),
		Remotes:              p.git,
		Secrets:              p.git.Secrets,
		Mirrors:              p.mirrors,
		Clock:                p.GetClock(),
		Fetch:                p.requestFetch(),
		NoCrossNamespaceRefs: p.RefusesCrossNamespaceRefs(),
	}
	automation := &automate.Automation{Writers: writers, Clock: p.GetClock(), Edges: p.kernel.Edges,
		ResetPushBranch: p.ResetsPushBranch()}
	jobs := *p.kernel
	jobs.Gates = release.Gates{Gatekeeper: p.gateIndex, Objects: p.mgr.GetClient()}
	return errors.Join(
		automate.ObservePolicies(ctx, p.kernel.Edges, p.mgr.GetCache()),
		reconcile.Register(p.mgr, &jobs, reconcile.Kind[*imagev1alpha1.ImageUpdateJob]{
			GroupKind:    release.GroupKind,
			New:          func() *imagev1alpha1.ImageUpdateJob { return &imagev1alpha1.ImageUpdateJob{} },
			Concurrent:   p.Concurrent,
			GateBehavior: reconcile.HoldsSync,
			Step:         &release.Jobs{Objects: p.mgr.GetClient(), Writers: writers, Clock: p.GetClock()},
		}),
		reconcile.Observe(ctx, p.kernel.Edges, p.mgr.GetCache(), automate.GroupKind, &imagev1.ImageUpdateAutomation{},
			func(before, after *imagev1.ImageUpdateAutomation) bool { return before.Generation != after.Generation }),
		registerKind(p, reconcile.Kind[*imagev1.ImageUpdateAutomation]{GroupKind: automate.GroupKind,
			GateBehavior: reconcile.HoldsSync, Step: automation, ShardKey: p.automationKey}),
	)
}

// requestFetch returns a function that requests a fetch of a GitRepository: by its edge if this process reconciles
// it, else by annotation. Gates hold either like any other pass.
func (p *process) requestFetch() func(context.Context, types.NamespacedName) error {
	annotate := source.RequestFetch(p.mgr.GetClient(), p.GetClock(), "sluice-image-automation")
	if !p.Runs(options.SourceController) {
		return annotate
	}
	return func(ctx context.Context, repository types.NamespacedName) error {
		if !p.reconciles(ctx, repository) {
			return annotate(ctx, repository)
		}
		p.kernel.Edges.Enqueue(reconcile.RefTo(source.GitRepositoryGroupKind, repository.Namespace, repository.Name))
		return nil
	}
}
