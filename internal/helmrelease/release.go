package helmrelease

import (
	"context"
	"fmt"
	"slices"
	"time"

	"helm.sh/helm/v4/pkg/release/common"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/helm/action"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/fault"
	"github.com/sluice-gitops/sluice/internal/tracing"
)

// maxSteps bounds the steps of a pass. The longest sequence recovers, moves, installs and tests a release.
const maxSteps = 8

// release does one step after another until the release is as declared, or a step fails.
func (r *run) release(ctx context.Context) *reconcile.Outcome {
	return ptr.To(r.outcome(r.advance(ctx)))
}

func (r *run) advance(ctx context.Context) reconcile.Outcome {
	now := r.look() // before what is stored is read, so that a change in between is seen by the next pass
	if r.isUnchanged(now) {
		return r.atRest(ctx, &observed{})
	}
	for range maxSteps {
		o, err := r.observe(ctx)
		if err != nil {
			return reconcile.Failed(err)
		}
		if err := r.checkOwner(ctx, o.last); err != nil {
			return reconcile.Failed(err)
		}
		d := r.decide(o)
		switch d.step {
		case stepNone:
			r.state.settled = now
			return r.atRest(ctx, o)
		case stepExhausted:
			if !r.hasRecovered() {
				return r.judge(r.exhausted(r.policyOf(d.after)), o)
			}
			r.clearFailures() // what failed is healthy by now
			continue
		case stepWait:
			return r.judge(r.waiting(d), o)
		}
		if err := r.perform(ctx, d, o); err != nil {
			return r.failed(ctx, d, err)
		}
		if r.progress != nil {
			return *r.progress
		}
	}
	return reconcile.Failed(fault.New(meta.ReconciliationFailedReason,
		"release '%s' is not as declared after %d steps", r.name, maxSteps))
}

// perform does one step.
func (r *run) perform(ctx context.Context, d decision, o *observed) (err error) {
	done := tracing.Begin(ctx, stepNames[d.step])
	defer func() { done(err) }()
	if d.step != stepAdopt && d.step != stepFinish {
		r.worked = true
		r.pin(ctx, o)
		r.forgetReleased(ctx)
	}
	if d.step == stepInstall || d.step == stepUpgrade || d.step == stepRemediate {
		defer func() { r.state.shown = r.veil.Kept(r.state.shown, false) }()
	}
	switch d.step {
	case stepAdopt:
		return r.adopt(ctx, o)
	case stepRecover:
		return r.recover(ctx, o)
	case stepFinish:
		return r.finish(ctx, o)
	case stepCancel:
		return r.cancel(ctx, o)
	case stepMove:
		return r.move(ctx)
	case stepInstall:
		return r.install(ctx, o)
	case stepUpgrade:
		return r.upgrade(ctx, o)
	case stepTest:
		return r.test(ctx, o)
	case stepRemediate:
		return r.remediate(ctx, o)
	default:
		return nil
	}
}

// failed returns the outcome of a failed step. A release that failed is remediated at once; retries have a backoff, so
// that a release which fails again and again does not occupy a worker.
func (r *run) failed(ctx context.Context, d decision, err error) reconcile.Outcome {
	isAction := slices.Contains([]step{stepInstall, stepUpgrade, stepFinish, stepTest}, d.step)
	if !isAction || action.IsTransient(err) {
		return r.failedWith(err)
	}
	o, observeErr := r.observe(ctx)
	if observeErr != nil {
		return reconcile.Failed(err)
	}
	next := r.decide(o)
	if next.step == stepRemediate {
		if remediateErr := r.perform(ctx, next, o); remediateErr != nil {
			return r.failedWith(remediateErr)
		}
		if o, observeErr = r.observe(ctx); observeErr != nil {
			return reconcile.Failed(err)
		}
		next = r.decide(o)
	}
	switch next.step {
	case stepExhausted:
		return r.judge(r.exhausted(r.policyOf(next.after)), o)
	case stepWait:
		return r.judge(r.waiting(next), o)
	default:
		if r.policy().retries < 0 { // it is retried forever
			return r.judge(reconcile.Failed(err), o)
		}
		return reconcile.Failed(err)
	}
}

// failedWith returns the outcome of an error. If a rollback has no target, Ready keeps saying what failed.
func (r *run) failedWith(err error) reconcile.Outcome {
	if fault.Reason(err, "") != helmv2.MissingRollbackTargetReason {
		return reconcile.Failed(err)
	}
	reason, _ := r.lastFailure(r.policy())
	return reconcile.Failed(fault.New(reason, "%s", err).Final()).StalledBy(helmv2.MissingRollbackTargetReason)
}

// judge marks the outcome of a failed release as unhealthy, unless nothing was applied: if its chart could not be
// rendered, for example. A release with retries left is not unhealthy yet.
func (r *run) judge(outcome reconcile.Outcome, o *observed) reconcile.Outcome {
	failed := o.last != nil && o.last.Info.Status == common.StatusFailed && r.difference(o.last) == ""
	tested := o.last != nil && r.testsCount() && testsFailed(o.last, r.obj.Status.History)
	if failed || tested || apimeta.IsStatusConditionTrue(r.obj.Status.Conditions, helmv2.RemediatedCondition) {
		return outcome.Unhealthy()
	}
	return outcome
}

// exhausted returns the outcome of a release that has used up the retries of a policy. It ends when an input changes.
// Ready says what happened last, and Stalled that no retries are left.
func (r *run) exhausted(p policy) reconcile.Outcome {
	reason, last := r.lastFailure(p)
	f := fault.New(reason, "%s failed %s, and no retries are left: %s", p.action, times(p.failures), last).
		WithHint("It is retried when the chart, the values, the spec or the health of what failed changes, or after " +
			"`sluice reconcile helmrelease --reset`").Final()
	return reconcile.Failed(f).StalledBy(helmv2.RetriesExceededReason)
}

func times(n int64) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// waiting returns the outcome of a release that is retried later.
func (r *run) waiting(d decision) reconcile.Outcome {
	p := r.policy()
	at := r.retryAt(p)
	_, last := r.lastFailure(p)
	return reconcile.Failed(fault.New(failedReason(p.action), "%s; the next attempt is at %s: %s", d.why,
		at.UTC().Format(time.RFC3339), last).After(max(at.Sub(r.Clock.Now()), time.Second)))
}

// outcome adds the events of the pass to its outcome.
func (r *run) outcome(o reconcile.Outcome) reconcile.Outcome {
	if !r.worked {
		o = o.Unchanged()
	}
	o = o.WithMetadata(meta.EventRevisionKey, r.chart.version)
	if r.chart.ociDigest != "" {
		o = o.WithMetadata("oci-digest", r.chart.ociDigest)
	}
	return r.report.Outcome(o).WithArtifact(r.artifact)
}
