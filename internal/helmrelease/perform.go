package helmrelease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/release/common"
	helmrelease "helm.sh/helm/v4/pkg/release/v1"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/helm/action"
	"github.com/sluice-gitops/sluice/internal/helm/kube"
	"github.com/sluice-gitops/sluice/internal/helm/render"
	"github.com/sluice-gitops/sluice/internal/rollout"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// install installs the release.
func (r *run) install(ctx context.Context, o *observed) error {
	request := render.Release{Name: r.name, Namespace: r.obj.GetReleaseNamespace(), Revision: 1, IsInstall: true}
	do := func(c action.Chart, a *action.Run) (*kube.Client, error) { return a.Install(ctx, c, o.last != nil) }
	return r.attempt(ctx, helmv2.ActionInstall, request, r.values, do)
}

// upgrade upgrades the release, or uninstalls it to install it again if the chart's name changes, unless the spec
// asks for an update in place.
func (r *run) upgrade(ctx context.Context, o *observed) error {
	u := r.obj.Spec.Upgrade
	staysInPlace := u != nil && u.ChartNameChangeStrategy == helmv2.ChartNameChangeInPlaceUpdate
	if o.last.Chart != nil && o.last.Chart.Name() != r.chart.name && !staysInPlace {
		return r.uninstall(ctx, false)
	}
	if err := r.takeReleases(ctx, o.compared()...); err != nil {
		return err
	}
	all := r.values
	if r.preservesValues() {
		all = util.CoalesceTables(copyValues(r.values), o.last.Config)
	}
	request := render.Release{Name: r.name, Namespace: o.last.Namespace, Revision: o.last.Version + 1, IsUpgrade: true}
	do := func(c action.Chart, a *action.Run) (*kube.Client, error) { return a.Upgrade(ctx, c, o.history) }
	return r.attempt(ctx, helmv2.ActionUpgrade, request, all, do)
}

// attempt renders the chart and does an install or upgrade. What is attempted is saved to the status before.
func (r *run) attempt(ctx context.Context, name string, release render.Release, values map[string]any,
	do func(action.Chart, *action.Run) (*kube.Client, error)) error {
	if err := r.begin(ctx, name); err != nil {
		return err
	}
	start := r.Clock.Now()
	var client *kube.Client
	a, err := r.newAction()
	if err == nil {
		var c action.Chart
		if c, err = r.render(ctx, release, values); err == nil {
			client, err = do(c, a)
		}
	}
	r.obj.Status.LastAttemptedReleaseActionDuration = &meta.Elapsed{Duration: r.Clock.Since(start).
		Round(time.Millisecond)}
	r.recordWork(client)
	stored := r.recordAttempt(ctx, name)
	if errors.Is(err, rollout.ErrUnhealthyYet) {
		return r.renewStorage() // the next step waits
	}
	if err != nil {
		return r.recordFailure(name, stored > 0, r.redact(err))
	}
	r.recordSuccess(name)
	return nil
}

// recordAttempt records what an install or upgrade stored, and returns how many releases. An install that stored
// something begins a new history: an earlier release of the same version is another one.
func (r *run) recordAttempt(ctx context.Context, name string) int {
	stored := r.storage.Stored()
	if name == helmv2.ActionInstall && len(stored) > 0 {
		r.obj.Status.History = nil
	}
	r.recordSnapshots(ctx, stored, name)
	return len(stored)
}

// renewStorage opens the storage again, after an action whose wait is left to a later step.
func (r *run) renewStorage() (err error) {
	r.storage, err = openStorage(r.target, r.storage.namespace)
	return err
}

