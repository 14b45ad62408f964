package kustomization

import (
	"context"
	"time"

	"k8s.io/utils/ptr"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/rollout"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// waitRetry is the delay before a pass that continues a wait for the cluster.
const waitRetry = time.Second

// notDeployed reports an error of the deployment; nil if there is none. An apply that waits for the cluster, such as
// for a definition to be established, ends after some seconds to free its worker. Later passes continue it until the
// timeout.
func (r *run) notDeployed(err error) *reconcile.Outcome {
	if err == nil {
		return nil
	}
	left := r.state.started.Add(r.obj.Schedule().Timeout).Sub(r.Clock.Now())
	if apply.IsWaiting(err) && left > 0 {
		return r.outcome(reconcile.Progressing(min(left, waitRetry), "%v", err))
	}
	return r.failed(err)
}

// failed reports a failed pass.
func (r *run) failed(err error) *reconcile.Outcome {
	if f := fault.As(err); f == nil || !f.Temporary {
		r.recordHistory(err)
	}
	return r.outcome(reconcile.Failed(err))
}

// unhealthy reports a failed health check.
func (r *run) unhealthy(err error) *reconcile.Outcome {
	if fault.Reason(err, "") != meta.HealthCheckFailedReason {
		return r.failed(err)
	}
	return ptr.To(r.failed(r.explainUnhealthy(err)).Unhealthy())
}

// succeed reports that the revision is applied and healthy.
func (r *run) succeed(context.Context) *reconcile.Outcome {
	before := r.obj.Status.LastAppliedRevision
	r.obj.Status.LastAppliedRevision = r.source.Revision
	r.obj.Status.LastAppliedOriginRevision = r.source.OriginRevision()
	started := r.state.started
	r.live = r.target.Cluster.Record(rollout.OwnerOf(refOf(r.obj)))
	r.recordHistory(nil)
	message := "Applied revision: " + r.source.Revision
	if reverted := r.pass.Reverted(); reverted != nil {
		message += "; " + describeReverted(reverted)
	}
	if note := r.state.apply.unknown.String(); note != "" {
		message += "; " + note
	}
	isFinished := r.worked && !r.confirmed() || before != r.source.Revision || !reconcile.IsReady(r.obj)
	ready := r.outcome(reconcile.Ready(meta.ReconciliationSucceededReason, "%s", message))
	if isFinished { // its event comes after those of what the pass did
		*ready = ready.Finished(r.Clock.Since(started), r.obj.Spec.Interval.Duration)
	}
	return ready
}

// outcome adds the events of the pass to its outcome.
func (r *run) outcome(o reconcile.Outcome) *reconcile.Outcome {
	if !r.worked {
		o = o.Unchanged() // many Kustomizations may follow a commit that changes only one of them
	}
	if len(r.pruned) > 0 {
		o = o.Emitted(func() { r.reportDeleted(r.target, r.obj, r.pruned) })
	}
	o = r.report.Outcome(o).WithArtifact(r.source)
	if r.pending != nil {
		o = o.Watched(*r.pending)
	}
	return &o
}

// confirmed reports whether the pass found that all objects are as they were applied last. The first pass of a
// Kustomization after a start does that.
func (r *run) confirmed() bool {
	return r.isDrift && !r.report.HasChanges() && !r.pass.Requested
}

// maxHistoryText is the bytes of the subject or author of a commit in the history.
const maxHistoryText = 253

// recordHistory records the result of a pass in status.history. A pass that did nothing, or that repeated the last
// failure, is not recorded, so that the status need not be written.
func (r *run) recordHistory(err error) {
	started := r.state.started
	times := r.state.times
	r.state.started, r.state.times = time.Time{}, nil
	digest, status := r.state.build.digest, meta.ReconciliationSucceededReason
	if err != nil {
		status = fault.Reason(err, meta.ReconciliationFailedReason)
	}
	if digest == "" {
		return
	}
	history := r.obj.Status.History
	if len(history) > 0 && history[0].Is(digest, status) && (!r.worked || r.confirmed()) {
		return
	}
	of := func(s *kustomizev1.Snapshot) *meta.Reconciliation { return &s.Reconciliation }
	history = reconcile.RecordHistory(history, of, digest, status, started, r.Clock.Now())
	snapshot := &history[0]
	if times != nil {
		snapshot.Times = times
	}
	snapshot.Live = r.live
	snapshot.Metadata = map[string]string{"revision": r.source.Revision}
	if origin := r.source.OriginRevision(); origin != "" {
		snapshot.Metadata["originRevision"] = origin
	}
	for _, key := range []string{meta.CommitSubjectKey, meta.CommitAuthorKey} {
		if text := r.source.Metadata[key]; text != "" {
			snapshot.Metadata[key] = excerpt.Bytes(text, maxHistoryText)
		}
	}
	r.obj.Status.History = history
}
