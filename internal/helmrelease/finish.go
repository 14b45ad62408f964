package helmrelease

import (
	"context"
	"fmt"
	"time"

	helmrelease "helm.sh/helm/v4/pkg/release/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/helm/action"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/rollout"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// finish completes a release whose objects are all applied: it is deployed when they are healthy, and has failed when
// one of them failed or the timeout has passed. Until then the pass ends with r.progress, and their health enqueues the
// HelmRelease. No worker waits, and a restart continues.
func (r *run) finish(ctx context.Context, o *observed) error {
	name := action.ActionOf(o.last)
	a, err := r.newAction()
	if err != nil {
		return err
	}
	wait, err := a.Wait(ctx, o.last)
	if err != nil {
		return err
	}
	progress, failure := r.state.health.Check(ctx, rollout.HealthRequest{
		Object: r.obj, Target: r.target, Targets: wait.Targets, Checks: wait.Checks, HasTTL: wait.HasTTL,
		Key: describe(o.last), Revision: r.chart.version, NoFailFast: wait.NoFailFast,
		Timeout: r.timeLeft(o.last, wait.Timeout), Clock: r.Clock,
	}, &r.report)
	reconcile.Unmark(r.obj, meta.HealthyCondition) // Released says it
	if progress != nil {
		r.progress = progress
		return nil
	}
	r.obj.Status.LastAttemptedReleaseActionDuration = &meta.Elapsed{
		Duration: r.Clock.Since(o.last.Info.LastDeployed).Round(time.Millisecond)}
	r.state.health.Reset()
	if failure != nil {
		failure = r.redact(failure)
		err = a.Fail(o.last, failure.Error())
	} else {
		r.target.ForgetHealth(refOf(r.obj))
		err = a.Complete(o.last, o.history)
	}
	if err != nil {
		return fault.New(meta.ReconciliationFailedReason, "cannot store the result of release %s", describe(o.last)).
			Because(err)
	}
	r.recordStored(ctx, name)
	if failure != nil {
		return r.recordFailure(name, true, failure)
	}
	r.recordSuccess(name)
	return nil
}

// timeLeft returns the timeout of a wait. A process that continues the wait of an earlier one waits for the rest only.
func (r *run) timeLeft(rel *helmrelease.Release, timeout time.Duration) time.Duration {
	if r.state.waits != describe(rel) {
		r.state.waits, r.state.waitTimeout = describe(rel), timeout
		if !r.worked {
			r.state.waitTimeout = max(rel.Info.LastDeployed.Add(timeout).Sub(r.Clock.Now()), time.Second)
		}
	}
	return r.state.waitTimeout
}

// cancel ends the wait of a release for something else that is declared by now. It does not count as a failure.
func (r *run) cancel(ctx context.Context, o *observed) error {
	own := types.NamespacedName{Namespace: r.obj.Namespace, Name: r.obj.Name}
	if owner := ownerOf(o.last); owner != own && owner != (types.NamespacedName{}) {
		return r.recover(ctx, o)
	}
	a := &action.Run{Object: r.obj, Name: r.name, Storage: r.storage.Driver}
	message := fmt.Sprintf("Wait for the health of release %s canceled: something else is declared", describe(o.last))
	if err := a.Fail(o.last, message); err != nil {
		return fault.New(meta.ReconciliationFailedReason, "cannot end the wait for release %s", describe(o.last)).
			Because(err)
	}
	r.recordStored(ctx, "")
	r.state.health.Reset()
	r.report.Note(meta.HealthCheckCanceledReason, message)
	return nil
}
