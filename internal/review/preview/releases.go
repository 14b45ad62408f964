package preview

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/cluster/risk"
	"github.com/sluice-gitops/sluice/internal/model/lineage"
	"github.com/sluice-gitops/sluice/internal/offline/localrelease"
	"github.com/sluice-gitops/sluice/internal/rollout"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

// helmReleases previews the HelmReleases that the change reaches.
func (r *run) helmReleases(ctx context.Context, g *graph) error {
	keys := slices.SortedFunc(maps.Keys(g.releases), func(a, b types.NamespacedName) int {
		return cmp.Compare(a.String(), b.String())
	})
	for _, key := range keys {
		n := g.releases[key]
		chart, err := r.chartOf(ctx, n.declared)
		if err != nil {
			return err
		}
		byChart, err := r.changesChart(ctx, chart)
		if err != nil {
			return err
		}
		byValues, err := r.changesValues(ctx, n.declared)
		if err != nil {
			return err
		}
		if !byChart && !byValues && !n.differs && !n.deleted && !r.usesConfig(key.Namespace, valuesOf(n.declared)...) {
			continue
		}
		owner := newOwner(helmv2.HelmReleaseKind, key)
		owner.Cluster = clusterOf(key.Namespace, n.declared.Spec.KubeConfig)
		owner.inventory = len(rollout.Inventory(n.live.Status.Inventory))
		for _, d := range lineage.Dependencies(n.declared) {
			owner.dependsOn = append(owner.dependsOn, risk.Owner{Kind: d.Kind, Namespace: d.Namespace, Name: d.Name})
		}
		planned, err := r.planRelease(ctx, n, owner, chart)
		if !n.deleted && !n.declared.Spec.Suspend {
			owner.object = n.declared // gates know no commit of a HelmRelease
		}
		owner.add(planned)
		if err != nil {
			owner.Error = redact.Text(err.Error(), owner.secrets...)
		}
		r.addOwner(owner)
	}
	return nil
}

// planRelease returns what the install, upgrade or uninstall of a HelmRelease would do.
func (r *run) planRelease(ctx context.Context, n *node[*helmv2.HelmRelease], owner *Owner, c *chart) ([]apply.Change,
	error) {
	obj := n.declared.DeepCopy()
	target, err := r.Cluster.releaseTarget()
	if err != nil {
		return nil, err
	}
	switch {
	case obj.Spec.KubeConfig != nil:
		owner.Note = "releases to another cluster, which is not compared"
		return nil, nil
	case n.deleted && n.live.Spec.Suspend:
		owner.Note = "deleted: its objects stay in the cluster, as it is suspended"
		return nil, nil
	case n.deleted:
		return target.Diff(ctx, apply.Request{Owner: localrelease.OwnerOf(n.live), Inspect: true,
			Previous: rollout.Inventory(n.live.Status.Inventory)})
	case obj.Spec.Suspend:
		owner.Note = "suspended: nothing is released until it is resumed"
		return nil, nil
	}
	obj.Status = n.live.Status
	side := r.To
	if c.source != nil && n.exists && equalCharts(obj, n.live) {
		isNew, err := r.changesChart(ctx, c)
		if err != nil {
			return nil, err
		}
		if !isNew {
			side = r.From
		}
	}
	built, err := r.render(ctx, side, obj, n, c)
	if err != nil {
		return nil, err
	}
	owner.veil = built.Veil
	req, err := built.ApplyRequest(ctx, target, r.renderedBefore(ctx, built, n, c))
	if err != nil {
		return nil, err
	}
	owner.secrets = built.LiveSecrets()
	req.Inspect = true
	return target.Diff(ctx, req)
}

// renderedBefore returns what a HelmRelease renders without the change, to compare what comes from secrets; nil if that
// is not known, or if nothing does.
func (r *run) renderedBefore(ctx context.Context, built *localrelease.Result, n *node[*helmv2.HelmRelease],
	c *chart) *localrelease.Result {
	if !n.exists || built.Veil.IsOpen() {
		return nil
	}
	if !equalCharts(n.declared, n.live) {
		var err error
		if c, err = r.chartOf(ctx, n.live); err != nil {
			return nil
		}
	}
	before, err := r.render(ctx, r.From, n.live, n, c)
	if err != nil {
		return nil // what comes from secrets counts as unchanged
	}
	return before
}
