package helmrelease

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/rollout"
)

// Finalize uninstalls the release, unless the HelmRelease is suspended or all of Sluice is removed, and deletes the
// source object that was created for it. It works without the chart and the values.
func (c *Controller) Finalize(ctx context.Context, obj *helmv2.HelmRelease) error {
	if !obj.Spec.Suspend {
		if err := c.uninstallAll(ctx, obj); err != nil {
			return err
		}
	}
	if err := c.deleteTemplate(ctx, obj); err != nil {
		return err
	}
	c.forget(obj)
	return nil
}

// uninstallAll uninstalls the release that the status records. It returns nil if it is uninstalled, or cannot be and is
// left in the cluster, which an event reports.
func (c *Controller) uninstallAll(ctx context.Context, obj *helmv2.HelmRelease) error {
	snapshot, ok := recordedRelease(obj)
	if !ok {
		return nil
	}
	removed, err := c.Removal.Of(ctx, refOf(obj))
	if err != nil {
		return err
	}
	if removed != "" {
		c.reportLeftBehind(ctx, obj, removed)
		return nil
	}
	destination := c.destination(obj)
	target, err := c.Clusters.Target(ctx, refOf(obj), destination)
	if rollout.IsCredentialsNotFound(err) {
		c.reportLeftBehind(ctx, obj, noCredentials(obj, err))
		return nil // otherwise the deletion could never complete
	}
	if err != nil {
		return err
	}
	defer target.Forget(refOf(obj))
	r := &run{Controller: c, desired: &desired{name: snapshot.Name}, obj: obj, target: target,
		state: c.states.Of(obj.UID, newState), report: rollout.Report{Owner: refOf(obj)}}
	defer r.releaseMemory()
	r.state.warnings = "" // only those of this uninstall are reported
	namespace := obj.Status.StorageNamespace
	if namespace == "" {
		namespace = obj.GetStorageNamespace()
	}
	if r.storage, err = openStorage(target, namespace); err != nil {
		return err
	}
	err = r.uninstallRecorded(ctx, snapshot, namespace)
	if text := r.state.warnings; text != "" {
		c.emit(obj, corev1.EventTypeWarning, meta.AppliedWithWarningsReason, text)
	}
	if err != nil && destination.AccountMissing(ctx, c.Live, obj.Namespace) {
		c.reportLeftBehind(ctx, obj, noCredentials(obj, err))
		return nil
	}
	if err == nil {
		c.emit(obj, corev1.EventTypeNormal, helmv2.UninstallSucceededReason,
			fmt.Sprintf("Helm uninstall succeeded for release %s/%s", snapshot.Namespace, snapshot.Name))
	}
	return err
}

// recordedRelease returns the release that the status records; one whose install was started has only a name.
func recordedRelease(obj *helmv2.HelmRelease) (helmv2.Snapshot, bool) {
	if len(obj.Status.History) > 0 {
		s := obj.Status.History[0]
		return s, s.Deleted == nil
	}
	return helmv2.Snapshot{Name: releaseName(obj), Namespace: obj.GetReleaseNamespace()},
		obj.Status.LastAttemptedReleaseAction != ""
}

func noCredentials(obj *helmv2.HelmRelease, err error) string {
	text := "the credentials to uninstall it no longer exist"
	if names := rollout.NameObjects(rollout.Inventory(obj.Status.Inventory)); names != "" {
		text += ", so that these objects stay: " + names
	}
	return fmt.Sprintf("%s: %v", text, err)
}

// reportLeftBehind reports that a release is left in the cluster, and why.
func (c *Controller) reportLeftBehind(ctx context.Context, obj *helmv2.HelmRelease, why string) {
	message := "release left in the cluster: " + why
	log.FromContext(ctx).Info(message)
	c.emit(obj, corev1.EventTypeWarning, helmv2.UninstallFailedReason, message)
}

// emit emits an event about the deletion of a HelmRelease.
func (c *Controller) emit(obj *helmv2.HelmRelease, eventType, reason, message string) {
	c.Events.Emit(GroupKind.Group, obj, reconcile.Event{Type: eventType, Reason: reason, Message: message})
}
