package kustomization

import (
	"context"
	"fmt"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/rollout"
)

// retain records what was applied completely, so that drift can be corrected to it behind a closed gate, also when the
// source has a newer revision and after a restart.
func (r *run) retain(ctx context.Context) *reconcile.Outcome {
	if !r.state.apply.isComplete || r.state.apply.lastAppliedDigest != r.state.build.digest {
		return nil
	}
	r.state.apply.applied = &artifact.Applied{Source: sourceKey(r.obj), Artifact: *r.source,
		Generation: r.obj.Generation, Build: r.state.build.digest}
	if r.pass.IsGated() {
		r.keepApplied(ctx)
	}
	r.dropPromotable(ctx)
	return nil
}

// keepApplied saves what was applied last.
func (r *run) keepApplied(ctx context.Context) {
	if r.state.apply.applied == nil {
		return
	}
	if err := r.Applied.Keep(ctx, string(r.obj.UID), *r.state.apply.applied); err != nil {
		log.FromContext(ctx).Error(err, "cannot retain the applied artifact; after a restart behind a closed gate, "+
			"drift is not corrected until the gate opens")
	}
}

// lastApplied returns what was applied last, completely; nil if that is not known.
func (r *run) lastApplied() *artifact.Applied {
	if r.state.apply.applied != nil {
		return r.state.apply.applied
	}
	return r.Applied.Get(string(r.obj.UID))
}

// forgetApplied records that what was applied last is about to be replaced.
func (r *run) forgetApplied(ctx context.Context) {
	r.state.apply.applied = nil
	if err := r.Applied.Forget(string(r.obj.UID)); err != nil {
		log.FromContext(ctx).Error(err, "cannot remove a retained artifact")
	}
}

// hold corrects the drift of a Kustomization that gates hold. The pass ends, unless a gate watches what it let through
// before: then the health of that is checked, but nothing else is applied.
func (r *run) hold(ctx context.Context) *reconcile.Outcome {
	applied := r.lastApplied()
	err := r.correctHeld(ctx, applied)
	attempted := r.obj.Status.LastAttemptedRevision
	if err == nil && r.pass.IsWatched(attempted) && r.state.apply.isComplete && applied != nil &&
		applied.Artifact.Revision == attempted {
		r.pending = ptr.To(reconcile.Held(meta.Pending{}))
		if r.proposal.source.Revision != attempted || r.pass.HasRules() {
			r.pending = ptr.To(r.preview(ctx))
		}
		r.source = &applied.Artifact
		r.reportReverted()
		return nil
	}
	r.state.health.Reset()
	if text := r.explainMissing(); text != "" && text != r.state.apply.missing {
		r.report.Warn(meta.ArtifactFailedReason, text)
		r.state.apply.missing = text
	}
	outcome := r.report.Outcome(r.preview(ctx))
	if err != nil {
		outcome = outcome.After(rollout.CorrectionRetry)
	}
	return &outcome
}

// preview returns the outcome of a Kustomization that gates hold, with a preview of the pending change.
func (r *run) preview(ctx context.Context) reconcile.Outcome {
	source := r.proposal.source
	if source.Revision == r.obj.Status.LastAppliedRevision && r.obj.Status.ObservedGeneration == r.obj.Generation &&
		!r.pass.HasRules() {
		return reconcile.Held(meta.Pending{}) // no change is pending
	}
	key := "" // rules decide about each build, so that the change is the one that they were asked about
	if !r.pass.HasRules() {
		key = fmt.Sprintf("%s/%s/%d", source.Revision, source.Digest, r.obj.Generation)
	}
	return reconcile.Held(r.state.preview.Get(ctx, key, source.Revision, r.proposal.propose))
}

// correctHeld corrects drift to what gates let through before, and reports an error once. It applies nothing else: not
// if the spec has changed since, nor if variables or keys have, so that the build differs.
func (r *run) correctHeld(ctx context.Context, applied *artifact.Applied) error {
	r.keepApplied(ctx) // if the gate is newer than the apply
	if applied == nil || applied.Generation != r.obj.Generation || r.obj.DriftMode() == meta.DriftDisabled {
		return nil
	}
	s := &r.state.apply
	target, err := r.Clusters.Target(ctx, refOf(r.obj), r.destination(r.obj))
	if err == nil {
		r.target, r.source = target, &applied.Artifact
		s.setTarget(target)
		if !r.pass.Requested && s.isComplete && !r.needsCorrection() {
			return nil
		}
		err = r.reapply(ctx, applied)
	}
	s.heldProblem.Report(&r.report, err)
	return err
}

// reapply makes the cluster match what was applied before.
func (r *run) reapply(ctx context.Context, applied *artifact.Applied) (err error) {
	if r.inputs, err = r.inputsOf(ctx, r.obj); err != nil {
		return err
	}
	tree, err := r.Applied.Tree(string(r.obj.UID))
	if err != nil {
		tree, err = r.fetch(ctx, r.obj, &applied.Artifact) // the source may still have it
	}
	if err != nil {
		return err
	}
	built, err := r.buildTree(ctx, r.obj, r.source.Revision, tree, r.inputs)
	if err != nil {
		return err
	}
	if "sha256:"+built.Digest != applied.Build {
		return nil // a change of variables or keys, which waits for the gate as well
	}
	r.recordBuild(built)
	r.state.apply.lastAppliedDigest = applied.Build
	err = r.correct(ctx)
	r.reportContentions()
	return err
}
