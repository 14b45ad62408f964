package helmrelease

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/utils/ptr"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/apply"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/rollout"
)

// admit asks the gates and checks the dependencies. It returns the outcome if the pass must not continue.
func (c *Controller) admit(ctx context.Context, pass *reconcile.Pass[*helmv2.HelmRelease],
	d *desired) *reconcile.Outcome {
	obj := pass.Object
	if pass.Admit(d.chart.version) != nil &&
		!(pass.InProgress && pass.WasAdmitted(d.chart.version) && d.isAttempted(obj)) {
		return ptr.To(c.hold(ctx, pass, d))
	}
	if waiting := c.checkDependencies(ctx, obj, d); waiting != nil {
		return ptr.To(waiting.WithArtifact(d.artifact))
	}
	return nil
}

func (c *Controller) checkDependencies(ctx context.Context, obj *helmv2.HelmRelease, d *desired) *reconcile.Outcome {
	return c.dependencies().Check(ctx, obj, d.chart.version, func(*helmv2.HelmRelease) bool { return true })
}

// isAttempted reports whether the last attempt was for the same chart, values and spec.
func (d *desired) isAttempted(obj *helmv2.HelmRelease) bool {
	s := obj.Status
	return s.LastAttemptedRevision == d.chart.version && s.LastAttemptedConfigDigest == d.configDigest &&
		s.LastAttemptedGeneration == obj.Generation && s.LastAttemptedRevisionDigest == d.chart.ociDigest
}

// hold corrects the drift of a HelmRelease that gates hold, and returns its outcome.
func (c *Controller) hold(ctx context.Context, pass *reconcile.Pass[*helmv2.HelmRelease],
	d *desired) reconcile.Outcome {
	report, retry := c.correctHeld(ctx, pass, d)
	outcome := report.Outcome(c.pending(ctx, pass, d))
	if retry {
		outcome = outcome.After(rollout.CorrectionRetry)
	}
	return outcome
}

// pending returns the outcome of a HelmRelease that gates hold, with a preview of the pending change.
func (c *Controller) pending(ctx context.Context, pass *reconcile.Pass[*helmv2.HelmRelease],
	d *desired) reconcile.Outcome {
	obj, s := pass.Object, c.stateOf(pass.Object)
	if d.isAttempted(obj) && obj.Status.Failures == 0 && obj.Status.ObservedGeneration == obj.Generation {
		return reconcile.Held(meta.Pending{}) // no change is pending
	}
	key := fmt.Sprintf("%s/%s/%s/%d", d.chart.version, d.chart.artifact, d.configDigest, obj.Generation)
	return reconcile.Held(s.preview.Get(key, d.chart.version, func() ([]apply.Change, error) {
		if waiting := c.checkDependencies(ctx, obj, d); waiting != nil {
			return nil, errors.New(waiting.String()) // the change depends on what the dependencies will apply
		}
		r, err := c.newRun(ctx, pass, d)
		if err != nil {
			return nil, err
		}
		return r.preview(ctx)
	}))
}
