package resourceset

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/cluster/health"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/rollout"
)

// checkHealth returns nil if the applied objects are healthy or need not be, a progressing outcome while they become
// healthy, or the failure.
func (r *run) checkHealth(ctx context.Context) (*reconcile.Outcome, error) {
	var inventory apply.Inventory
	if r.obj.Spec.Wait {
		inventory = rollout.Inventory(r.obj.Status.Inventory)
	}
	return r.check(ctx, rollout.HealthRequest{Key: r.state.build.digest, Timeout: r.obj.Schedule().Timeout}, inventory)
}

// checkStep is [run.checkHealth] for a step and those before it.
func (r *run) checkStep(ctx context.Context, n int) (*reconcile.Outcome, error) {
	step := r.obj.Spec.Steps[n]
	timeout := r.obj.Schedule().Timeout
	if step.Timeout != nil && step.Timeout.Duration > 0 {
		timeout = step.Timeout.Duration
	}
	return r.check(ctx, rollout.HealthRequest{Key: r.state.build.digest + "/" + step.Name, Timeout: timeout,
		Progress: fmt.Sprintf("Applying step %d/%d %q", n+1, len(r.obj.Spec.Steps), step.Name)}, r.applied)
}

func (r *run) check(ctx context.Context, q rollout.HealthRequest, inventory apply.Inventory) (*reconcile.Outcome,
	error) {
	targets, err := rollout.HealthTargets(inventory)
	if err != nil {
		return nil, err
	}
	declared := r.state.build.declared
	q.Targets = slices.DeleteFunc(targets, func(t health.Target) bool {
		t.Version = ""
		return declared.IsExcluded[t]
	})
	q.Object, q.Target, q.HasTTL, q.Clock = r.obj, r.target, declared.HasTTL, r.Clock
	q.Revision, q.NoFailFast = r.state.build.digest, r.Options.NoFailFast
	q.WasApplied = r.obj.Status.LastAppliedRevision == r.state.build.digest && r.pass.MayCountAsHealthy()
	q.Key = fmt.Sprintf("%s/%d", q.Key, r.obj.Generation)
	return r.state.health.Check(ctx, q, &r.report)
}

// cancelHealth ends the wait for objects that are no longer the newest.
func (r *run) cancelHealth() {
	r.state.health.Cancel(r.obj, r.state.build.digest, cmp.Or(r.obj.Kind, GroupKind.Kind)+"/"+r.obj.Namespace+"/"+
		r.obj.Name, &r.report)
}
