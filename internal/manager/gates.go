package manager

import (
	"context"
	"errors"

	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/gate"
	"github.com/sluice-gitops/sluice/internal/helmrelease"
	"github.com/sluice-gitops/sluice/internal/image/automate"
	"github.com/sluice-gitops/sluice/internal/kustomization"
	"github.com/sluice-gitops/sluice/internal/options"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source"
)

// gatedKinds returns the kinds of the enabled controllers that gates can hold.
func (p *process) gatedKinds() []gate.GatedKind {
	var kinds []gate.GatedKind
	if p.Runs(options.SourceController) {
		kinds = append(kinds,
			gate.GatedKind{GroupKind: source.GitRepositoryGroupKind, List: &sourcev1.GitRepositoryList{}},
			gate.GatedKind{GroupKind: source.OCIRepositoryGroupKind, List: &sourcev1.OCIRepositoryList{}},
			gate.GatedKind{GroupKind: source.HelmRepositoryGroupKind, List: &sourcev1.HelmRepositoryList{}},
			gate.GatedKind{GroupKind: source.HelmChartGroupKind, List: &sourcev1.HelmChartList{}},
			gate.GatedKind{GroupKind: source.BucketGroupKind, List: &sourcev1.BucketList{}},
			gate.GatedKind{GroupKind: source.ArtifactGeneratorGroupKind,
				List: &extensionsv1beta1.ArtifactGeneratorList{}},
		)
	}
	if p.Runs(options.KustomizeController) {
		kinds = append(kinds, gate.GatedKind{GroupKind: kustomization.GroupKind,
			List: &kustomizev1.KustomizationList{}})
	}
	if p.Runs(options.HelmController) {
		kinds = append(kinds, gate.GatedKind{GroupKind: helmrelease.GroupKind, List: &helmv2.HelmReleaseList{}})
	}
	if p.Runs(options.ImageAutomationController) {
		kinds = append(kinds, gate.GatedKind{GroupKind: automate.GroupKind, List: &imagev1.ImageUpdateAutomationList{}})
	}
	return kinds
}

// observeGates creates the index of gates, and lets the kernel use it.
func (p *process) observeGates(ctx context.Context) error {
	cache := p.mgr.GetCache()
	p.gateIndex = &gate.Index{
		Edges: p.kernel.Edges, Clock: p.GetClock(), Seals: p.kernel.Seals,
		NoCrossNamespaceRefs: p.NoCrossNamespaceRefs, PlatformNamespace: p.RuntimeNamespace,
		Namespace:       gate.NamespaceLabels(p.mgr.GetAPIReader()),
		EnqueueSelected: gate.EnqueueSelected(ctx, cache, p.kernel.Edges, p.gatedKinds()),
	}
	p.kernel.Gates = p.gateIndex
	err := p.gateIndex.Observe(ctx, cache)
	if p.WatchAllNamespaces { // else the one namespace is read on demand
		err = errors.Join(err, p.gateIndex.ObserveNamespaces(ctx, cache))
	}
	return err
}

func (p *process) addGates(ctx context.Context) error {
	if err := gate.ObserveApprovals(ctx, p.mgr.GetCache(), p.kernel.Edges); err != nil {
		return err
	}
	checks := &gate.Checks{Clock: p.GetClock(), Edges: p.kernel.Edges, Prober: &gate.Probes{
		Config: p.mgr.GetConfig(), Mapper: p.mgr.GetRESTMapper(), Secrets: p.mgr.GetAPIReader(),
		NoCrossNamespaceRefs: p.NoCrossNamespaceRefs,
		Egress:               p.TenantEgress(),
	}}
	return reconcile.Register(p.mgr, p.kernel, reconcile.Kind[*gatingv1.Gate]{
		GroupKind:  gate.GroupKind,
		New:        func() *gatingv1.Gate { return &gatingv1.Gate{} },
		Concurrent: p.Concurrent,
		Step: &gate.Controller{
			Client: p.mgr.GetClient(), Edges: p.kernel.Edges, Clock: p.GetClock(), Checks: checks,
			Waiting: p.gateIndex.Waiting, Seals: p.kernel.Seals,
			Authors: &gate.AuthorVerifier{Client: p.mgr.GetClient(), Reader: p.mgr.GetAPIReader(), Clock: p.GetClock()},
		},
	})
}
