package helmrelease

import (
	"context"

	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/rollout"
)

// checkSpec checks the parts of the spec that only later steps use, so that nothing is released by a spec with an
// error: health checks, the expressions of dependencies, and rules for ignored fields.
func (r *run) checkSpec(context.Context) *reconcile.Outcome {
	return rollout.Stop(r.state.spec.Of(r.obj, func() error {
		if _, err := r.state.health.Expressions(r.obj, r.obj.Spec.HealthCheckExprs); err != nil {
			return err
		}
		if err := r.dependencies().CheckSpec(r.obj); err != nil {
			return err
		}
		_, err := rollout.IgnoreRules(nil, r.obj.Spec.DriftDetection)
		return err
	}))
}
