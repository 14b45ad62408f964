package helmrelease

import (
	"fmt"
	"slices"

	"helm.sh/helm/v4/pkg/release/common"
	helmrelease "helm.sh/helm/v4/pkg/release/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/internal/helm/action"
	"github.com/sluice-gitops/sluice/internal/helm/digest"
)

// step is what to do next.
type step int

const (
	stepNone      step = iota // the release is as declared
	stepAdopt                 // record the stored release, which is as declared
	stepRecover               // an action was interrupted
	stepFinish                // wait for the health of the objects, all of which are applied
	stepCancel                // end such a wait, because something else is declared by now
	stepMove                  // uninstall the release under its earlier name or storage
	stepInstall               //
	stepUpgrade               //
	stepTest                  //
	stepRemediate             // roll back or uninstall a failed release
	stepExhausted             // no retries are left
	stepWait                  // retry later
)

// stepNames are the names of the steps of a release in traces.
var stepNames = map[step]string{stepAdopt: "adopt", stepRecover: "recover", stepFinish: "health", stepCancel: "cancel",
	stepMove: "move", stepInstall: "install", stepUpgrade: "upgrade", stepTest: "test", stepRemediate: "remediate"}

// decision is a step and why it is next.
type decision struct {
	step
	why string
	// after is the step that has no retries left.
	after step
}

// decide returns what to do next, from what is stored and what the status says about earlier attempts.
func (r *run) decide(o *observed) decision {
	if r.isMoved() {
		return decision{step: stepMove, why: "the release name, its namespace or its storage namespace changed"}
	}
	if o.last == nil || o.last.Info.Status == common.StatusUninstalled {
		return r.unlessExhausted(decision{step: stepInstall, why: "no release in storage"})
	}
	switch status := o.last.Info.Status; {
	case action.IsWaiting(o.last) && r.isAttempted(r.obj) && !r.forced:
		return decision{step: stepFinish, why: "its objects are not healthy yet"}
	case action.IsWaiting(o.last):
		return decision{step: stepCancel, why: "something else is declared by now"}
	case status.IsPending(), status == common.StatusUninstalling:
		return decision{step: stepRecover, why: fmt.Sprintf("release %d is %s", o.last.Version, status)}
	case r.forced:
		return decision{step: stepUpgrade, why: "requested by annotation"}
	}
	why := r.difference(o.last)
	switch {
	case o.last.Info.Status == common.StatusFailed:
		return r.decideFailed(o, why)
	case why == "" && !isRecorded(r.obj, o.last) && o.last.Info.Status == common.StatusDeployed:
		return decision{step: stepAdopt, why: "the release was stored by another client, as declared"}
	case o.last.Info.Status != common.StatusDeployed:
		return r.unlessExhausted(decision{step: stepUpgrade, why: fmt.Sprintf("release %d is %s", o.last.Version,
			o.last.Info.Status)})
	case why != "":
		return r.unlessExhausted(decision{step: stepUpgrade, why: why})
	case r.testsPending(o.last) && apimeta.IsStatusConditionFalse(r.obj.Status.Conditions, helmv2.TestSuccessCondition):
		return r.unlessExhausted(decision{step: stepTest, why: "the tests of the release could not run"})
	case r.testsPending(o.last):
		return decision{step: stepTest, why: "the tests of the release have not run"}
	case r.testsCount() && testsFailed(o.last, r.obj.Status.History):
		return r.decideFailed(o, "")
	}
	return decision{}
}

// isRolledBack reports whether the last release is a rollback.
func (r *run) isRolledBack(o *observed) bool { return o.last.Info.RollbackRevision > 0 }

