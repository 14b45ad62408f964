package helmrelease

import (
	"fmt"
	"strings"
	"time"

	helmrelease "helm.sh/helm/v4/pkg/release/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/helm/action"
	"github.com/sluice-gitops/sluice/internal/helm/kube"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/rollout"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// recordWork reports what an action changed in the cluster, and the warnings of the API server.
func (r *run) recordWork(client *kube.Client) {
	if client == nil {
		return
	}
	r.report.AddChanges(client.Changes())
	text := r.veil.Text(strings.Join(rollout.FirstLines(client.Warnings()), "\n"))
	if text != "" && text != r.state.warnings {
		r.state.warnings = text
		r.report.Warn(meta.AppliedWithWarningsReason, text)
	}
}

// recordSuccess records that an install or upgrade succeeded.
func (r *run) recordSuccess(name string) {
	s := &r.obj.Status
	s.Failures = 0
	s.ObservedPostRenderersDigest, s.ObservedCommonMetadataDigest = r.postRenderersDigest, r.commonMetadataDigest
	reason, text := helmv2.InstallSucceededReason, "install"
	if name == helmv2.ActionUpgrade {
		reason, text = helmv2.UpgradeSucceededReason, "upgrade"
	}
	reconcile.Unmark(r.obj, helmv2.RemediatedCondition)
	reconcile.Unmark(r.obj, helmv2.TestSuccessCondition)
	message := fmt.Sprintf("Helm %s succeeded for %s", text, r.describeLast())
	r.recordReleased(reason, message)
	if t := r.obj.Spec.Test; t != nil && t.Enable { // the tests decide about Ready and its event
		r.report.Note(reason, message)
	} else {
		r.clearFailures()
	}
	r.state.checked = r.comparison()
	r.state.lastResync = r.Clock.Now()
}

func (r *run) recordReleased(reason, message string) {
	reconcile.Mark(r.obj, helmv2.ReleasedCondition, metav1.ConditionTrue, reason, message)
}

// describeLast returns the name of the last release and of its chart.
func (r *run) describeLast() string {
	if len(r.obj.Status.History) == 0 {
		return fmt.Sprintf("release %s/%s with chart %s@%s", r.obj.GetReleaseNamespace(), r.name, r.chart.name,
			r.chart.version)
	}
	s := r.obj.Status.History[0]
	return fmt.Sprintf("release %s/%s.v%d with chart %s@%s", s.Namespace, s.Name, s.Version, s.ChartName,
		s.ChartVersion)
}

// recordFailure records that an install or upgrade failed, and returns the fault. Only failures of a stored release
// count against the retries: nothing else is left to remediate, and what was missing, such as a definition, may arrive
// later. Transient failures do not count either.
func (r *run) recordFailure(name string, isStored bool, err error) error {
	reason := failedReason(name)
	f := withAdvice(fault.New(reason, "Helm %s failed for release %s/%s with chart %s@%s", name,
		r.obj.GetReleaseNamespace(), r.name, r.chart.name, r.chart.version).Because(err), err)
	message := f.Error()
	s := &r.obj.Status
	s.Failures++
	r.state.failedAt = r.Clock.Now()
	if !action.IsTransient(err) && (isStored || r.policy().retryOnFailure) {
		if name == helmv2.ActionUpgrade {
			s.UpgradeFailures++
		} else {
			s.InstallFailures++
		}
	}
	r.state.checked = ""
	r.state.waitsForHealth = fault.Reason(err, "") == meta.HealthCheckFailedReason
	reconcile.Mark(r.obj, helmv2.ReleasedCondition, metav1.ConditionFalse, reason, message)
	reconcile.Unmark(r.obj, helmv2.RemediatedCondition)
	r.report.Warn(reason, message)
	return f
}

func failedReason(name string) string {
	if name == helmv2.ActionUpgrade {
		return helmv2.UpgradeFailedReason
	}
	return helmv2.InstallFailedReason
}

// lastFailure returns the reason of Ready and the message of the last failure. The reason is that of the remediation if
// there was one.
func (r *run) lastFailure(p policy) (reason, message string) {
	reason, message = failedReason(p.action), "see the events"
	conditions := r.obj.Status.Conditions
	for _, kind := range []string{helmv2.ReleasedCondition, helmv2.TestSuccessCondition} {
		c := apimeta.FindStatusCondition(conditions, kind)
		if c != nil && c.Status == metav1.ConditionFalse {
			reason, message = c.Reason, c.Message
			break
		}
	}
	if c := apimeta.FindStatusCondition(conditions, helmv2.RemediatedCondition); c != nil {
		reason = c.Reason
	}
	return reason, message
}

// hasRecovered reports whether the objects that made the last action fail are healthy by now.
func (r *run) hasRecovered() bool {
	return r.state.waitsForHealth && r.target.IsHealthy(refOf(r.obj))
}

// recordTests records the results of the tests in the snapshot of the release.
func (r *run) recordTests() {
	for _, rel := range r.storage.Stored() {
		if len(r.obj.Status.History) == 0 || !isSnapshotOf(r.obj.Status.History[0], rel) {
			continue
		}
		s := newSnapshot(rel, r.obj.Status.History[0].OCIDigest, r.obj.Status.History[0].Action)
		s.TestHooks = testResults(rel)
		r.obj.Status.History[0] = s
	}
}

func testResults(rel *helmrelease.Release) map[string]helmv2.TestHookStatus {
	results := map[string]helmv2.TestHookStatus{}
	for _, h := range rel.Hooks {
		if !isTest(h) {
			continue
		}
		status := helmv2.TestHookStatus{Phase: string(h.LastRun.Phase)}
		if !h.LastRun.StartedAt.IsZero() {
			started, completed := meta.TimeOf(h.LastRun.StartedAt), meta.TimeOf(h.LastRun.CompletedAt)
			status.LastStarted = &started
			if !h.LastRun.CompletedAt.IsZero() {
				status.LastCompleted = &completed
			}
		}
		results[h.Name] = status
	}
	return results
}

func isTest(h *helmrelease.Hook) bool {
	for _, e := range h.Events {
		if e == helmrelease.HookTest {
			return true
		}
	}
	return false
}

func (r *run) recordTestSuccess(rel *helmrelease.Release) {
	message := fmt.Sprintf("Helm test succeeded for %s: %s completed successfully", r.describeLast(),
		excerpt.Count(len(testResults(rel)), "test hook"))
	r.clearFailures()
	reconcile.Mark(r.obj, helmv2.TestSuccessCondition, metav1.ConditionTrue, helmv2.TestSucceededReason, message)
	r.report.Note(helmv2.TestSucceededReason, message)
}

// recordTestFailure records failed tests. It returns an error if they are a failure of the release.
func (r *run) recordTestFailure(rel *helmrelease.Release, err error) error {
	message := fmt.Sprintf("Helm test failed for %s: %v", r.describeLast(), err)
	reconcile.Mark(r.obj, helmv2.TestSuccessCondition, metav1.ConditionFalse, helmv2.TestFailedReason, message)
	r.report.Warn(helmv2.TestFailedReason, message)
	p := r.policy()
	if history := r.obj.Status.History; len(history) > 0 {
		if history[0].TestHooks == nil {
			history[0].TestHooks = testResults(rel)
		}
		if !p.ignoreTests && !testsFailed(rel, history) {
			history[0].TestHooks = nil // not all tests could run: they are pending
		}
	}
	if p.ignoreTests {
		r.clearFailures()
		return nil
	}
	s := &r.obj.Status
	s.Failures++
	r.state.failedAt = r.Clock.Now()
	if !action.IsTransient(err) && p.action == helmv2.ActionUpgrade {
		s.UpgradeFailures++
	} else if !action.IsTransient(err) {
		s.InstallFailures++
	}
	return fault.New(helmv2.TestFailedReason, "Helm test failed for %s", r.describeLast()).Because(err)
}

// recordRemediation records the result of a rollback or an uninstall, and returns the fault if it failed.
func (r *run) recordRemediation(reason, message string, err error) error {
	r.state.checked = ""
	if err != nil {
		f := fault.New(reason, "%s", message).Because(err)
		reconcile.Mark(r.obj, helmv2.RemediatedCondition, metav1.ConditionFalse, reason, f.Error())
		r.report.Warn(reason, f.Error())
		return f
	}
	reconcile.Mark(r.obj, helmv2.RemediatedCondition, metav1.ConditionTrue, reason, message)
	r.report.Warn(reason, message)
	return nil
}

// clearFailures forgets earlier failures.
func (r *run) clearFailures() {
	s := &r.obj.Status
	s.Failures, s.InstallFailures, s.UpgradeFailures = 0, 0, 0
	r.state.waitsForHealth, r.state.failedAt = false, time.Time{}
}
