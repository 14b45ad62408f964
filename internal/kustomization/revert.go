package kustomization

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/log"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// pin keeps the artifact that the Kustomization is healthy with, before another revision is applied: gates may make it
// go back.
func (r *run) pin(ctx context.Context) {
	owner := artifact.Healthy(string(r.obj.UID))
	var err error
	switch applied := r.appliedOf(r.obj, r.state); {
	case r.reverts:
	case !r.pass.MayGoBack():
		err = r.Applied.Forget(owner)
	case applied != nil && applied.Artifact.Revision != r.source.Revision && r.pass.WasHealthy() &&
		r.pass.WasAdmitted(applied.Artifact.Revision):
		err = r.Applied.Keep(ctx, owner, *applied)
	}
	r.pass.SetPrevious(r.previous())
	if err != nil {
		log.FromContext(ctx).Error(err, "cannot retain the artifact that was healthy; if the next revision fails, "+
			"the Kustomization cannot go back")
	}
}

// previous returns what the Kustomization was healthy with before; nil if that is not kept.
func (r *run) previous() *meta.Previous {
	healthy := r.Applied.Get(artifact.Healthy(string(r.obj.UID)))
	if healthy == nil {
		return nil
	}
	return &meta.Previous{Revision: healthy.Artifact.Revision, Generation: healthy.Generation}
}

// goBack returns the work of a Kustomization that a gate makes go back to the revision that was healthy, or that has
// not completed this yet; nil if it stays as it is.
func (c *Controller) goBack(pass *reconcile.Pass[*kustomizev1.Kustomization]) *work {
	obj, s := pass.Object, c.stateOf(pass.Object)
	refusal, reverted := pass.Refused(), pass.Reverted()
	s.apply.staysProblem = ""
	if refusal == nil {
		applied := c.appliedOf(obj, s)
		if reverted == nil || applied != nil && applied.Artifact.Revision == reverted.To {
			return nil // it is back, and is watched
		}
	}
	healthy, err := c.healthy(obj)
	if err == nil && refusal == nil && healthy.Artifact.Revision != reverted.To {
		return nil
	}
	if err != nil {
		s.apply.staysProblem = fmt.Sprintf("cannot go back: %v. Repair the objects in the cluster, or approve a newer "+
			"revision by its name", err)
		return nil
	}
	pass.GoBack(healthy.Artifact.Revision, refusal)
	return &work{source: &healthy.Artifact, reverts: true}
}

// healthy returns what the Kustomization was healthy with, or why it cannot go back to it.
func (c *Controller) healthy(obj *kustomizev1.Kustomization) (*artifact.Applied, error) {
	owner := artifact.Healthy(string(obj.UID))
	healthy := c.Applied.Get(owner)
	if healthy == nil {
		return nil, errors.New("no earlier revision was healthy")
	}
	if healthy.Generation != obj.Generation {
		return nil, fmt.Errorf("the spec was changed after revision '%s' was applied", healthy.Artifact.Revision)
	}
	if _, err := c.Applied.Tree(owner); err != nil {
		return nil, fmt.Errorf("the artifact of revision '%s' is gone", healthy.Artifact.Revision)
	}
	return healthy, nil
}

// sourceTree returns the tree to build.
func (r *run) sourceTree(ctx context.Context) (*artifact.Tree, error) {
	if r.reverts {
		return r.Applied.Tree(artifact.Healthy(string(r.obj.UID)))
	}
	return r.fetch(ctx, r.obj, r.source)
}

// reportReverted emits an event when the Kustomization begins to go back, or cannot.
func (r *run) reportReverted() {
	if reverted := r.pass.Reverted(); r.reverts && reverted != nil && r.state.apply.reportedRevert != reverted.From {
		r.report.Warn(meta.RevertedReason, fmt.Sprintf("to %s: %s", reverted.To, describeReverted(reverted)))
		r.state.apply.reportedRevert = reverted.From
	}
	if text := r.state.apply.staysProblem; text != "" && text != r.state.apply.reportedStay {
		r.report.Warn(meta.RevertFailedReason, text)
	}
	r.state.apply.reportedStay = r.state.apply.staysProblem
}

// describeReverted says that an object has an earlier revision than its source on purpose.
func describeReverted(r *meta.Reverted) string {
	return fmt.Sprintf("reverted from %s by gate '%s': %s", r.From, r.Gate, r.Reason)
}

// explainUnhealthy adds to a failed health check that the Kustomization went back already, or cannot.
func (r *run) explainUnhealthy(err error) error {
	reason := fault.Reason(err, meta.HealthCheckFailedReason)
	if reverted := r.pass.Reverted(); reverted != nil {
		return fault.New(reason, "the revision '%s' that the Kustomization went back to is unhealthy, too",
			reverted.To).Because(err).WithHint("Repair the objects in the cluster, or approve a newer revision at "+
			"gate '%s' by its name", reverted.Gate).Final()
	}
	if text := r.state.apply.staysProblem; text != "" {
		return fault.New(reason, "%s. The Kustomization %s", err.Error(), text)
	}
	return err
}
