package manager

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	imagev1alpha1 "github.com/sluice-gitops/sluice/api/image/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/image/automate"
	"github.com/sluice-gitops/sluice/internal/image/job"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source"
)

// runImageAutomations commits the images that policies choose.
func runImageAutomations(ctx context.Context, mgr ctrlmanager.Manager, k *reconcile.Kernel, repositories *source.GitRepository, o Options) error {
	if err := automate.ObservePolicies(ctx, k.Edges, mgr.GetCache()); err != nil {
		return err
	}
	automation := &automate.Automation{
		Objects:              mgr.GetClient(),
		Remotes:              repositories,
		Secrets:              repositories.Secrets,
		Mirrors:              repositories.Mirrors,
		Clock:                o.clock(),
		Edges:                k.Edges,
		Fetch:                o.fetchNow(mgr.GetClient(), k.Edges),
		NoCrossNamespaceRefs: o.NoCrossNamespaceRef || !o.WatchAllNamespaces,
		KeepPushBranch:       o.FeatureGates[forcePushGate] != "" && !o.gate(forcePushGate),
	}
	jobs := *k
	if k.Gates != nil {
		jobs.Gates = job.Gates{Gatekeeper: k.Gates, Objects: mgr.GetClient()}
	}
	return errors.Join(reconcile.Register(mgr, &jobs, reconcile.Kind[*imagev1alpha1.ImageUpdateJob]{
		GroupKind:  job.GroupKind,
		New:        func() *imagev1alpha1.ImageUpdateJob { return &imagev1alpha1.ImageUpdateJob{} },
		Concurrent: o.Concurrent,
		Sort:       reconcile.Sync,
		Step:       &job.Jobs{Objects: mgr.GetClient(), Releases: automation, Clock: o.clock()},
	}), reconcile.Observe(ctx, k.Edges, mgr.GetCache(), automate.GroupKind, &imagev1.ImageUpdateAutomation{}, func(before, after *imagev1.ImageUpdateAutomation) bool {
		return before.Generation != after.Generation
	}), reconcile.Register(mgr, k, reconcile.Kind[*imagev1.ImageUpdateAutomation]{
		GroupKind:  automate.GroupKind,
		New:        func() *imagev1.ImageUpdateAutomation { return &imagev1.ImageUpdateAutomation{} },
		Concurrent: o.Concurrent,
		Sort:       reconcile.Sync,
		Step:       automation,
	}))
}

// fetchNow makes a GitRepository look at its remote: in this process by its edge, which gates see as any other pass, else by the annotation.
func (o *Options) fetchNow(c client.Client, e *reconcile.Edges) func(context.Context, types.NamespacedName) error {
	if o.runs(SourceController) {
		return func(_ context.Context, repository types.NamespacedName) error {
			e.Wake(reconcile.RefTo(source.GitRepositoryGroupKind, repository.Namespace, repository.Name))
			return nil
		}
	}
	return func(ctx context.Context, repository types.NamespacedName) error {
		g := &sourcev1.GitRepository{}
		g.Namespace, g.Name = repository.Namespace, repository.Name
		at := o.clock().Now().UTC().Format(time.RFC3339Nano)
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{meta.ReconcileRequestAnnotation: at}}})
		if err != nil {
			return err
		}
		return c.Patch(ctx, g, client.RawPatch(types.MergePatchType, patch), client.FieldOwner("sluice-image-automation"))
	}
}
