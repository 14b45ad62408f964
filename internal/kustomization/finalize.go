package kustomization

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/apply"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// Finalize deletes what the Kustomization applied, unless it is suspended or says otherwise. It takes neither
// the source nor anything else that the build took.
func (k *Kustomization) Finalize(ctx context.Context, obj *kustomizev1.Kustomization) error {
	if err := k.collect(ctx, obj); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if m := k.memory[obj.UID]; m != nil && m.target != nil {
		m.target.forget(ownerOf(obj))
	}
	delete(k.memory, obj.UID)
	k.Clusters.Forget(obj.UID)
	return nil
}

func (k *Kustomization) collect(ctx context.Context, obj *kustomizev1.Kustomization) error {
	owner, inventory := ownerOf(obj), inventoryOf(obj)
	if obj.Spec.Suspend || !collects(obj) || len(inventory) == 0 {
		return nil
	}
	target, err := k.Clusters.For(ctx, obj, k.Options.DefaultServiceAccount)
	if errors.Is(err, errRemoteGone) {
		k.leave(ctx, obj, unable(len(inventory), err))
		return nil // it would hold up the deletion for ever
	}
	if err != nil {
		return err
	}
	defer target.forget(owner)
	left := k.bequeathed(ctx, obj, target, inventory)
	pruned, err := target.Cluster.Prune(ctx, owner, inventory.Without(left))
	if len(pruned) > 0 {
		k.Events.Emit(owner.Group, obj, reconcile.Event{Type: corev1.EventTypeNormal, Reason: meta.ProgressingReason,
			Message:  summary(pruned),
			Metadata: map[string]string{"revision": obj.Status.LastAppliedRevision}})
	}
	switch {
	case err != nil && k.accountGone(ctx, obj):
		k.leave(ctx, obj, unable(len(inventory)-apply.Summarize(pruned).Deleted, err))
		return nil
	case err != nil:
		return err
	case len(left) > 0:
		err = fault.New(meta.PruneFailedReason,
			"%d objects are left for other Kustomizations of this revision that declare them, and have not taken "+
				"them over yet", len(left))
	case obj.Spec.DeletionPolicy == kustomizev1.DeletionPolicyWaitForTermination:
		err = target.Cluster.WaitUntilDeleted(ctx, owner, inventory)
	}
	if timeout := obj.Schedule().Timeout; err != nil && k.Clock.Since(obj.DeletionTimestamp.Time) >= timeout {
		k.leave(ctx, obj, fmt.Sprintf("deletion does not wait beyond %s: %v", timeout, err))
		return nil
	}
	return err
}

// bequeathed returns what another Kustomization is about to take over, as where one is renamed: deleting that
// would be an outage for nothing.
func (k *Kustomization) bequeathed(ctx context.Context, obj *kustomizev1.Kustomization, target *Target,
	inventory apply.Inventory) apply.Inventory {
	source, waiting := k.source(ctx, obj)
	if waiting != nil {
		return nil // nobody else can build from it either
	}
	r := &run{Kustomization: k, obj: obj, source: source, memory: k.remembered(obj)}
	left := r.inherited(ctx, inventory)
	if still, err := target.Cluster.Owned(ctx, ownerOf(obj), left); err == nil {
		return still
	}
	return left
}

// accountGone tells whether the account that is impersonated in our own cluster is no longer there. It goes
// with its namespace, or with the tenant, in any order: whoever took it away wants the Kustomization gone,
// too.
func (k *Kustomization) accountGone(ctx context.Context, obj *kustomizev1.Kustomization) bool {
	account := accountOf(obj, k.Options.DefaultServiceAccount)
	if account == "" || obj.Spec.KubeConfig != nil {
		return false
	}
	err := k.Configs.Get(ctx, types.NamespacedName{Namespace: obj.Namespace, Name: account}, &corev1.ServiceAccount{})
	return apierrors.IsNotFound(err)
}

func unable(objects int, why error) string {
	return fmt.Sprintf("%d objects are left behind, as whoever applied them can no longer delete them: %v",
		objects, why)
}

// leave tells that objects stay behind.
func (k *Kustomization) leave(ctx context.Context, obj *kustomizev1.Kustomization, message string) {
	log.FromContext(ctx).Info(message)
	k.Events.Emit(kustomizev1.GroupVersion.Group, obj,
		reconcile.Event{Type: corev1.EventTypeWarning, Reason: meta.PruneFailedReason, Message: message,
			Metadata: map[string]string{"revision": obj.Status.LastAppliedRevision}})
}

// collects tells whether deleting the object deletes what it made.
func collects(obj *kustomizev1.Kustomization) bool {
	switch obj.Spec.DeletionPolicy {
	case kustomizev1.DeletionPolicyDelete, kustomizev1.DeletionPolicyWaitForTermination:
		return true
	case kustomizev1.DeletionPolicyOrphan:
		return false
	default:
		return obj.Spec.Prune
	}
}
