package kustomization

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/log"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/rollout"
)

// retain records what was applied completely, so that drift can be corrected to it behind a closed gate, also when the
// source has a newer revision and after a restart.
func (r *run) retain(ctx context.Context) {
	if !r.state.apply.isComplete || r.state.apply.lastAppliedDigest != r.state.build.digest {
		return
	}
	r.state.apply.applied = &artifact.Applied{Source: sourceKey(r.obj), Artifact: *r.source,
		Generation: r.obj.Generation, Build: r.state.build.digest}
	if r.pass.IsGated() {
		r.keepApplied(ctx, r.obj, r.state)
	}
	r.dropPromotable(ctx, r.obj, *r.source)
}

// keepApplied saves what was applied last.
func (c *Controller) keepApplied(ctx context.Context, obj *kustomizev1.Kustomization, s *state) {
	if s.apply.applied == nil {
		return
	}
	if err := c.Applied.Keep(ctx, string(obj.UID), *s.apply.applied); err != nil {
		log.FromContext(ctx).Error(err, "cannot retain the applied artifact; after a restart behind a closed gate, "+
			"drift is not corrected until the gate opens")
	}
}

// appliedOf returns what was applied last, completely; nil if that is not known.
func (c *Controller) appliedOf(obj *kustomizev1.Kustomization, s *state) *artifact.Applied {
	if s.apply.applied != nil {
		return s.apply.applied
	}
	return c.Applied.Get(string(obj.UID))
}

// forgetApplied records that what was applied last is about to be replaced.
func (c *Controller) forgetApplied(ctx context.Context, obj *kustomizev1.Kustomization, s *state) {
	s.apply.applied = nil
	if err := c.Applied.Forget(string(obj.UID)); err != nil {
		log.FromContext(ctx).Error(err, "cannot remove a retained artifact")
	}
}

// correctHeld corrects the drift of a Kustomization that gates hold, to what they let through before. It applies
// nothing else: not if the spec has changed since, nor if variables or keys have, so that the build differs. It returns
// the events of the correction for the outcome.
func (c *Controller) correctHeld(ctx context.Context,
	pass *reconcile.Pass[*kustomizev1.Kustomization]) (report rollout.Report, retry bool) {
	obj, s := pass.Object, c.stateOf(pass.Object)
	report.Owner = refOf(obj)
	c.keepApplied(ctx, obj, s) // if the gate is newer than the apply
	applied := c.appliedOf(obj, s)
	if applied == nil || applied.Generation != obj.Generation || obj.DriftMode() == meta.DriftDisabled {
		return report, false
	}
	r := &run{Controller: c, pass: pass, obj: obj, source: &applied.Artifact, state: s, report: report,
		held: true}
	var err error
	if r.target, err = c.Clusters.Target(ctx, refOf(obj), c.destination(obj)); err == nil {
		s.apply.setTarget(r.target)
		if !pass.Requested && s.apply.isComplete && !r.needsCorrection() {
			return r.report, false
		}
		err = r.reapply(ctx, applied)
	}
	text := ""
	if err != nil {
		text = "cannot correct drift behind a closed gate: " + err.Error()
	}
	if text != "" && text != s.apply.heldProblem {
		r.report.Warn(fault.Reason(err, meta.ReconciliationFailedReason), text)
	}
	s.apply.heldProblem = text
	return r.report, err != nil
}

// reapply makes the cluster match what was applied before.
func (r *run) reapply(ctx context.Context, applied *artifact.Applied) error {
	in, err := r.readInputs(ctx, r.obj)
	if err != nil {
		return err
	}
	tree, err := r.tree(ctx, applied)
	if err != nil {
		return err
	}
	built, err := r.buildTree(ctx, r.obj, r.source.Revision, tree, in)
	if err != nil {
		return in.redact(err)
	}
	if "sha256:"+built.Digest != applied.Build {
		return nil // a change of variables or keys, which waits for the gate as well
	}
	r.recordBuild(in, built)
	r.state.apply.lastAppliedDigest = applied.Build
	err = in.redact(r.correct(ctx, built))
	r.reportContentions()
	return r.destination(r.obj).ExplainMissingAccount(ctx, r.Live, r.obj.Namespace, err)
}

// tree returns the tree of what was applied: the retained one, or that of the source if it still has it.
func (r *run) tree(ctx context.Context, applied *artifact.Applied) (*artifact.Tree, error) {
	tree, err := r.Applied.Tree(string(r.obj.UID))
	if err != nil {
		return r.fetch(ctx, r.obj, &applied.Artifact)
	}
	return tree, nil
}
