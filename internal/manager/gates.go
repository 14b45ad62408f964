package manager

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
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
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/resourceset"
	"github.com/sluice-gitops/sluice/internal/source"
)

// gatedKinds returns the kinds of the enabled controllers that gates can hold.
func (p *process) gatedKinds() []gate.GatedKind {
	var kinds []gate.GatedKind
	add := func(controller string, gk schema.GroupKind, object client.Object, list client.ObjectList) {
		if p.Runs(controller) {
			kinds = append(kinds, gate.GatedKind{GroupKind: gk, Object: object, List: list})
		}
	}
	add(options.SourceController, source.GitRepositoryGroupKind,
		&sourcev1.GitRepository{}, &sourcev1.GitRepositoryList{})
	add(options.SourceController, source.OCIRepositoryGroupKind,
		&sourcev1.OCIRepository{}, &sourcev1.OCIRepositoryList{})
	add(options.SourceController, source.HelmRepositoryGroupKind,
		&sourcev1.HelmRepository{}, &sourcev1.HelmRepositoryList{})
	add(options.SourceController, source.HelmChartGroupKind, &sourcev1.HelmChart{}, &sourcev1.HelmChartList{})
	add(options.SourceController, source.BucketGroupKind, &sourcev1.Bucket{}, &sourcev1.BucketList{})
	add(options.SourceController, source.ArtifactGeneratorGroupKind,
		&extensionsv1beta1.ArtifactGenerator{}, &extensionsv1beta1.ArtifactGeneratorList{})
	add(options.KustomizeController, kustomization.GroupKind,
		&kustomizev1.Kustomization{}, &kustomizev1.KustomizationList{})
	add(options.HelmController, helmrelease.GroupKind, &helmv2.HelmRelease{}, &helmv2.HelmReleaseList{})
	add(options.ResourceSetController, resourceset.GroupKind,
		&controlplanev1.ResourceSet{}, &controlplanev1.ResourceSetList{})
	add(options.ImageAutomationController, automate.GroupKind,
		&imagev1.ImageUpdateAutomation{}, &imagev1.ImageUpdateAutomationList{})
	return kinds
}

// observeGates creates the index of gates, and lets the kernel use it.
func (p *process) observeGates(ctx context.Context) error {
	cache := p.mgr.GetCache()
	authors := &gate.AuthorVerifier{Client: p.mgr.GetClient(), Reader: p.mgr.GetAPIReader(), Clock: p.GetClock()}
	p.gateIndex = &gate.Index{
		Edges: p.kernel.Edges, Clock: p.GetClock(), Seals: p.kernel.Seals,
		NoCrossNamespaceRefs: p.NoCrossNamespaceRefs, PlatformNamespace: p.RuntimeNamespace,
		VerifySelection: authors.VerifySelection,
		Namespace:       gate.NamespaceLabels(p.mgr.GetAPIReader()),
		EnqueueSelected: gate.EnqueueSelected(ctx, cache, p.kernel.Edges, p.gatedKinds()),
		SeparateGates:   !p.Runs(options.GatingController),
	}
	p.kernel.Gates = p.gateIndex
	err := errors.Join(p.gateIndex.Observe(ctx, cache), p.gateIndex.ObserveMembers(ctx, cache, p.gatedKinds()))
	if p.WatchAllNamespaces { // else a role in the one namespace is enough, and that namespace is read on demand
		err = errors.Join(err, p.gateIndex.ObserveNamespaces(ctx, cache), p.observeDefinitions())
	}
	return err
}

// observeDefinitions detects that another tool replaced the definitions of gated kinds.
func (p *process) observeDefinitions() error {
	c, err := dynamic.NewForConfigAndClient(p.mgr.GetConfig(), p.mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	d := &gate.Definitions{
		Live: p.mgr.GetAPIReader(), Log: log.Log.WithName("definitions"), HasGates: p.gateIndex.HasGates,
		Enqueue: func(gk schema.GroupKind) {
			p.gateIndex.EnqueueSelected(func(ref reconcile.Ref, _ reconcile.Gated) bool { return ref.GroupKind == gk })
		},
	}
	if err := d.Observe(c, p.mgr.GetRESTMapper(), p.gatedKinds()); err != nil {
		return err
	}
	p.kernel.Definitions, p.closers = d, append(p.closers, d.Close)
	return nil
}

func (p *process) addGates(ctx context.Context) error {
	if err := gate.ObserveApprovals(ctx, p.mgr.GetCache(), p.kernel.Edges); err != nil {
		return err
	}
	probes := &gate.Probes{
		Config: p.mgr.GetConfig(), Mapper: p.mgr.GetRESTMapper(), Secrets: p.mgr.GetAPIReader(),
		NoCrossNamespaceRefs: p.NoCrossNamespaceRefs,
		Egress:               p.TenantEgress(),
		Remote:               p.remoteClusters().Config,
	}
	if p.Report.IsEnabled() {
		hub, err := p.hubClient()
		if err != nil {
			return err
		}
		probes.Hub = hub
	}
	checks := &gate.Checks{Clock: p.GetClock(), Edges: p.kernel.Edges, Prober: probes}
	if err := checks.Observe(ctx, p.mgr.GetCache(), p.gatedKinds()); err != nil {
		return err
	}
	authors := &gate.AuthorVerifier{Client: p.mgr.GetClient(), Reader: p.mgr.GetAPIReader(), Clock: p.GetClock()}
	return registerKind(p, reconcile.Kind[*gatingv1.Gate]{
		GroupKind: gate.GroupKind,
		AnyLabels: true,
		Step: &gate.Controller{
			Client: p.mgr.GetClient(), Edges: p.kernel.Edges, Clock: p.GetClock(), Checks: checks,
			Waiting: p.gateIndex.Waiting, Seals: p.kernel.Seals,
			Authors:        authors,
			CheckRules:     p.gateIndex.CheckRules,
			CheckSelection: p.gateIndex.CheckSelection,
			Observed:       &p.gateIndex.Observed,
			Waves:          p.gateIndex.WaveProgress,
			GatesOfMembers: gate.GatesOfMembers(p.mgr.GetCache(), p.gateIndex, p.gatedKinds()),
		},
	})
}
