package kustomization

import (
	"context"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/rollout"
)

// checkSpec checks the parts of the spec that only later steps use, so that nothing is applied by a spec with an error:
// health checks, the expressions of dependencies, and rules for ignored fields. Patches and variables are part of the
// build, which comes before the apply.
func (r *run) checkSpec(context.Context) *reconcile.Outcome {
	return rollout.Stop(r.state.spec.Of(r.obj, func() error { return r.validateSpec(r.obj, r.state) }))
}

func (c *Controller) validateSpec(obj *kustomizev1.Kustomization, s *state) error {
	if _, err := s.health.Expressions(obj, obj.Spec.HealthCheckExprs); err != nil {
		return err
	}
	if err := c.dependencies().CheckSpec(obj); err != nil {
		return err
	}
	if _, err := declaredHealthChecks(obj); err != nil {
		return err
	}
	_, err := rollout.IgnoreRules(obj.Spec.Ignore, obj.Spec.DriftDetection)
	return err
}
