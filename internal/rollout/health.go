package rollout

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/cluster/health"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Health checks the health of an owner's objects, and reports it by the condition Healthy. It is kept between passes.
type Health struct {
	key         string    // HealthRequest.Key that the timeout runs for
	since       time.Time // when the wait began
	wasHealthy  bool      // all objects were healthy once since then
	waitingFor  string    // the revision whose objects are waited for; empty when none are
	expressions expressions
}

// HealthRequest is what to check in a pass.
type HealthRequest struct {
	Object  reconcile.Object // on which the condition is set
	Target  *Target
	Targets []health.Target
	Checks  []*health.Check
	// Key identifies what was applied. The timeout starts again when it changes.
	Key string
	// Revision is the name of what was applied, for messages.
	Revision string
	// Progress is what the message says while objects become healthy; that health checks run if it is empty.
	Progress string
	// WasApplied reports whether the revision was already applied when the process started.
	WasApplied bool
	// HasTTL holds the objects that are deleted automatically when they are done, such as Jobs.
	HasTTL map[health.Target]bool
	// NoFailFast waits for the timeout even if an object has failed.
	NoFailFast bool
	Timeout    time.Duration
	Clock      clock.PassiveClock
}

// Check returns nil if all objects are healthy, a progressing outcome while they become healthy, or a failure. It does
// not block: the owner is enqueued when the health of an object changes.
func (h *Health) Check(ctx context.Context, req HealthRequest, r *Report) (*reconcile.Outcome, error) {
	key := healthKey(r.Owner)
	req.Target.Health.SetTargets(key, req.Targets, req.Checks...)
	expectVersions(req, r, key)
	if len(req.Targets) == 0 {
		reconcile.Unmark(req.Object, meta.HealthyCondition)
		return nil, nil
	}
	results, synced := req.Target.Health.Results(key)
	pending, failed := classify(results, req.HasTTL)
	h.restart(req, r)
	h.waitingFor = ""
	left := h.since.Add(req.Timeout).Sub(req.Clock.Now())
	defer func() {
		if h.waitingFor == "" {
			req.Target.Health.ForgetCause(key)
		}
	}()
	switch {
	case synced && len(pending)+len(failed) == 0:
		h.passed(req, r)
		return nil, nil
	case left <= 0, len(failed) > 0 && (h.wasHealthy || !req.NoFailFast):
		return nil, h.failure(ctx, req, append(failed, pending...))
	case h.wasHealthy:
		// Healthy objects that roll out again are not reported before the timeout.
		return nil, nil
	default:
		message := cmp.Or(req.Progress,
			fmt.Sprintf("Running health checks for revision %s with a timeout of %s", req.Revision, req.Timeout))
		h.waitingFor = req.Revision
		reconcile.Mark(req.Object, meta.HealthyCondition, metav1.ConditionUnknown, meta.ProgressingReason, message)
		if cause := req.Target.Health.Cause(key); cause != "" {
			message += ": " + cause
		}
		o := reconcile.Progressing(left, "%s", message)
		return &o, nil
	}
}

// passed notes that all objects are healthy. An event says so unless they were healthy before and did not change.
func (h *Health) passed(req HealthRequest, r *Report) {
	message := fmt.Sprintf("Health check passed in %s", req.Clock.Since(h.since).Round(time.Millisecond))
	isNews := !apimeta.IsStatusConditionTrue(req.Object.CommonStatus().Conditions, meta.HealthyCondition) ||
		!h.wasHealthy && r.HasChanges()
	h.wasHealthy, h.since = true, req.Clock.Now()
	if isNews {
		r.Note(reconcile.ReasonProgressing, message)
		reconcile.Mark(req.Object, meta.HealthyCondition, metav1.ConditionTrue, meta.SucceededReason, message)
	}
}

// expectVersions makes the watches ignore the health of versions before those that were just written.
func expectVersions(req HealthRequest, r *Report, key string) {
	if len(r.written) == 0 {
		return
	}
	for _, t := range req.Targets {
		ref := apply.Ref{Group: t.Group, Kind: t.Kind, Namespace: t.Namespace, Name: t.Name}
		if version := r.written[ref]; version != "" {
			req.Target.Health.ExpectVersion(key, t, version)
		}
	}
}

