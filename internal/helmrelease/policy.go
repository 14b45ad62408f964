package helmrelease

import (
	"time"

	"helm.sh/helm/v4/pkg/release/common"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// defaultRetryInterval of the strategy RetryOnFailure.
const defaultRetryInterval = 5 * time.Minute

// policy is what the spec says about the failures of the last action.
type policy struct {
	action         string
	retryOnFailure bool
	retryInterval  time.Duration
	retries        int // negative for any number
	remediateLast  bool
	uninstall      bool // remediate by uninstalling
	ignoreTests    bool
	failures       int64
}

// policy returns the policy for the last action; that of installs if there was none.
func (r *run) policy() policy {
	if r.obj.Status.LastAttemptedReleaseAction == helmv2.ActionUpgrade {
		return r.upgradePolicy()
	}
	return r.installPolicy()
}

// policyOf returns the policy for a step: that of installs or of upgrades, or else that for the last action.
func (r *run) policyOf(s step) policy {
	switch s {
	case stepInstall:
		return r.installPolicy()
	case stepUpgrade:
		return r.upgradePolicy()
	default:
		return r.policy()
	}
}

func (r *run) installPolicy() policy {
	p := r.newPolicy(helmv2.ActionInstall, r.obj.Status.InstallFailures)
	p.uninstall = true
	spec := r.obj.Spec.Install
	if spec == nil {
		return p
	}
	if m := spec.Remediation; m != nil {
		p.remediate(m.Retries, false, m.RemediateLastFailure, m.IgnoreTestFailures)
	}
	if s := spec.Strategy; s != nil {
		p.follow(s.Name, s.RetryInterval)
	}
	return p
}

func (r *run) upgradePolicy() policy {
	p := r.newPolicy(helmv2.ActionUpgrade, r.obj.Status.UpgradeFailures)
	spec := r.obj.Spec.Upgrade
	if spec == nil {
		return p
	}
	if m := spec.Remediation; m != nil {
		p.remediate(m.Retries, m.Retries != 0, m.RemediateLastFailure, m.IgnoreTestFailures)
		p.uninstall = m.Strategy == helmv2.RemediationUninstall
	}
	if s := spec.Strategy; s != nil {
		p.follow(s.Name, s.RetryInterval)
	}
	return p
}

// newPolicy returns the policy for an action without one in the spec.
func (r *run) newPolicy(action string, failures int64) policy {
	return policy{action: action, failures: failures, retryOnFailure: r.Options.RetryOnFailure,
		retryInterval: defaultRetryInterval, ignoreTests: r.obj.Spec.Test != nil && r.obj.Spec.Test.IgnoreFailures}
}

// remediate sets what the remediation in the spec says. It implies the strategy RemediateOnFailure.
func (p *policy) remediate(retries int, lastByDefault bool, last, ignoreTests *bool) {
	p.retryOnFailure, p.retries = false, retries
	p.remediateLast = ptr.Deref(last, lastByDefault)
	p.ignoreTests = ptr.Deref(ignoreTests, p.ignoreTests)
}

// follow sets what the strategy in the spec says.
func (p *policy) follow(strategy string, retryInterval *meta.Duration) {
	p.retryOnFailure = strategy == helmv2.StrategyRetryOnFailure
	if retryInterval != nil {
		p.retryInterval = retryInterval.Duration
	}
}

// isExhausted reports whether the failures have used up the retries.
func (p policy) isExhausted() bool { return p.retries >= 0 && p.failures > int64(p.retries) }

// canRemediate reports whether the last release has not been remediated yet, and can be.
func (p policy) canRemediate(o *observed) bool {
	return o.last != nil && o.last.Info.Status != common.StatusUninstalled
}

// retryAt returns when the next attempt of the strategy RetryOnFailure is due; zero if it is due now. Ready becomes
// False when an attempt fails, so its time outlives the process.
func (r *run) retryAt(p policy) time.Time {
	ready := apimeta.FindStatusCondition(r.obj.Status.Conditions, reconcile.TypeReady)
	if r.pass.Requested || ready == nil || ready.Status != metav1.ConditionFalse && r.state.failedAt.IsZero() {
		return time.Time{}
	}
	failedAt := r.state.failedAt
	if failedAt.IsZero() {
		failedAt = ready.LastTransitionTime.Time
	}
	at := failedAt.Add(p.retryInterval)
	if !at.After(r.Clock.Now()) {
		return time.Time{}
	}
	return at
}
