package helmrelease

import (
	"context"
	"slices"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/rollout"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// deleteInventory deletes the objects of a release whose Secret does not exist, by the inventory in the status. The
// deletion of a namespace deletes the Secret in any order with the HelmRelease, and without it Helm does not know the
// objects outside of the namespace. Definitions stay: those of the crds directory of a chart are never deleted, and
// the inventory does not tell them from others.
func (r *run) deleteInventory(ctx context.Context, s helmv2.Snapshot) error {
	inventory := rollout.Inventory(r.obj.Status.Inventory)
	inventory = slices.DeleteFunc(inventory, func(e apply.Entry) bool {
		ref, err := e.Ref()
		return err != nil || ref.Kind == "CustomResourceDefinition"
	})
	if len(inventory) == 0 {
		return nil
	}
	pruned, err := r.target.Cluster.Prune(ctx, rollout.OwnerOf(refOf(r.obj)), inventory)
	r.report.AddPruned(pruned)
	if err != nil {
		left := rollout.NameObjects(inventory.Without(rollout.DeletedOf(pruned)))
		return fault.New(helmv2.UninstallFailedReason, "release '%s/%s' is not stored any more, and its objects "+
			"cannot be deleted by the inventory: %s", s.Namespace, s.Name, left).Because(err)
	}
	return nil
}
