package resourceset

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/rollout"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// applySucceededReason is the reason of the event that lists changed objects.
const applySucceededReason = "ApplySucceeded"

// waitRetry is the delay before a pass that continues a wait for the cluster.
const waitRetry = time.Second

// notDeployed reports an error of the deployment. An apply that waits for the cluster, such as for a definition to be
// established, ends after some seconds to free its worker. Later passes continue it until the timeout.
func (r *run) notDeployed(err error) reconcile.Outcome {
	left := r.state.started.Add(r.obj.Schedule().Timeout).Sub(r.Clock.Now())
	if apply.IsWaiting(err) && left > 0 {
		return r.outcome(reconcile.Progressing(min(left, waitRetry), "%v", err))
	}
	if fault.Reason(err, "") == meta.HealthCheckFailedReason {
		return r.unhealthy(err)
	}
	return r.failed(err)
}

// failed reports a failed pass.
func (r *run) failed(err error) reconcile.Outcome {
	if f := fault.As(err); f == nil || !f.Temporary {
		r.recordHistory(err)
	}
	if fault.Reason(err, "") == "" {
		err = fault.New(meta.ReconciliationFailedReason, "%s", err).Because(nil)
	}
	return r.outcome(reconcile.Failed(err))
}

// unhealthy reports a failed health check.
func (r *run) unhealthy(err error) reconcile.Outcome {
	if fault.Reason(err, "") != meta.HealthCheckFailedReason {
		return r.failed(err)
	}
	return r.failed(err).Unhealthy()
}

// succeeded reports that the objects are applied, and healthy if spec.wait is set.
func (r *run) succeeded() reconcile.Outcome {
	before := r.obj.Status.LastAppliedRevision
	r.obj.Status.LastAppliedRevision = r.state.build.digest
	r.obj.Status.ExternalChecksumRefs = r.state.build.external
	r.state.apply.recreations = 0
	message := fmt.Sprintf("Reconciliation finished in %s", r.Clock.Since(r.state.started).Round(time.Millisecond))
	if note := r.state.apply.unknown.String(); note != "" {
		message += "; " + note
	}
	isNews := r.worked && !r.confirmed() || before != r.state.build.digest
	if c := apimeta.FindStatusCondition(r.obj.Status.Conditions, reconcile.TypeReady); c != nil && !isNews &&
		reconcile.IsReady(r.obj) {
		message = c.Message // the time of a pass that did nothing is not news
	}
	r.recordHistory(nil)
	return r.outcome(reconcile.Ready(meta.ReconciliationSucceededReason, "%s", message))
}

// outcome adds the events of the pass to its outcome.
func (r *run) outcome(o reconcile.Outcome) reconcile.Outcome {
	if !r.worked {
		o = o.Unchanged()
	}
	if len(r.pruned) > 0 {
		o = o.Emitted(func() { r.reportDeleted(r.target, r.obj, r.pruned) })
	}
	if digest := r.state.build.digest; digest != "" {
		o = o.WithMetadata(meta.EventRevisionKey, digest)
	}
	return r.report.Outcome(o)
}

// confirmed reports whether the pass found that all objects are as they were applied last.
func (r *run) confirmed() bool {
	return r.isDrift && !r.report.HasChanges() && !r.pass.Requested && len(r.obj.Status.History) > 0 &&
		r.obj.Status.History[0].Digest == r.state.build.digest
}

// recordHistory records the result of a pass in status.history. A pass that did nothing, or that repeated the last
// failure, is not recorded, so that the status need not be written.
func (r *run) recordHistory(err error) {
	started := r.state.started
	r.state.started = time.Time{}
	digest, status := r.state.build.digest, meta.ReconciliationSucceededReason
	if err != nil {
		status = fault.Reason(err, meta.ReconciliationFailedReason)
	}
	if status == meta.BuildFailedReason {
		digest = specDigest(r.obj)
	}
	history := r.obj.Status.History
	if digest == "" || len(history) > 0 && history[0].Is(digest, status) && (!r.worked || r.confirmed()) {
		return
	}
	of := func(e *controlplanev1.HistoryEntry) *meta.Reconciliation { return &e.Reconciliation }
	history = reconcile.RecordHistory(history, of, digest, status, started, r.Clock.Now())
	if status != meta.BuildFailedReason {
		history[0].Metadata = r.state.build.counts
	}
	r.obj.Status.History = history
}

// specDigest identifies a spec that could not be rendered.
func specDigest(obj *controlplanev1.ResourceSet) string {
	text, err := json.Marshal(obj.Spec)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(text))
}

// reportDeleted emits an event for each object whose deletion was requested, and held by finalizers, once it is gone.
func (c *Controller) reportDeleted(target *rollout.Target, obj *controlplanev1.ResourceSet, pruned []apply.Change) {
	reported := obj.DeepCopy()
	c.deletions.Report(target, pruned, func(message string) {
		c.emit(reported, corev1.EventTypeNormal, meta.ProgressingReason, message)
	})
}

// emit emits an event about the deletion of a ResourceSet or of its objects.
func (c *Controller) emit(obj *controlplanev1.ResourceSet, eventType, reason, message string) {
	c.Events.Emit(GroupKind.Group, obj, reconcile.Event{Type: eventType, Reason: reason, Message: message,
		Metadata: map[string]string{meta.EventRevisionKey: obj.Status.LastAppliedRevision}})
}