// begin saves what is about to be done.
func (r *run) begin(ctx context.Context, name string) error {
	if !r.isAttempted(r.obj) {
		r.clearFailures()
	}
	r.forced = false
	s := &r.obj.Status
	s.LastAttemptedReleaseAction = name
	s.LastAttemptedGeneration = r.obj.Generation
	s.LastAttemptedRevision, s.LastAttemptedRevisionDigest = r.chart.version, r.chart.ociDigest
	s.LastAttemptedConfigDigest = r.configDigest
	s.StorageNamespace = r.obj.GetStorageNamespace()
	return r.pass.Save(ctx, fmt.Sprintf("Running '%s' action with timeout of %s", name, r.actionTimeout(name)))
}

func (r *run) actionTimeout(name string) time.Duration {
	switch s := r.obj.Spec; {
	case name == helmv2.ActionInstall && s.Install != nil:
		return r.obj.GetTimeout(s.Install.Timeout)
	case name == helmv2.ActionUpgrade && s.Upgrade != nil:
		return r.obj.GetTimeout(s.Upgrade.Timeout)
	default:
		return r.obj.GetTimeout(nil)
	}
}

// test runs the tests of the last release.
func (r *run) test(ctx context.Context, o *observed) error {
	a, err := r.newAction()
	if err != nil {
		return err
	}
	client, err := a.Test(ctx)
	r.recordWork(client)
	r.recordTests()
	if err != nil {
		return r.recordTestFailure(o.last, r.redact(err))
	}
	r.recordTestSuccess(o.last)
	return nil
}

// remediate rolls a failed release back to the last successful one, or uninstalls it.
func (r *run) remediate(ctx context.Context, o *observed) error {
	r.dropSuperseded()
	p := r.policy()
	if p.uninstall {
		return r.uninstall(ctx, true)
	}
	to := o.previous(o.last.Version, r.obj.Status.History)
	if to == nil {
		return fault.New(helmv2.MissingRollbackTargetReason,
			"release %d failed, and no earlier release to roll back to is stored", o.last.Version).
			WithHint("Set spec.upgrade.remediation.strategy to uninstall, or correct the chart or its values").Final()
	}
	return r.rollback(ctx, o.last, to, "previous release "+describe(to))
}

// rollback runs Helm's rollback to a release and records it. The name of the release is for messages.
func (r *run) rollback(ctx context.Context, last, to *helmrelease.Release, name string) error {
	if err := r.takeReleases(ctx, to); err != nil {
		return err
	}
	a, err := r.newAction()
	if err != nil {
		return err
	}
	client, err := a.Rollback(ctx, last, to)
	r.recordWork(client)
	r.recordStored(ctx, "rollback")
	if err != nil {
		return r.recordRemediation(helmv2.RollbackFailedReason, "Helm rollback to "+name+" failed", r.redact(err))
	}
	return r.recordRemediation(helmv2.RollbackSucceededReason, "Helm rollback to "+name+" succeeded", nil)
}

// uninstall uninstalls the release.
func (r *run) uninstall(ctx context.Context, isRemediation bool) error {
	client, err := r.newUninstall().Uninstall(ctx, false)
	r.recordWork(client)
	r.recordStored(ctx, "uninstall")
	text := fmt.Sprintf("Helm uninstall of release %s/%s", r.obj.GetReleaseNamespace(), r.name)
	switch {
	case err != nil:
		return r.recordRemediation(helmv2.UninstallFailedReason, text+" failed", r.redact(err))
	case isRemediation:
		r.recordUninstalled()
		return r.recordRemediation(helmv2.UninstallSucceededReason, text+" succeeded", nil)
	default:
		r.recordUninstalled()
		r.report.Note(helmv2.UninstallSucceededReason, text+" succeeded")
		return nil
	}
}

// recover marks a release as failed whose action was interrupted. It is then upgraded as any failed release.
func (r *run) recover(ctx context.Context, o *observed) error {
	if wait := r.foreignWait(o.last); wait > 0 {
		return fault.New(meta.ReconciliationFailedReason, "another client is changing release %s: it is %s",
			describe(o.last), o.last.Info.Status).
			WithHint("It is taken over after %s", wait.Round(time.Second)).After(wait)
	}
	a := &action.Run{Object: r.obj, Name: r.name, Storage: r.storage.Driver}
	was := o.last.Info.Status
	if err := a.Interrupt(o.last); err != nil {
		return fault.New(meta.ReconciliationFailedReason, "cannot recover release %s", describe(o.last)).Because(err)
	}
	r.recordStored(ctx, "")
	r.report.Note(meta.ProgressingReason, fmt.Sprintf("release %s was left %s: it is recovered", describe(o.last), was))
	return nil
}

