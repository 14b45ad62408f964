package kustomization

import (
	"context"

	"k8s.io/utils/ptr"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// mode is what gates let a pass do.
type mode int

const (
	modeApply      mode = iota // apply an artifact of the source
	modeHealthOnly             // wait for the health of what is applied
	modeRevert                 // go back to what was healthy before
	modeHold                   // correct drift of what is applied, and watch its health if a gate does
)

// admit asks the gates what the pass may do, and with which artifact, and checks the dependencies of a new one.
func (r *run) admit(ctx context.Context) (mode, *reconcile.Outcome) {
	r.proposal = r.newProposal(ctx, r.pass, r.source)
	if r.admits(r.proposal) {
		return modeApply, r.awaitDependencies(ctx)
	}
	if promoted := r.promoted(ctx); promoted != nil {
		r.source = promoted
		return modeApply, r.awaitDependencies(ctx)
	}
	if healthy := r.goBack(); healthy != nil {
		r.source = healthy
		return modeRevert, nil
	}
	attempted := r.obj.Status.LastAttemptedRevision
	switch {
	case !r.pass.InProgress || !r.pass.WasAdmitted(attempted):
	case r.source.Revision == attempted && !r.pass.HasRules():
		return modeApply, nil // an apply that was admitted is completed, so that the cluster is not left in between
	case r.state.apply.isComplete:
		r.source = &meta.Artifact{Revision: attempted} // the source may have a newer one
		return modeHealthOnly, nil
	}
	return modeHold, nil
}

// awaitDependencies returns the outcome while a dependency is not ready.
func (r *run) awaitDependencies(ctx context.Context) *reconcile.Outcome {
	if waiting := r.checkDependencies(ctx, r.obj, r.source); waiting != nil {
		return ptr.To(waiting.WithArtifact(r.source))
	}
	return nil
}
