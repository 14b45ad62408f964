package helmrelease

import (
	"time"

	"helm.sh/helm/v4/pkg/release/common"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
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

func (r *run) installPolicy() policy {
	spec := r.obj.Spec.Install
	p := policy{action: helmv2.ActionInstall, uninstall: true, failures: r.obj.Status.InstallFailures,
		retryOnFailure: r.Options.RetryOnFailure, retryInterval: defaultRetryInterval,
		ignoreTests: r.obj.Spec.Test != nil && r.obj.Spec.Test.IgnoreFailures}
	if spec == nil {
		return p
	}
	if s := spec.Strategy; s != nil {
		p.retryOnFailure, p.retryInterval = s.Name == helmv2.StrategyRetryOnFailure, interval(s.RetryInterval)
	}
	if m := spec.Remediation; m != nil {
		p.retries = m.Retries
		p.remediateLast = m.RemediateLastFailure != nil && *m.RemediateLastFailure
		if m.IgnoreTestFailures != nil {
			p.ignoreTests = *m.IgnoreTestFailures
		}
		if spec.Strategy == nil {
			p.retryOnFailure = false
		}
	}
	return p
}

func (r *run) upgradePolicy() policy {
	spec := r.obj.Spec.Upgrade
	p := policy{action: helmv2.ActionUpgrade, failures: r.obj.Status.UpgradeFailures,
		retryOnFailure: r.Options.RetryOnFailure, retryInterval: defaultRetryInterval,
		ignoreTests: r.obj.Spec.Test != nil && r.obj.Spec.Test.IgnoreFailures}
	if spec == nil {
		return p
	}
	if s := spec.Strategy; s != nil {
		p.retryOnFailure, p.retryInterval = s.Name == helmv2.StrategyRetryOnFailure, interval(s.RetryInterval)
	}
	if m := spec.Remediation; m != nil {
		p.retries, p.uninstall = m.Retries, m.Strategy == helmv2.RemediationUninstall
		p.remediateLast = m.Retries != 0
		if m.RemediateLastFailure != nil {
			p.remediateLast = *m.RemediateLastFailure
		}
		if m.IgnoreTestFailures != nil {
			p.ignoreTests = *m.IgnoreTestFailures
		}
		if spec.Strategy == nil {
			p.retryOnFailure = false
		}
	}
	return p
}

func interval(d *meta.Duration) time.Duration {
	if d == nil {
		return defaultRetryInterval
	}
	return d.Duration
}

// isExhausted reports whether the failures have used up the retries.
func (p policy) isExhausted() bool { return p.retries >= 0 && p.failures > int64(p.retries) }

// canRemediate reports whether the last release has not been remediated yet, and can be.
func (p policy) canRemediate(o *observed) bool {
	return o.last != nil && o.last.Info.Status != common.StatusUninstalled
}

// retryWait returns how long to wait before the next attempt of the strategy RetryOnFailure.
func (r *run) retryWait(p policy) time.Duration {
	if r.state.failedAt.IsZero() || r.pass.Requested {
		return 0
	}
	return r.state.failedAt.Add(p.retryInterval).Sub(r.Clock.Now())
}