// restart starts the timeout again if something else was applied, or if the pass changed objects. An object that was
// Ready when the process started counts as healthy until its watches report otherwise.
func (h *Health) restart(req HealthRequest, r *Report) {
	if h.key == req.Key && !r.HasChanges() {
		return
	}
	wasHealthy := h.key == "" && !r.HasChanges() && reconcile.IsReady(req.Object) && req.WasApplied
	h.key, h.since, h.wasHealthy = req.Key, req.Clock.Now(), wasHealthy
	req.Target.Health.ForgetCause(healthKey(r.Owner))
}

// Reset forgets how long objects have been waited for.
func (h *Health) Reset() { *h = Health{expressions: h.expressions} }

// Cancel ends the wait for the objects of a revision other than the given one, with an event. trigger is the object
// that has the other revision.
func (h *Health) Cancel(obj reconcile.Object, revision, trigger string, r *Report) {
	if h.waitingFor == "" || h.waitingFor == revision {
		return
	}
	message := fmt.Sprintf("Health checks canceled due to new reconciliation triggered by %s: revision %s instead "+
		"of %s", trigger, revision, h.waitingFor)
	h.waitingFor = ""
	r.Note(meta.HealthCheckCanceledReason, message)
	reconcile.Mark(obj, meta.HealthyCondition, metav1.ConditionUnknown, meta.HealthCheckCanceledReason, message)
}

// classify returns the unhealthy results: those that may still become healthy, and those that failed. An object with a
// TTL that was deleted counts by its last status.
func classify(results []health.Result, hasTTL map[health.Target]bool) (pending, failed []health.Result) {
	for _, res := range results {
		t := res.Target
		t.Version = ""
		expired := res.Status == health.NotFound && hasTTL[t]
		switch {
		case res.Status == health.Current, expired && !res.HadFailed:
		case res.Status == health.Failed, expired:
			failed = append(failed, res)
		default:
			pending = append(pending, res)
		}
	}
	return pending, failed
}

// failure returns the fault for unhealthy objects, with the reason of each.
func (h *Health) failure(ctx context.Context, req HealthRequest, results []health.Result) error {
	waited := min(req.Clock.Since(h.since), req.Timeout).Round(time.Second)
	f := fault.New(meta.HealthCheckFailedReason, "health check failed after %s: %s", waited,
		explainUnhealthy(ctx, req.Target.Health, results))
	reconcile.Mark(req.Object, meta.HealthyCondition, metav1.ConditionFalse, meta.HealthCheckFailedReason, f.Error())
	return f
}

// explainUnhealthy names the first unhealthy objects, with the reason of each.
func explainUnhealthy(ctx context.Context, w *health.Watcher, results []health.Result) string {
	var parts []string
	for i, res := range results {
		if i == maxNamed {
			parts = append(parts, fmt.Sprintf("and %d more", len(results)-maxNamed))
			break
		}
		parts = append(parts, fmt.Sprintf("%s %s: %s", res.Target, res.Status, w.Explain(ctx, res)))
	}
	return strings.Join(parts, "; ")
}

// expressions caches the compiled spec.healthCheckExprs of a generation.
type expressions struct {
	generation int64
	checks     []*health.Check
}

// Expressions returns the compiled spec.healthCheckExprs of the object.
func (h *Health) Expressions(obj reconcile.Object, exprs []meta.HealthCheckExpr) ([]*health.Check, error) {
	if h.expressions.generation == obj.GetGeneration() {
		return h.expressions.checks, nil
	}
	var checks []*health.Check
	for _, x := range exprs {
		c, err := health.NewCheck(x.APIVersion, x.Kind, x.Current, x.InProgress, x.Failed)
		if err != nil {
			return nil, fault.New(meta.InvalidCELExpressionReason, "spec.healthCheckExprs for %s of %s is invalid",
				x.Kind, x.APIVersion).Because(err).
				WithHint("Correct the expression. It can use the fields of the object by name, such as status").Final()
		}
		checks = append(checks, c)
	}
	h.expressions = expressions{obj.GetGeneration(), checks}
	return checks, nil
}

// HealthTargets returns the objects of an inventory as health targets.
func HealthTargets(inventory apply.Inventory) ([]health.Target, error) {
	var targets []health.Target
	for _, e := range inventory {
		ref, err := e.Ref()
		if err != nil {
			return nil, err
		}
		targets = append(targets, health.Target(ref))
	}
	return targets, nil
}
