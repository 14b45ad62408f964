package kustomization

import (
	"context"

	"github.com/sluice-gitops/sluice/internal/apply"
	"github.com/sluice-gitops/sluice/internal/rollout"
)

// prune deletes stale objects, if spec.prune is set, and sets the inventory. It returns the objects that are retained
// for other Kustomizations to adopt.
func (r *run) prune(ctx context.Context, stale, applied apply.Inventory) (apply.Inventory, error) {
	var retained apply.Inventory
	if r.obj.Spec.Prune && len(stale) > 0 {
		retained = r.handover(ctx, r.obj, r.source, stale).objects
		stale = stale.Without(retained)
		pruned, err := r.target.Cluster.Prune(ctx, rollout.OwnerOf(refOf(r.obj)), stale)
		r.report.AddPruned(pruned)
		if err != nil {
			// Stale objects stay in the inventory until they are deleted, so that none is lost.
			r.obj.Status.Inventory = rollout.InventoryStatus(applied.With(stale).With(retained))
			return retained, err
		}
	}
	r.obj.Status.Inventory = rollout.InventoryStatus(applied.With(retained))
	return retained, nil
}
