package helmrelease

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"helm.sh/helm/v4/pkg/release/common"
	helmrelease "helm.sh/helm/v4/pkg/release/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/helm/digest"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// pin records the release that is healthy, before another one replaces it: gates may make the HelmRelease go back.
func (r *run) pin(ctx context.Context, o *observed) {
	owner := artifact.Healthy(string(r.obj.UID))
	released := r.lastReleased()
	var err error
	switch {
	case !r.pass.MayGoBack():
		err = r.Applied.Forget(owner)
	case o.last != nil && o.last.Chart != nil && o.last.Chart.Metadata != nil && released != nil &&
		r.pass.WasHealthy() && len(r.obj.Status.History) > 0 && o.last.Info.Status == common.StatusDeployed &&
		r.digestOf(o.last) == released.Build:
		err = r.Applied.Keep(ctx, owner, artifact.Applied{Generation: r.obj.Generation, Build: contentOf(o.last)})
		r.pass.SetPrevious(&meta.Previous{Revision: o.last.Chart.Metadata.Version, Generation: r.obj.Generation,
			Release: o.last.Version})
	}
	if r.Applied.Get(owner) == nil {
		r.pass.SetPrevious(nil)
	}
	if err != nil {
		log.FromContext(ctx).Error(err, "cannot record the release that was healthy; if the next one fails, the "+
			"HelmRelease cannot go back")
	}
}

// contentOf returns a digest of what a release installs. A rollback has that of the release that it goes back to.
func contentOf(rel *helmrelease.Release) string {
	var hooks []string
	for _, h := range rel.Hooks {
		if h != nil {
			hooks = append(hooks, h.Name, h.Manifest)
		}
	}
	chart := ""
	if rel.Chart != nil && rel.Chart.Metadata != nil {
		chart = rel.Chart.Metadata.Name + " " + rel.Chart.Metadata.Version
	}
	content, err := json.Marshal([]any{rel.Name, rel.Namespace, chart, rel.Manifest, hooks, digest.Config(rel.Config)})
	if err != nil {
		return "" // cannot happen: the types have no other form
	}
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// mustRevert reports whether a gate makes the HelmRelease go back to the release that was healthy, or it has not
// completed this yet. If it cannot go back, an event says why, once.
func (r *run) mustRevert(ctx context.Context) (bool, error) {
	refusal, reverted := r.pass.Refused(), r.pass.Reverted()
	if refusal == nil && reverted == nil {
		return false, nil
	}
	if err := r.open(ctx); err != nil {
		return false, err
	}
	o, err := r.observe(ctx)
	if err != nil {
		return false, err
	}
	to, err := r.healthy(o)
	switch {
	case refusal == nil && (err != nil || isBack(o, to)):
		return false, nil // it is back, and only its drift is corrected
	case refusal == nil && r.hasFailedToGoBack(o):
		return false, nil // it stays Stalled
	case err != nil:
		r.staysAt(err)
		return false, nil
	}
	r.pass.GoBack(to.Chart.Metadata.Version, refusal)
	r.found, r.revertTo = o, to
	return true, nil
}

// isBack reports whether a release is deployed already: by the remediation of the HelmRelease, or by an earlier
// process.
func isBack(o *observed, to *helmrelease.Release) bool {
	return o.last.Info.Status == common.StatusDeployed && contentOf(o.last) == contentOf(to)
}

// healthy returns the stored release that was healthy last, or why the HelmRelease cannot go back to it.
func (r *run) healthy(o *observed) (*helmrelease.Release, error) {
	pinned := r.Applied.Get(artifact.Healthy(string(r.obj.UID)))
	if pinned == nil {
		return nil, errors.New("no earlier release was healthy")
	}
	for _, rel := range o.history {
		isGood := rel.Info.Status == common.StatusDeployed || rel.Info.Status == common.StatusSuperseded
		if isGood && rel.Chart != nil && rel.Chart.Metadata != nil && contentOf(rel) == pinned.Build {
			return rel, nil
		}
	}
	return nil, errors.New("the release that was healthy is no longer stored")
}

// hasFailedToGoBack reports whether the last action was a rollback that failed. It is not repeated.
func (r *run) hasFailedToGoBack(o *observed) bool {
	return r.isRolledBack(o) && o.last.Info.Status == common.StatusFailed && !r.pass.Requested
}

// staysAt reports, once, why the HelmRelease cannot go back.
func (r *run) staysAt(why error) {
	text := fmt.Sprintf("cannot go back: %v. Repair the objects in the cluster, or approve a newer revision by its "+
		"name", why)
	if r.state.reportedStay != text {
		r.Events.Emit(GroupKind.Group, r.obj, reconcile.Event{Type: corev1.EventTypeWarning,
			Reason: meta.RevertFailedReason, Message: text})
	}
	r.state.reportedStay = text
}

// revert rolls back to the release that was healthy, unless that was done already.
func (r *run) revert(ctx context.Context) *reconcile.Outcome {
	return ptr.To(r.outcome(r.rollBack(ctx)))
}

func (r *run) rollBack(ctx context.Context) reconcile.Outcome {
	reverted, to := r.pass.Reverted(), r.revertTo
	text := fmt.Sprintf("to release %s with chart %s@%s, from %s by gate '%s': %s", describe(to),
		to.Chart.Metadata.Name, to.Chart.Metadata.Version, reverted.From, reverted.Gate, reverted.Reason)
	if !isBack(r.found, to) {
		r.report.Warn(meta.RevertedReason, text)
		if err := r.rollBackTo(ctx, r.found, to); err != nil {
			f := fault.New(helmv2.RollbackFailedReason, "cannot go back %s. Repair the objects in the cluster and "+
				"reconcile, or approve a newer revision by its name", text).Because(err).Final()
			return reconcile.Failed(f).Unhealthy()
		}
	}
	r.clearFailures()
	s := &r.obj.Status
	s.LastAttemptedRevision, s.LastAttemptedConfigDigest = to.Chart.Metadata.Version, digest.Config(to.Config)
	s.LastAttemptedGeneration = 0 // what is declared was not attempted
	if o, err := r.observe(ctx); err == nil && o.last != nil && len(s.History) > 0 {
		r.recordInventory(ctx, o.last)
		r.retain(ctx, o.last)
	}
	r.recordReleased(helmv2.RollbackSucceededReason, "Reverted "+text)
	return reconcile.Ready(helmv2.RollbackSucceededReason, "Reverted %s", text)
}

// rollBackTo runs Helm's rollback. A release that an earlier process left pending is recovered first.
func (r *run) rollBackTo(ctx context.Context, o *observed, to *helmrelease.Release) error {
	if err := r.pass.Save(ctx, "Going back to release "+describe(to)); err != nil {
		return err
	}
	r.worked = true
	r.forgetReleased(ctx)
	if status := o.last.Info.Status; status.IsPending() {
		if err := r.recover(ctx, o); err != nil {
			return err
		}
	}
	return r.rollback(ctx, o.last, to, "release "+describe(to))
}
