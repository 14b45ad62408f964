package manager

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	imagev1alpha1 "github.com/sluice-gitops/sluice/api/image/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/image/automate"
	"github.com/sluice-gitops/sluice/internal/image/release"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source"
)

// runImageAutomations commits the images that policies choose.
func (p *process) runImageAutomations(ctx context.Context) error {
	if err := automate.ObservePolicies(ctx, p.kernel.Edges, p.mgr.GetCache()); err != nil {
		return err
	}
	automation := &automate.Automation{
		Objects:              p.mgr.GetClient(),
		Remotes:              p.git,
		Secrets:              p.git.Secrets,
		Mirrors:              p.mirrors,
		Clock:                p.clock(),
		Edges:                p.kernel.Edges,
		Fetch:                p.fetchNow(),
		NoCrossNamespaceRefs: p.noCrossNamespaceRefs(),
		KeepPushBranch:       p.FeatureGates[forcePushGate] != "" && !p.gate(forcePushGate),
	}
	jobs := *p.kernel
	jobs.Gates = release.Gates{Gatekeeper: p.book, Objects: p.mgr.GetClient()}
	return errors.Join(reconcile.Register(p.mgr, &jobs, reconcile.Kind[*imagev1alpha1.ImageUpdateJob]{
		GroupKind:    release.GroupKind,
		New:          func() *imagev1alpha1.ImageUpdateJob { return &imagev1alpha1.ImageUpdateJob{} },
		Concurrent:   p.Concurrent,
		GateBehavior: reconcile.HoldsSync,
		Step:         &release.Jobs{Objects: p.mgr.GetClient(), Releases: automation, Clock: p.clock()},
	}), reconcile.Observe(ctx, p.kernel.Edges, p.mgr.GetCache(), automate.GroupKind, &imagev1.ImageUpdateAutomation{},
		func(before, after *imagev1.ImageUpdateAutomation) bool {
			return before.Generation != after.Generation
		}), reconcile.Register(p.mgr, p.kernel, reconcile.Kind[*imagev1.ImageUpdateAutomation]{
		GroupKind:    automate.GroupKind,
		New:          func() *imagev1.ImageUpdateAutomation { return &imagev1.ImageUpdateAutomation{} },
		Concurrent:   p.Concurrent,
		GateBehavior: reconcile.HoldsSync,
		Step:         automation,
	}))
}

// fetchNow makes a GitRepository look at its remote: in this process by its edge, which gates see as any
// other pass, else by the annotation.
func (p *process) fetchNow() func(context.Context, types.NamespacedName) error {
	if p.runs(SourceController) {
		return func(_ context.Context, repository types.NamespacedName) error {
			p.kernel.Edges.Enqueue(reconcile.RefTo(source.GitRepositoryGroupKind, repository.Namespace, repository.Name))
			return nil
		}
	}
	return func(ctx context.Context, repository types.NamespacedName) error {
		g := &sourcev1.GitRepository{}
		g.Namespace, g.Name = repository.Namespace, repository.Name
		at := p.clock().Now().UTC().Format(time.RFC3339Nano)
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"annotations": map[string]string{meta.ReconcileRequestAnnotation: at}}})
		if err != nil {
			return err
		}
		return p.mgr.GetClient().Patch(ctx, g, client.RawPatch(types.MergePatchType, patch),
			client.FieldOwner("sluice-image-automation"))
	}
}
