package helmrelease

import (
	"context"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/release/common"
	helmrelease "helm.sh/helm/v4/pkg/release/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	apimeta "github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/helm/digest"
	"github.com/sluice-gitops/sluice/internal/helm/kube"
	"github.com/sluice-gitops/sluice/internal/rollout"
)

// maxSnapshots is the maximum number of entries in status.history.
const maxSnapshots = 5

// snapshotVersion is the version of the digests of releases that Helm 4 stores, as Flux names it.
const snapshotVersion = "v2"

// recordStored records the releases that an action stored.
func (r *run) recordStored(ctx context.Context, action string) {
	r.recordSnapshots(ctx, r.storage.Stored(), action)
}

// recordSnapshots records releases in status.history. The newest one was created by the action.
func (r *run) recordSnapshots(ctx context.Context, stored []*helmrelease.Release, action string) {
	history := slices.Clone(r.obj.Status.History)
	for i, rel := range stored {
		at := slices.IndexFunc(history, func(s helmv2.Snapshot) bool { return isSnapshotOf(s, rel) })
		if at < 0 {
			by := ""
			if i == len(stored)-1 {
				by = action
			}
			history = slices.DeleteFunc(history, func(s helmv2.Snapshot) bool { return hasVersionOf(s, rel) })
			history = append(history, newSnapshot(rel, r.ociDigestOf(rel), by))
			continue
		}
		tests := history[at].TestHooks
		history[at] = newSnapshot(rel, history[at].OCIDigest, history[at].Action)
		history[at].TestHooks = tests
	}
	slices.SortFunc(history, func(a, b helmv2.Snapshot) int { return b.Version - a.Version })
	r.obj.Status.History = history[:min(len(history), maxSnapshots)]
	if len(stored) > 0 && hasObjects(stored[len(stored)-1].Info.Status) {
		r.recordInventory(ctx, stored[len(stored)-1])
	}
}

// hasObjects reports whether a release of a status may have objects in the cluster: also a failed one has.
func hasObjects(status common.Status) bool {
	return status != common.StatusUninstalled && status != common.StatusUninstalling
}

// dropSuperseded drops the snapshots that no rollback needs: those before the last release that was successful.
func (r *run) dropSuperseded() {
	history := r.obj.Status.History
	p := r.policy()
	if p.retryOnFailure || len(history) < 2 {
		return
	}
	for i, s := range history[1:] {
		isSuccessful := s.Status == common.StatusDeployed.String() || s.Status == common.StatusSuperseded.String()
		if isSuccessful && (p.ignoreTests || !hasFailedTest(s)) {
			r.obj.Status.History = history[:i+2]
			return
		}
	}
}

// ociDigestOf returns the digest of the OCI artifact of a release's chart, if it is the one that is declared.
func (r *run) ociDigestOf(rel *helmrelease.Release) string {
	if rel.Chart != nil && rel.Chart.Metadata != nil && rel.Chart.Metadata.Version == r.chart.version {
		return r.chart.ociDigest
	}
	for _, s := range r.obj.Status.History {
		if rel.Chart != nil && rel.Chart.Metadata != nil && s.ChartVersion == rel.Chart.Metadata.Version {
			return s.OCIDigest
		}
	}
	return ""
}

func newSnapshot(rel *helmrelease.Release, ociDigest, action string) helmv2.Snapshot {
	s := helmv2.Snapshot{APIVersion: snapshotVersion,
		Digest: digest.Release(rel, ociDigest), Action: action, Name: rel.Name, Namespace: rel.Namespace,
		Version: rel.Version, ConfigDigest: digest.Config(rel.Config), OCIDigest: ociDigest,
	}
	if rel.Info != nil {
		s.Status = rel.Info.Status.String()
		s.FirstDeployed, s.LastDeployed = apimeta.TimeOf(rel.Info.FirstDeployed), apimeta.TimeOf(rel.Info.LastDeployed)
		if !rel.Info.Deleted.IsZero() {
			deleted := apimeta.TimeOf(rel.Info.Deleted)
			s.Deleted = &deleted
		}
	}
	if rel.Chart != nil && rel.Chart.Metadata != nil {
		s.ChartName, s.ChartVersion = rel.Chart.Metadata.Name, rel.Chart.Metadata.Version
		s.AppVersion = rel.Chart.Metadata.AppVersion
	}
	return s
}

// recordUninstalled marks the newest snapshot as uninstalled, whose release may no longer be stored.
func (r *run) recordUninstalled() {
	if len(r.obj.Status.History) == 0 {
		return
	}
	s := &r.obj.Status.History[0]
	if s.Deleted == nil {
		now := apimeta.TimeOf(r.Clock.Now())
		s.Deleted = &now
	}
	s.Status = common.StatusUninstalled.String()
	r.obj.Status.Inventory = nil
	r.state.checked = ""
	r.target.Forget(refOf(r.obj))
}

// recordInventory records the objects of a release: those of its manifest and of the crds directory of its chart.
func (r *run) recordInventory(ctx context.Context, rel *helmrelease.Release) {
	inventory, err := inventoryOf(ctx, rel, r.target)
	if err != nil {
		r.report.Warn(helmv2.InventoryBuildFailedReason, "cannot list the objects of the release: "+err.Error())
		return
	}
	r.obj.Status.Inventory = rollout.InventoryStatus(inventory)
}

func inventoryOf(ctx context.Context, rel *helmrelease.Release, t *rollout.Target) (apply.Inventory, error) {
	objects, err := kube.Decode(strings.NewReader(rel.Manifest))
	if err != nil {
		return nil, err
	}
	if rel.Chart != nil {
		crds := rel.Chart.CRDObjects()
		lease, err := takeCRDs(ctx, crds)
		if err != nil {
			return nil, err
		}
		defer lease.Release()
		for _, crd := range crds {
			definitions, err := kube.CRDObjects(crd)
			if err != nil {
				return nil, err
			}
			objects = append(objects, definitions...)
		}
	}
	var inventory apply.Inventory
	for _, o := range objects {
		gvk := o.GroupVersionKind()
		namespace := o.GetNamespace()
		mapping, err := t.Cluster.Mapper().RESTMapping(gvk.GroupKind(), gvk.Version)
		switch {
		case err != nil:
		case mapping.Scope.Name() != meta.RESTScopeNameNamespace:
			namespace = ""
		case namespace == "":
			namespace = rel.Namespace
		}
		inventory = append(inventory, apply.Ref{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind,
			Namespace: namespace, Name: o.GetName()}.Entry())
	}
	return inventory, nil
}
