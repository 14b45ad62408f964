package helmrelease

import (
	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/internal/rollout"
)

// checkSpec checks the parts of the spec that only later steps use, so that nothing is released by a spec with an
// error: health checks, the expressions of dependencies, and rules for ignored fields.
func (c *Controller) checkSpec(obj *helmv2.HelmRelease) error {
	s := c.stateOf(obj)
	return s.spec.Of(obj, func() error {
		if _, err := s.health.Expressions(obj, obj.Spec.HealthCheckExprs); err != nil {
			return err
		}
		if err := c.dependencies().CheckSpec(obj); err != nil {
			return err
		}
		_, err := rollout.IgnoreRules(nil, obj.Spec.DriftDetection)
		return err
	})
}
