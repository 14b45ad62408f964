package resourceset

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/utils/ptr"

	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/rollout"
)

// admit asks the gates about what was rendered, or about what is applied if that is still current. It returns the
// outcome if the pass must not continue. Behind a closed gate, drift is corrected as long as nothing else would change.
func (r *run) admit(ctx context.Context, built *build) (*reconcile.Outcome, error) {
	s, digest := r.state, r.state.build.digest
	r.cancelHealth()
	if r.obj.Status.ObservedGeneration == r.obj.Generation {
		r.pass.CurrentRevision = r.obj.Status.LastAppliedRevision
	}
	decision := fmt.Sprintf("%d/%s", r.obj.Generation, digest)
	propose := func() (*rollout.Proposal, error) { return r.propose(ctx, built, decision) }
	err := rollout.Admit(&s.decided, r.pass, digest, func() (string, error) { return decision, nil }, propose)
	if err == nil || r.pass.InProgress && r.pass.WasAdmitted(digest) && !r.pass.HasRules() {
		return nil, nil
	}
	isApplied := digest == r.obj.Status.LastAppliedRevision && r.obj.Status.ObservedGeneration == r.obj.Generation
	if !isApplied || built == nil {
		s.health.Reset()
		s.build.key = "" // what waits is rendered again when the gates open
		key := ""
		if !r.pass.HasRules() {
			key = decision
		}
		if isApplied {
			return ptr.To(r.outcome(reconcile.Failed(err))), nil
		}
		return ptr.To(r.outcome(reconcile.Held(s.preview.Get(ctx, key, digest, propose)))), nil
	}
	progressing, applied := r.apply(ctx, built)
	if progressing != nil {
		return ptr.To(r.outcome(*progressing)), nil
	}
	if applied != nil {
		return nil, applied
	}
	return ptr.To(r.outcome(reconcile.Failed(err))), nil
}

// propose returns what an apply would change.
func (r *run) propose(ctx context.Context, built *build, decision string) (*rollout.Proposal, error) {
	if built == nil {
		return nil, errors.New("nothing was rendered")
	}
	req := r.request(built.objects(len(built.steps)))
	req.Inspect = true
	planned, err := r.target.Cluster.Diff(ctx, req)
	if err != nil {
		return nil, err
	}
	out := rollout.NewProposal(refOf(r.obj), len(req.Previous), r.state.build.digest, planned, nil)
	out.Change.Identify(r.pass.Seal, decision)
	return out, nil
}
