package helmrelease

import (
	"context"

	"helm.sh/helm/v4/pkg/release/common"
	helmrelease "helm.sh/helm/v4/pkg/release/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/helm/digest"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/rollout"
)

// retain records what was released completely, so that drift can be corrected to it behind a closed gate, also after a
// restart. Its manifest is in the storage of releases, which others may be able to write; the recorded digest is not. A
// nil release is the one of an earlier pass.
func (r *run) retain(ctx context.Context, rel *helmrelease.Release) {
	if rel != nil {
		r.state.released = &artifact.Applied{Generation: r.obj.Generation, Build: r.digestOf(rel)}
	}
	if r.pass.IsGated() {
		r.keepReleased(ctx, r.obj, r.state)
	}
}

// digestOf returns the digest of a stored release that is the newest one of the status.
func (r *run) digestOf(rel *helmrelease.Release) string {
	return digest.Release(rel, r.obj.Status.History[0].OCIDigest)
}

// keepReleased saves what was released last.
func (c *Controller) keepReleased(ctx context.Context, obj *helmv2.HelmRelease, s *state) {
	if s.released == nil {
		return
	}
	if err := c.Applied.Keep(ctx, string(obj.UID), *s.released); err != nil {
		log.FromContext(ctx).Error(err, "cannot record the release; after a restart behind a closed gate, "+
			"drift is not corrected until the gate opens")
	}
}

// forgetReleased records that what was released last is about to be replaced.
func (c *Controller) forgetReleased(ctx context.Context, obj *helmv2.HelmRelease, s *state) {
	s.released = nil
	if err := c.Applied.Forget(string(obj.UID)); err != nil {
		log.FromContext(ctx).Error(err, "cannot remove the record of a release")
	}
}

// correctHeld corrects the drift of a HelmRelease that gates hold, to the release that they let through before. It
// releases nothing, and does nothing if the spec has changed since. It returns the events of the correction for the
// outcome.
func (c *Controller) correctHeld(ctx context.Context, pass *reconcile.Pass[*helmv2.HelmRelease],
	d *desired) (report rollout.Report, retry bool) {
	obj, s := pass.Object, c.stateOf(pass.Object)
	report.Owner = refOf(obj)
	c.keepReleased(ctx, obj, s) // if the gate is newer than the release
	released := s.released
	if released == nil {
		released = c.Applied.Get(string(obj.UID))
	}
	if released == nil || released.Generation != obj.Generation || obj.DriftMode() == meta.DriftDisabled ||
		len(obj.Status.History) == 0 {
		return report, false
	}
	r, err := c.newRun(ctx, pass, d)
	if err == nil {
		defer r.releaseMemory()
		r.setTarget()
		err = r.correctTo(ctx, released)
		report = r.report
	}
	text := ""
	if err != nil {
		text = "cannot correct drift behind a closed gate: " + err.Error()
	}
	if text != "" && text != s.heldProblem {
		report.Warn(fault.Reason(err, meta.ReconciliationFailedReason), text)
	}
	s.heldProblem = text
	return report, err != nil
}

// correctTo makes the cluster match what was released before. A stored release that is another one, for example because
// someone changed its Secret, is not applied: this would be a change that waits for the gate as well.
func (r *run) correctTo(ctx context.Context, released *artifact.Applied) error {
	if !r.needsCorrection(rollout.OwnerOf(refOf(r.obj))) {
		return nil
	}
	o, err := r.observe(ctx)
	if err != nil {
		return err
	}
	if o.last == nil || o.last.Info.Status != common.StatusDeployed || r.digestOf(o.last) != released.Build {
		return nil
	}
	return r.destination(r.obj).ExplainMissingAccount(ctx, r.Live, r.obj.Namespace, r.correct(ctx, o.last))
}
