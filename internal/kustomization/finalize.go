package kustomization

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/kustomization/spec"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/rollout"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Finalize deletes the applied objects, unless the Kustomization is suspended, its deletion policy retains them, or all
// of Sluice is removed. It works without the source and the inputs of the build.
func (c *Controller) Finalize(ctx context.Context, obj *kustomizev1.Kustomization) error {
	inventory := rollout.Inventory(obj.Status.Inventory)
	if !obj.Spec.Suspend && spec.DeletesObjects(obj) && len(inventory) > 0 {
		if err := c.deleteObjects(ctx, obj, inventory); err != nil {
			return err
		}
	}
	c.forget(obj)
	return nil
}

// deleteObjects deletes the objects of the inventory. It returns nil if they are deleted, or cannot be and are left in
// the cluster, which an event reports.
func (c *Controller) deleteObjects(ctx context.Context, obj *kustomizev1.Kustomization,
	inventory apply.Inventory) error {
	removed, err := c.Removal.Of(ctx, refOf(obj))
	if err != nil {
		return err
	}
	if removed != "" {
		c.reportLeftBehind(ctx, obj, excerpt.Count(len(inventory), "object")+" left in the cluster: "+removed)
		return nil
	}
	owner, destination := rollout.OwnerOf(refOf(obj)), c.destination(obj)
	target, err := c.Clusters.Target(ctx, refOf(obj), destination)
	if rollout.IsCredentialsNotFound(err) {
		c.reportLeftBehind(ctx, obj, rollout.LeftWithoutCredentials(inventory, err))
		return nil // otherwise the deletion could never complete
	}
	if err != nil {
		return err
	}
	defer target.Forget(refOf(obj))
	retained, err := c.retained(ctx, obj, target, inventory)
	if err != nil {
		return c.untilTimeout(ctx, obj, err)
	}
	inventory, kept := withoutOwnNamespace(obj, inventory)
	if kept != "" && !c.Removal.DeletesNamespace(ctx, obj.Namespace) {
		c.reportLeftBehind(ctx, obj, kept)
	}
	pruned, err := target.Cluster.Prune(ctx, owner, inventory.Without(retained.objects).Without(retained.left))
	if len(pruned) > 0 {
		c.emit(obj, corev1.EventTypeNormal, meta.ProgressingReason, rollout.Summary(GroupKind.Kind, pruned))
		c.reportDeleted(target, obj, pruned)
	}
	switch {
	case err != nil && destination.AccountMissing(ctx, c.Live, obj.Namespace):
		c.reportLeftBehind(ctx, obj, rollout.LeftWithoutCredentials(inventory.Without(rollout.DeletedOf(pruned)), err))
		return nil
	case err != nil:
		return err
	case len(retained.objects) > 0:
		err = reconcile.WaitingFor(fault.New(reconcile.ReasonProgressing, "waiting for Kustomization '%s' to adopt %s",
			strings.Join(retained.to, "', '"), excerpt.Count(len(retained.objects), "object")))
	case obj.Spec.DeletionPolicy == kustomizev1.DeletionPolicyWaitForTermination:
		err = target.Cluster.WaitUntilDeleted(ctx, owner, inventory)
	}
	return c.untilTimeout(ctx, obj, err)
}

// untilTimeout returns the error for which a deletion waits; nil once it has waited long enough, which an event
// reports.
func (c *Controller) untilTimeout(ctx context.Context, obj *kustomizev1.Kustomization, err error) error {
	if timeout := obj.Schedule().Timeout; err != nil && c.Clock.Since(obj.DeletionTimestamp.Time) >= timeout {
		c.reportLeftBehind(ctx, obj, fmt.Sprintf("stopped waiting for the deletion of objects after %s: %v",
			timeout, err))
		return nil
	}
	return err
}

// retained returns the objects that other Kustomizations are about to adopt, such as after the Kustomization was
// renamed in its source, or have applied as well.
func (c *Controller) retained(ctx context.Context, obj *kustomizev1.Kustomization, target *rollout.Target,
	inventory apply.Inventory) (handover, error) {
	source, waiting := c.source(ctx, obj)
	if waiting != nil {
		source = nil // others with this source cannot build either
	}
	h, err := c.handover(ctx, obj, target, source, inventory)
	c.Clusters.Claims.Forget(refOf(obj)) // the others are the only owners now
	if owned, err := target.Cluster.Owned(ctx, rollout.OwnerOf(refOf(obj)), h.objects); err == nil {
		h.objects = owned
	}
	return h, err
}

// reportLeftBehind reports that objects are left in the cluster.
func (c *Controller) reportLeftBehind(ctx context.Context, obj *kustomizev1.Kustomization, message string) {
	log.FromContext(ctx).Info(message)
	c.emit(obj, corev1.EventTypeWarning, meta.PruneFailedReason, message)
}

// emit emits an event about the deletion of a Kustomization.
func (c *Controller) emit(obj *kustomizev1.Kustomization, eventType, reason, message string) {
	c.Events.Emit(GroupKind.Group, obj, reconcile.Event{Type: eventType, Reason: reason, Message: message,
		Metadata: map[string]string{meta.EventRevisionKey: obj.Status.LastAppliedRevision}})
}
