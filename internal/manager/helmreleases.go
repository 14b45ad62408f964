package manager

import (
	"context"

	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/helm/kube"
	"github.com/sluice-gitops/sluice/internal/helm/render"
	"github.com/sluice-gitops/sluice/internal/helmrelease"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/rollout"
)

// helmManager is the field manager of Helm's own clients. Releases that they installed are taken over from it.
const helmManager = "helm"

func (p *process) addHelmReleases(ctx context.Context) error {
	clusters := &rollout.Clusters{Config: p.mgr.GetConfig(), Edges: p.kernel.Edges, Remote: p.remoteClusters(),
		Claims: p.claims, Dependencies: p.dependencies,
		Apply: HelmReleaseApplyOptions(p.Options)}
	renderer := render.New(render.Options{})
	p.closers = append(p.closers, clusters.Close, renderer.Close)
	o := HelmReleaseOptions(p.Options)
	o.Decryption = p.decryption()
	controller := &helmrelease.Controller{
		Client: p.mgr.GetClient(), Live: p.mgr.GetAPIReader(), Artifacts: p.storage.Fetcher,
		Applied:  p.storage.Applied,
		Clusters: clusters, Removal: p.removal(), Renderer: renderer, Events: p.kernel.Events, Clock: p.GetClock(),
		Options: o,
	}
	if err := controller.Observe(ctx, p.mgr.GetCache()); err != nil {
		return err
	}
	return register(p, helmrelease.GroupKind, reconcile.HoldsSync, controller)
}

// HelmReleaseApplyOptions returns how the objects of releases are applied. Tests that run passes use it, too.
func HelmReleaseApplyOptions(o options.Options) apply.ClusterOptions {
	a := o.ApplyOptions()
	a.FieldManager, a.OverrideManagers = kube.FieldManager, append(a.OverrideManagers, helmManager)
	return a
}

// HelmReleaseOptions returns what the flags say about HelmReleases. Tests that run passes themselves use it, too.
func HelmReleaseOptions(o options.Options) helmrelease.Options {
	return helmrelease.Options{
		NoCrossNamespaceRefs: o.RefusesCrossNamespaceRefs(), DefaultServiceAccount: o.DefaultAccount,
		NoFailFast: o.WaitsForFailed(), AdditiveReadyExpr: o.AdditiveReadyExpr(), Decryption: decryption(o),
		AllowDNS:         o.AllowsDNS(),
		NoDigestTracking: o.IgnoresChartDigests(),
		RetryOnFailure:   o.RetriesReleases(),
		Helm3Defaults:    o.UsesHelm3Defaults(),
		Resync:           o.Resync,
	}
}
