package kustomization

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/utils/ptr"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/apply"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/rollout"
)

// work is what a pass was admitted to do.
type work struct {
	source     *meta.Artifact
	healthOnly bool // only wait for the health of what is already applied
}

// admit asks the gates and checks the dependencies. It returns the outcome if the pass must not continue.
func (c *Controller) admit(ctx context.Context, pass *reconcile.Pass[*kustomizev1.Kustomization],
	source *meta.Artifact) (work, *reconcile.Outcome) {
	obj := pass.Object
	if err := pass.Admit(source.Revision); err == nil {
		if waiting := c.checkDependencies(ctx, obj, source); waiting != nil {
			return work{}, ptr.To(waiting.WithArtifact(source))
		}
		return work{source: source}, nil
	}
	// Closed gates allow work in progress to finish: the revision that was started, or, if the source has a newer one,
	// the rollout of what is already applied.
	attempted := obj.Status.LastAttemptedRevision
	if !pass.WasAdmitted(attempted) {
		return work{}, ptr.To(c.hold(ctx, pass, source))
	}
	switch {
	case pass.InProgress && source.Revision == attempted:
		return work{source: source}, nil
	case pass.InProgress && c.stateOf(obj).apply.isComplete:
		return work{source: &meta.Artifact{Revision: attempted}, healthOnly: true}, nil
	}
	return work{}, ptr.To(c.hold(ctx, pass, source))
}

// hold corrects the drift of a Kustomization that gates hold, and returns its outcome.
func (c *Controller) hold(ctx context.Context, pass *reconcile.Pass[*kustomizev1.Kustomization],
	source *meta.Artifact) reconcile.Outcome {
	c.stateOf(pass.Object).health.Reset()
	report, retry := c.correctHeld(ctx, pass)
	outcome := report.Outcome(c.pending(ctx, pass, source))
	if retry {
		outcome = outcome.After(rollout.CorrectionRetry)
	}
	return outcome
}

// pending returns the outcome of a Kustomization that gates hold, with a preview of the pending change.
func (c *Controller) pending(ctx context.Context, pass *reconcile.Pass[*kustomizev1.Kustomization],
	source *meta.Artifact) reconcile.Outcome {
	obj, s := pass.Object, c.stateOf(pass.Object)
	if source.Revision == obj.Status.LastAppliedRevision && obj.Status.ObservedGeneration == obj.Generation {
		return reconcile.Held(meta.Pending{}) // no change is pending
	}
	key := fmt.Sprintf("%s/%s/%d", source.Revision, source.Digest, obj.Generation)
	return reconcile.Held(s.preview.Get(key, source.Revision, func() ([]apply.Change, error) {
		return c.preview(ctx, pass, source)
	}))
}

// preview builds the source and returns what an apply would change. It does not change the state.
func (c *Controller) preview(ctx context.Context, pass *reconcile.Pass[*kustomizev1.Kustomization],
	source *meta.Artifact) ([]apply.Change, error) {
	obj := pass.Object
	if waiting := c.checkDependencies(ctx, obj, source); waiting != nil {
		return nil, errors.New(waiting.String()) // the change depends on what the dependencies will apply
	}
	target, err := c.Clusters.Target(ctx, refOf(obj), c.destination(obj))
	if err != nil {
		return nil, err
	}
	in, err := c.readInputs(ctx, obj)
	if err != nil {
		return nil, err
	}
	tree, err := c.fetch(ctx, obj, source)
	if err != nil {
		return nil, err
	}
	built, err := c.buildTree(ctx, obj, tree, in)
	if err != nil {
		return nil, err
	}
	req, err := newApplyRequest(obj, built, applyOptions{
		requested: pass.Requested, resync: pass.Requested || c.needsResync(c.stateOf(obj)),
	})
	if err != nil {
		return nil, err
	}
	if !obj.Spec.Prune {
		req.Previous = nil // nothing would be deleted
	}
	planned, err := target.Cluster.Diff(ctx, req)
	return planned, in.redact(err)
}
