package kustomization

import (
	"context"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/rollout"
)

// prune deletes stale objects, if spec.prune is set, and sets the inventory. Objects that other Kustomizations are
// about to adopt are retained.
func (r *run) prune(ctx context.Context, stale, applied apply.Inventory) error {
	retained := &r.state.apply.retained
	*retained = nil
	if r.obj.Spec.Prune && len(stale) > 0 {
		pruned, err := r.pruneOwn(ctx, stale)
		r.report.AddPruned(pruned)
		r.pruned = pruned
		if err != nil {
			// Stale objects stay in the inventory until they are deleted, so that none is lost.
			r.obj.Status.Inventory = rollout.InventoryStatus(applied.With(stale))
			return err
		}
	}
	r.obj.Status.Inventory = rollout.InventoryStatus(applied.With(*retained))
	return nil
}

// pruneOwn deletes the stale objects that no other Kustomization declares.
func (r *run) pruneOwn(ctx context.Context, stale apply.Inventory) ([]apply.Change, error) {
	h, err := r.handover(ctx, r.obj, r.target, r.source, stale)
	if err != nil {
		return nil, err
	}
	r.state.apply.retained = h.objects
	stale, kept := withoutOwnNamespace(r.obj, stale)
	if kept != "" {
		r.report.Warn(meta.PruneFailedReason, kept)
	}
	return r.target.Cluster.Prune(ctx, rollout.OwnerOf(refOf(r.obj)), stale.Without(h.objects).Without(h.left))
}

// withoutOwnNamespace returns an inventory without the namespace that the Kustomization is in, and a message if it was
// there. In another cluster, the namespace of that name is another one.
func withoutOwnNamespace(obj *kustomizev1.Kustomization, inventory apply.Inventory) (apply.Inventory, string) {
	if obj.Spec.KubeConfig != nil {
		return inventory, ""
	}
	return rollout.WithoutOwnNamespace(refOf(obj), inventory)
}
