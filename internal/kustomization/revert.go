package kustomization

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// keepHealthy keeps the artifact that the Kustomization is healthy with, before another revision is applied: gates may
// make it go back.
func (r *run) keepHealthy(ctx context.Context) *reconcile.Outcome {
	owner := artifact.Healthy(string(r.obj.UID))
	var err error
	switch applied := r.lastApplied(); {
	case r.mode == modeRevert: // it goes back to what is kept
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
	r.reportReverted()
	return nil
}

// previous returns what the Kustomization was healthy with before; nil if that is not kept.
func (r *run) previous() *meta.Previous {
	healthy := r.Applied.Get(artifact.Healthy(string(r.obj.UID)))
	if healthy == nil {
		return nil
	}
	return &meta.Previous{Revision: healthy.Artifact.Revision, Generation: healthy.Generation}
}

// goBack returns the artifact that was healthy, if a gate makes the Kustomization go back to it or it has not completed
// this yet; nil if it stays as it is.
func (r *run) goBack() *meta.Artifact {
	refusal, reverted, s := r.pass.Refused(), r.pass.Reverted(), &r.state.apply
	s.staysProblem = ""
	if refusal == nil {
		applied := r.lastApplied()
		if reverted == nil || applied != nil && applied.Artifact.Revision == reverted.To {
			return nil // it is back, and is watched
		}
	}
	healthy, err := r.healthy()
	if err == nil && refusal == nil && healthy.Artifact.Revision != reverted.To {
		return nil
	}
	if err != nil {
		s.staysProblem = fmt.Sprintf("cannot go back: %v. Repair the objects in the cluster, or approve a newer "+
			"revision by its name", err)
		return nil
	}
	r.pass.GoBack(healthy.Artifact.Revision, refusal)
	return &healthy.Artifact
}

// healthy returns what the Kustomization was healthy with, or why it cannot go back to it.
func (r *run) healthy() (*artifact.Applied, error) {
	owner := artifact.Healthy(string(r.obj.UID))
	healthy := r.Applied.Get(owner)
	if healthy == nil {
		return nil, errors.New("no earlier revision was healthy")
	}
	if healthy.Generation != r.obj.Generation {
		return nil, fmt.Errorf("the spec was changed after revision '%s' was applied", healthy.Artifact.Revision)
	}
	if _, err := r.Applied.Tree(owner); err != nil {
		return nil, fmt.Errorf("the artifact of revision '%s' is gone", healthy.Artifact.Revision)
	}
	return healthy, nil
}

// reportReverted emits an event when the Kustomization begins to go back, or cannot.
func (r *run) reportReverted() {
	reverted, s := r.pass.Reverted(), &r.state.apply
	if r.mode == modeRevert && reverted != nil && s.reportedRevert != reverted.From {
		r.report.Warn(meta.RevertedReason, fmt.Sprintf("to %s: %s", reverted.To, describeReverted(reverted)))
		s.reportedRevert = reverted.From
	}
	if text := s.staysProblem; text != "" && text != s.reportedStay {
		r.report.Warn(meta.RevertFailedReason, text)
	}
	s.reportedStay = s.staysProblem
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
