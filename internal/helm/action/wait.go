package action

import (
	"context"
	"fmt"

	"helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/internal/helm/kube"
	"github.com/sluice-gitops/sluice/internal/rollout"
)

// waitDescription is the description of a release whose objects are all applied, but not healthy yet.
const waitDescription = "Waiting for the objects to become healthy"

// deferral lets a later pass wait for the health of the objects, so that the wait holds no worker. Helm's sequence must
// not go on after the wait: an action with hooks of the event next waits itself.
func (r *Run) deferral(isAllowed bool, next release.HookEvent) func() (bool, error) {
	if !isAllowed {
		return nil
	}
	return func() (bool, error) { return r.Storage.Hold(waitDescription, next) }
}

// hookUnless returns an event, or none if hooks are disabled.
func hookUnless(isDisabled bool, e release.HookEvent) release.HookEvent {
	if isDisabled {
		return ""
	}
	return e
}

// waited replaces the error of an action whose wait is left to a later pass.
func waited(client *kube.Client, err error) error {
	if client.IsDeferred() {
		return rollout.ErrUnhealthyYet
	}
	return err
}

// IsWaiting reports whether the objects of a stored release are applied, and only their health is waited for.
func IsWaiting(rel *release.Release) bool {
	return rel.Info.Status.IsPending() && rel.Info.Description == waitDescription
}

// ActionOf returns the action that a pending release is of.
func ActionOf(rel *release.Release) string {
	if rel.Info.Status == common.StatusPendingInstall {
		return helmv2.ActionInstall
	}
	return helmv2.ActionUpgrade
}

// Wait returns what is left to wait for of a release for which [IsWaiting] is true.
func (r *Run) Wait(ctx context.Context, rel *release.Release) (rollout.Wait, error) {
	_, client, err := r.begin(ctx, func(*kube.Options) {})
	if err != nil {
		return rollout.Wait{}, err
	}
	own, withJobs := r.Object.GetTimeout(nil), true
	if u := r.Object.Spec.Upgrade; ActionOf(rel) == helmv2.ActionUpgrade && u != nil {
		own, withJobs = r.Object.GetTimeout(u.Timeout), !u.DisableWaitForJobs
	} else if i := r.Object.Spec.Install; ActionOf(rel) == helmv2.ActionInstall && i != nil {
		own, withJobs = r.Object.GetTimeout(i.Timeout), !i.DisableWaitForJobs
	}
	wait, err := client.WaitFor(rel.Manifest, withJobs)
	wait.Timeout = own
	return wait, err
}

// Complete marks a release as deployed, and those that were deployed before as superseded.
func (r *Run) Complete(rel *release.Release, history []*release.Release) error {
	description := "Install complete"
	if ActionOf(rel) == helmv2.ActionUpgrade {
		description = "Upgrade complete"
	}
	for _, before := range history {
		if before.Version < rel.Version && before.Info.Status == common.StatusDeployed {
			before.Info.Status = common.StatusSuperseded
			if err := r.Storage.Storage(0).Update(before); err != nil {
				return err
			}
		}
	}
	rel.SetStatus(common.StatusDeployed, description)
	return r.Storage.Storage(0).Update(rel)
}

// Fail marks a release as failed.
func (r *Run) Fail(rel *release.Release, cause string) error {
	rel.SetStatus(common.StatusFailed, fmt.Sprintf("Release %q failed: %s", rel.Name, cause))
	return r.Storage.Storage(0).Update(rel)
}
