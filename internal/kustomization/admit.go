package kustomization

import (
	"context"
	"fmt"

	"k8s.io/utils/ptr"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/rollout"
)

// work is what a pass was admitted to do.
type work struct {
	source     *meta.Artifact
	healthOnly bool // only wait for the health of what is already applied
	reverts    bool // go back to what was healthy before
}

// admit asks the gates and checks the dependencies. It returns the outcome if the pass must not continue.
func (c *Controller) admit(ctx context.Context, pass *reconcile.Pass[*kustomizev1.Kustomization],
	source *meta.Artifact) (work, *reconcile.Outcome) {
	obj := pass.Object
	p := c.newProposal(ctx, pass, source)
	if err := rollout.Admit(&c.stateOf(obj).decided, pass, source.Revision, p.what, p.propose); err == nil {
		if waiting := c.checkDependencies(ctx, obj, source); waiting != nil {
			return work{}, ptr.To(waiting.WithArtifact(source))
		}
		return work{source: source}, nil
	}
	if promoted, outcome := c.admitPromoted(ctx, pass, source); promoted != nil || outcome != nil {
		return ptr.Deref(promoted, work{}), outcome
	}
	if back := c.goBack(pass); back != nil {
		return *back, nil
	}
	// Closed gates allow work in progress to finish: the revision that was started, or, if the source has a newer one,
	// the rollout of what is already applied.
	attempted := obj.Status.LastAttemptedRevision
	if !pass.WasAdmitted(attempted) {
		return work{}, ptr.To(c.hold(ctx, pass, p))
	}
	switch {
	case pass.InProgress && source.Revision == attempted && !pass.HasRules():
		return work{source: source}, nil
	case pass.InProgress && c.stateOf(obj).apply.isComplete:
		return work{source: &meta.Artifact{Revision: attempted}, healthOnly: true}, nil
	case pass.IsWatched(attempted):
		return work{}, ptr.To(c.watch(ctx, pass, p))
	}
	return work{}, ptr.To(c.hold(ctx, pass, p))
}

// watch corrects the drift of a Kustomization that gates hold, and checks its health, as a gate watches what it let
// through before. Nothing else is applied.
func (c *Controller) watch(ctx context.Context, pass *reconcile.Pass[*kustomizev1.Kustomization],
	p *proposal) reconcile.Outcome {
	obj, s := pass.Object, c.stateOf(pass.Object)
	report, retry := c.correctHeld(ctx, pass)
	applied := c.appliedOf(obj, s)
	if retry || !s.apply.isComplete || applied == nil || applied.Artifact.Revision != obj.Status.LastAttemptedRevision {
		return c.holdWith(ctx, pass, p, report, retry)
	}
	target, err := c.Clusters.Target(ctx, refOf(obj), c.destination(obj))
	if err != nil {
		return reconcile.Failed(err)
	}
	r := &run{Controller: c, pass: pass, obj: obj, source: &applied.Artifact, target: target, state: s, report: report,
		held: true}
	r.begin()
	r.reportReverted()
	progressing, err := r.checkHealth(ctx)
	pending := reconcile.Held(meta.Pending{})
	if p.source.Revision != r.source.Revision || pass.HasRules() {
		pending = c.pending(ctx, pass, p)
	}
	switch {
	case err != nil:
		return r.unhealthy(err).Watched(pending)
	case progressing != nil:
		return r.outcome(*progressing).Watched(pending)
	}
	return r.succeeded().Watched(pending)
}

// hold corrects the drift of a Kustomization that gates hold, and returns its outcome.
func (c *Controller) hold(ctx context.Context, pass *reconcile.Pass[*kustomizev1.Kustomization],
	p *proposal) reconcile.Outcome {
	report, retry := c.correctHeld(ctx, pass)
	return c.holdWith(ctx, pass, p, report, retry)
}

// holdWith returns the outcome of a Kustomization that gates hold, whose drift was corrected.
func (c *Controller) holdWith(ctx context.Context, pass *reconcile.Pass[*kustomizev1.Kustomization], p *proposal,
	report rollout.Report, retry bool) reconcile.Outcome {
	c.stateOf(pass.Object).health.Reset()
	if text := c.explainMissing(pass, p.source); text != "" {
		c.stateOf(pass.Object).apply.warnOnce(&report, text)
	}
	outcome := report.Outcome(c.pending(ctx, pass, p))
	if retry {
		outcome = outcome.After(rollout.CorrectionRetry)
	}
	return outcome
}

// pending returns the outcome of a Kustomization that gates hold, with a preview of the pending change.
func (c *Controller) pending(ctx context.Context, pass *reconcile.Pass[*kustomizev1.Kustomization],
	p *proposal) reconcile.Outcome {
	obj, s, source := pass.Object, c.stateOf(pass.Object), p.source
	if source.Revision == obj.Status.LastAppliedRevision && obj.Status.ObservedGeneration == obj.Generation &&
		!pass.HasRules() {
		return reconcile.Held(meta.Pending{}) // no change is pending
	}
	key := ""
	if !pass.HasRules() {
		key = fmt.Sprintf("%s/%s/%d", source.Revision, source.Digest, obj.Generation)
	}
	return reconcile.Held(s.preview.Get(ctx, key, source.Revision, p.propose))
}
