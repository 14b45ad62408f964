package kustomization

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/cluster/health"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/rollout"
	"github.com/sluice-gitops/sluice/internal/tracing"
)

// checkHealth continues if the applied objects are healthy. Else it returns an outcome that says that they become so,
// or have failed.
func (r *run) checkHealth(ctx context.Context) *reconcile.Outcome {
	done := tracing.Begin(ctx, "health")
	progressing, err := r.health(ctx)
	done(err)
	switch {
	case err != nil:
		return r.unhealthy(err)
	case progressing != nil:
		return r.outcome(*progressing)
	}
	return nil
}

// health returns nil if the applied objects are healthy, a progressing outcome while they become healthy, or the
// failure.
func (r *run) health(ctx context.Context) (*reconcile.Outcome, error) {
	targets, err := r.healthTargets()
	if err != nil {
		return nil, err
	}
	checks, err := r.state.health.Expressions(r.obj, r.obj.Spec.HealthCheckExprs)
	if err != nil {
		return nil, err
	}
	return r.state.health.Check(ctx, rollout.HealthRequest{
		Object:     r.obj,
		Target:     r.target,
		Targets:    targets,
		Checks:     checks,
		Key:        fmt.Sprintf("%s/%d", r.state.build.digest, r.obj.Generation),
		Revision:   r.source.Revision,
		WasApplied: r.obj.Status.LastAppliedRevision == r.source.Revision && r.pass.MayCountAsHealthy(),
		HasTTL:     r.state.build.declared.HasTTL,
		NoFailFast: r.Options.NoFailFast,
		Timeout:    r.obj.Schedule().Timeout,
		Clock:      r.Clock,
	}, &r.report)
}

// healthTargets returns the objects to check: all applied objects if spec.wait is set, else those of
// spec.healthChecks. An object whose annotation excludes it is not applied, so it is not waited for.
func (r *run) healthTargets() ([]health.Target, error) {
	if r.obj.Spec.Wait {
		targets, err := rollout.HealthTargets(rollout.Inventory(r.obj.Status.Inventory))
		return slices.DeleteFunc(targets, func(t health.Target) bool {
			t.Version = ""
			return r.state.build.declared.IsExcluded[t]
		}), err
	}
	return declaredHealthChecks(r.obj)
}

// declaredHealthChecks returns the objects of spec.healthChecks.
func declaredHealthChecks(obj *kustomizev1.Kustomization) ([]health.Target, error) {
	var targets []health.Target
	for _, c := range obj.Spec.HealthChecks {
		t, err := health.Resolve(c.APIVersion, c.Kind, cmp.Or(c.Namespace, obj.Namespace), c.Name)
		if err != nil {
			return nil, err
		}
		targets = append(targets, t)
	}
	return targets, nil
}
