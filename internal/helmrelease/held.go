package helmrelease

import (
	"context"

	"helm.sh/helm/v4/pkg/release/common"
	helmrelease "helm.sh/helm/v4/pkg/release/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/artifact"
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
		r.keepReleased(ctx)
	}
}

// digestOf returns the digest of a stored release that is the newest one of the status.
func (r *run) digestOf(rel *helmrelease.Release) string {
	return digest.Release(rel, r.obj.Status.History[0].OCIDigest)
}

// keepReleased saves what was released last.
func (r *run) keepReleased(ctx context.Context) {
	if r.state.released == nil {
		return
	}
	if err := r.Applied.Keep(ctx, string(r.obj.UID), *r.state.released); err != nil {
		log.FromContext(ctx).Error(err, "cannot record the release; after a restart behind a closed gate, "+
			"drift is not corrected until the gate opens")
	}
}

// lastReleased returns what was released last, completely; nil if that is not known.
func (r *run) lastReleased() *artifact.Applied {
	if r.state.released != nil {
		return r.state.released
	}
	return r.Applied.Get(string(r.obj.UID))
}

// forgetReleased records that what was released last is about to be replaced.
func (r *run) forgetReleased(ctx context.Context) {
	r.state.released = nil
	if err := r.Applied.Forget(string(r.obj.UID)); err != nil {
		log.FromContext(ctx).Error(err, "cannot remove the record of a release")
	}
}

// hold corrects the drift of a HelmRelease that gates hold, and shows the change that waits.
func (r *run) hold(ctx context.Context) *reconcile.Outcome {
	err := r.correctHeld(ctx)
	pending := meta.Pending{} // no change
	if !r.isReleased(r.obj) {
		key := r.decision(r.obj)
		if r.pass.HasRules() {
			key = "" // the pending change is the one that the gates decided about
		}
		pending = r.state.preview.Get(ctx, key, r.chart.version, r.propose)
	}
	outcome := r.report.Outcome(reconcile.Held(pending))
	if err != nil {
		outcome = outcome.After(rollout.CorrectionRetry)
	}
	return &outcome
}

// correctHeld corrects drift to the release that gates let through before, and reports an error once. It releases
// nothing, and does nothing if the spec has changed since.
func (r *run) correctHeld(ctx context.Context) error {
	r.keepReleased(ctx) // if the gate is newer than the release
	released := r.lastReleased()
	if released == nil || released.Generation != r.obj.Generation || r.obj.DriftMode() == meta.DriftDisabled ||
		len(r.obj.Status.History) == 0 {
		return nil
	}
	err := r.open(ctx)
	if err == nil {
		err = r.correctTo(ctx, released)
	}
	r.state.heldProblem.Report(&r.report, err)
	return err
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
