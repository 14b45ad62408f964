package resourceset

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/rollout"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

// Finalize deletes the applied objects, unless the ResourceSet is suspended, or all of Sluice is removed. It works
// without the templates and their inputs.
func (c *Controller) Finalize(ctx context.Context, obj *controlplanev1.ResourceSet) error {
	inventory := rollout.Inventory(obj.Status.Inventory)
	if !obj.Schedule().Suspended && len(inventory) > 0 {
		if err := c.deleteObjects(ctx, obj, inventory); err != nil {
			return err
		}
	}
	c.forget(obj)
	return nil
}

// deleteObjects deletes the objects of the inventory. It returns nil if they are deleted, or cannot be and are left in
// the cluster, which an event reports.
func (c *Controller) deleteObjects(ctx context.Context, obj *controlplanev1.ResourceSet,
	inventory apply.Inventory) error {
	removed, err := c.Removal.Of(ctx, refOf(obj))
	if err != nil {
		return err
	}
	if removed != "" {
		c.reportLeftBehind(ctx, obj, excerpt.Count(len(inventory), "object")+" left in the cluster: "+removed)
		return nil
	}
	destination := c.destination(obj)
	target, err := c.Clusters.Target(ctx, refOf(obj), destination)
	if err != nil {
		return err
	}
	defer target.Forget(refOf(obj))
	inventory, kept := rollout.WithoutOwnNamespace(refOf(obj), inventory)
	if kept != "" && !c.Removal.DeletesNamespace(ctx, obj.Namespace) {
		c.reportLeftBehind(ctx, obj, kept)
	}
	isEarly := c.Clock.Since(obj.DeletionTimestamp.Time) < appliersTimeout
	pruned, err := pruneStages(ctx, target.Cluster, rollout.OwnerOf(refOf(obj)), inventory, isEarly)
	if len(pruned) > 0 {
		c.emit(obj, corev1.EventTypeNormal, meta.ProgressingReason, rollout.Summary(GroupKind.Kind, pruned))
		c.reportDeleted(target, obj, pruned)
	}
	switch {
	case apply.IsWaiting(err):
		return reconcile.WaitingFor(err)
	case err != nil && destination.AccountMissing(ctx, c.Live, obj.Namespace):
		c.reportLeftBehind(ctx, obj, rollout.LeftWithoutCredentials(inventory.Without(rollout.DeletedOf(pruned)), err))
		return nil
	}
	return err
}

// reportLeftBehind reports that objects are left in the cluster.
func (c *Controller) reportLeftBehind(ctx context.Context, obj *controlplanev1.ResourceSet, message string) {
	log.FromContext(ctx).Info(message)
	c.emit(obj, corev1.EventTypeWarning, meta.PruneFailedReason, message)
}