// difference returns how a stored release differs from the declared one; empty if it does not.
func (r *run) difference(rel *helmrelease.Release) string {
	s := r.obj.Status
	known := isRecorded(r.obj, rel)
	switch {
	case rel.Chart == nil || rel.Chart.Metadata == nil:
		return "its chart is not stored"
	case rel.Chart.Metadata.Name != r.chart.name || rel.Chart.Metadata.Version != r.chart.version:
		return fmt.Sprintf("chart %s %s instead of %s %s", rel.Chart.Metadata.Name, rel.Chart.Metadata.Version,
			r.chart.name, r.chart.version)
	case digest.Config(rel.Config) != r.configDigest && !r.preservesValues():
		return "other values"
	case r.preservesValues() && known && s.LastAttemptedConfigDigest != r.configDigest:
		return "other values"
	case known && s.ObservedPostRenderersDigest != r.postRenderersDigest,
		!known && r.postRenderersDigest != "" && s.ObservedPostRenderersDigest != r.postRenderersDigest:
		return "other post-renderers"
	case known && s.ObservedCommonMetadataDigest != r.commonMetadataDigest,
		!known && r.commonMetadataDigest != "" && s.ObservedCommonMetadataDigest != r.commonMetadataDigest:
		return "other common metadata"
	}
	return ""
}

func (r *run) preservesValues() bool { u := r.obj.Spec.Upgrade; return u != nil && u.PreserveValues }

// isMoved reports whether the release that the status records has another name or namespace, or is stored elsewhere.
func (r *run) isMoved() bool {
	s := r.obj.Status
	if len(s.History) == 0 || s.History[0].Deleted != nil {
		return false
	}
	last := s.History[0]
	return last.Name != r.name || last.Namespace != r.obj.GetReleaseNamespace() ||
		s.StorageNamespace != "" && s.StorageNamespace != r.obj.GetStorageNamespace()
}

// decideFailed returns what to do about a failed release. Why is how the release differs from the declared one.
func (r *run) decideFailed(o *observed, why string) decision {
	p := r.policy()
	failed := fmt.Sprintf("release %d failed", o.last.Version)
	switch {
	case !r.isAttempted(r.obj): // other inputs: the failure says nothing about them
		return decision{step: stepUpgrade, why: why}
	case p.retryOnFailure:
		if !r.retryAt(p).IsZero() {
			return decision{step: stepWait, why: failed}
		}
		return decision{step: stepUpgrade, why: failed}
	case p.failures == 0: // a transient failure, or one of another client
		return decision{step: stepUpgrade, why: failed}
	case p.isExhausted() && (!p.remediateLast || !p.canRemediate(o)):
		return decision{step: stepExhausted, why: failed}
	case p.canRemediate(o) && (p.retries != 0 || p.remediateLast):
		return decision{step: stepRemediate, why: failed}
	default:
		return r.unlessExhausted(decision{step: stepUpgrade, why: failed})
	}
}

// unlessExhausted returns a decision for a release, unless the retries of that step are used up. After an upgrade whose
// remediation uninstalled the release, the retries of an install count.
func (r *run) unlessExhausted(d decision) decision {
	p := r.policyOf(d.step)
	switch {
	case r.forced || !r.isAttempted(r.obj):
		return d
	case p.retryOnFailure:
		if p.failures > 0 && !r.retryAt(p).IsZero() {
			return decision{step: stepWait, why: d.why}
		}
	case p.isExhausted():
		return decision{step: stepExhausted, why: d.why, after: d.step}
	}
	return d
}

// testsPending reports whether the tests of the last release must run.
func (r *run) testsPending(rel *helmrelease.Release) bool {
	t := r.obj.Spec.Test
	if t == nil || !t.Enable || len(r.obj.Status.History) == 0 {
		return false
	}
	s := r.obj.Status.History[0]
	return isSnapshotOf(s, rel) && s.TestHooks == nil && slices.ContainsFunc(rel.Hooks, isTest)
}

// testsCount reports whether failed tests are a failure of the release.
func (r *run) testsCount() bool {
	t := r.obj.Spec.Test
	return t != nil && t.Enable && !r.policy().ignoreTests
}
