package manager

import (
	"context"
	"errors"
	"slices"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	"github.com/sluice-gitops/sluice/internal/helm/render"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/resourceset"
	"github.com/sluice-gitops/sluice/internal/rollout"
)

// addResourceSets adds the controllers of ResourceSets and of their providers of inputs.
func (p *process) addResourceSets(ctx context.Context) error {
	apply := p.ApplyOptions()
	apply.FieldManager = resourceset.FieldManager
	apply.OverrideManagers = append(slices.Clone(apply.OverrideManagers), helmManager)
	clusters := &rollout.Clusters{Config: p.mgr.GetConfig(), Edges: p.kernel.Edges, Remote: p.remoteClusters(),
		Claims: p.claims, Dependencies: p.dependencies, Apply: apply}
	renderer := render.New(render.Options{})
	p.closers = append(p.closers, clusters.Close, renderer.Close)
	controller := &resourceset.Controller{
		Client: p.mgr.GetClient(), Live: p.mgr.GetAPIReader(), Clusters: clusters,
		Removal: p.removal(), Renderer: renderer, Events: p.kernel.Events, Clock: p.GetClock(),
		Options: resourceset.Options{
			NoCrossNamespaceRefs: p.RefusesCrossNamespaceRefs(), DefaultServiceAccount: p.DefaultAccount,
			ControllerNamespace: p.RuntimeNamespace, NoFailFast: p.WaitsForFailed(), StrictFields: p.StrictFields,
			Resync: p.Resync,
		},
	}
	if err := controller.Observe(ctx, p.mgr.GetCache()); err != nil {
		return err
	}
	leftTo := p.fluxOperator().Running
	return errors.Join(p.addFluxReport(leftTo), p.addInputProviders(ctx, leftTo),
		registerKind(p, reconcile.Kind[*controlplanev1.ResourceSet]{
			GroupKind: resourceset.GroupKind, GateBehavior: reconcile.HoldsSync, Finalizer: controlplanev1.Finalizer,
			Step: controller, LeftTo: leftTo, DisabledReason: controlplanev1.ReconciliationDisabledReason,
			Info: resourceset.Info}))
}

// fluxOperator returns what finds out whether Flux Operator reconciles the same objects.
func (p *process) fluxOperator() *resourceset.Operator {
	o := &resourceset.Operator{Reader: p.mgr.GetAPIReader(), Clock: p.GetClock()}
	if !p.WatchAllNamespaces {
		o.Namespace = p.RuntimeNamespace
	}
	return o
}