// adopt records a release that another client stored, as declared.
func (r *run) adopt(ctx context.Context, o *observed) error {
	s := &r.obj.Status
	r.clearFailures()
	s.StorageNamespace = r.obj.GetStorageNamespace()
	s.LastAttemptedGeneration = r.obj.Generation
	s.LastAttemptedRevision, s.LastAttemptedRevisionDigest = r.chart.version, r.chart.ociDigest
	s.LastAttemptedConfigDigest = r.configDigest
	s.History = nil
	r.recordSnapshots(ctx, []*helmrelease.Release{o.last}, "")
	r.recordReleased(helmv2.UpgradeSucceededReason, fmt.Sprintf("Release %s was adopted as it is", describe(o.last)))
	return nil
}

// move uninstalls the release under the name and from the storage that the status records.
func (r *run) move(ctx context.Context) error {
	old := r.obj.Status.History[0]
	storageNamespace := r.obj.Status.StorageNamespace
	if storageNamespace == "" {
		storageNamespace = r.obj.GetStorageNamespace()
	}
	if err := r.uninstallRecorded(ctx, old, storageNamespace); err != nil {
		return err
	}
	r.report.Note(helmv2.UninstallSucceededReason, fmt.Sprintf("Helm uninstall succeeded for release %s/%s.v%d, which "+
		"was renamed or moved", old.Namespace, old.Name, old.Version))
	r.obj.Status.History, r.obj.Status.StorageNamespace = nil, r.obj.GetStorageNamespace()
	r.clearFailures()
	r.state.checked = ""
	return nil
}

// uninstallRecorded uninstalls the release of a snapshot, unless that was done before and its history is kept.
func (r *run) uninstallRecorded(ctx context.Context, s helmv2.Snapshot, storageNamespace string) error {
	stored, err := openStorage(r.target, storageNamespace)
	if err != nil {
		return err
	}
	history, err := stored.History(ctx, s.Name)
	if len(history) > 0 && history[0].Info.Status == common.StatusUninstalled && r.keepsHistory() {
		return nil // such as by an attempt that failed after that
	}
	if err == nil {
		err = r.takeReleases(ctx, history[:min(len(history), 1)]...)
	}
	if err != nil {
		return fault.New(helmv2.UninstallFailedReason, "cannot read release '%s/%s'", s.Namespace, s.Name).Because(err)
	}
	if len(history) == 0 {
		return r.deleteInventory(ctx, s)
	}
	a := r.newUninstall()
	a.Storage, a.Name, a.Client.Namespace, a.Client.ReleaseName = stored.Driver, s.Name, s.Namespace, s.Name
	client, err := a.Uninstall(ctx, false)
	r.recordWork(client)
	if err != nil {
		return fault.New(helmv2.UninstallFailedReason, "cannot uninstall release '%s/%s'", s.Namespace, s.Name).
			Because(r.redact(err))
	}
	return nil
}

func (r *run) keepsHistory() bool { u := r.obj.Spec.Uninstall; return u != nil && u.KeepHistory }

func copyValues(m map[string]any) map[string]any {
	out := make(map[string]any, len(m))
	for k, v := range m {
		if inner, ok := v.(map[string]any); ok {
			v = copyValues(inner)
		}
		out[k] = v
	}
	return out
}

// describe returns <namespace>/<name>.v<version> of a release.
func describe(rel *helmrelease.Release) string {
	return fmt.Sprintf("%s/%s.v%d", rel.Namespace, rel.Name, rel.Version)
}
