package helmrelease_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// outOfRetries checks that a HelmRelease is Stalled because no retries are left.
func (h *releases) outOfRetries(name string) {
	h.Helper()
	h.hasCondition(name, reconcile.TypeStalled, metav1.ConditionTrue, helmv2.RetriesExceededReason,
		"no retries are left")
}

// TestFailuresBeforeAReleaseExistsAreRetried has charts that cannot be released at first, for reasons outside of the
// chart or its values. Nothing is stored, so nothing counts as a failed attempt, and the release is made as soon as
// what was missing is there. The same holds for an upgrade.
func TestFailuresBeforeAReleaseExistsAreRetried(t *testing.T) {
	t.Parallel()
	h := newSteps(t)
	group := testenv.Namespace(t) + ".example.com"
	for name, template := range map[string]string{
		"kind": fmt.Sprintf("apiVersion: %s/v1\nkind: Thing\nmetadata: {name: {{ .Release.Name }}}\n", group),
		"capabilities": fmt.Sprintf(
			`{{ if not (.Capabilities.APIVersions.Has "%s/v1") }}{{ fail "too early" }}{{ end }}`,
			group),
		"lookup": `# {{ (lookup "v1" "ConfigMap" .Release.Namespace "late").data.k | required "too early" }}`,
	} {
		files := map[string]string{"templates/x.yaml": "{{ if .Values.early }}\n" + template + "\n{{ end }}"}
		version := map[string]string{"kind": "1.0.0", "capabilities": "1.0.1", "lookup": "1.0.2"}[name]
		h.publish(version, files)
		h.release("install-"+name, values(map[string]any{"early": true}),
			func(s *helmv2.HelmReleaseSpec) { s.Chart.Spec.Version = version })
		h.release("upgrade-"+name, func(s *helmv2.HelmReleaseSpec) { s.Chart.Spec.Version = version })
		h.ready("upgrade-"+name, 1)
		h.edit("upgrade-"+name, values(map[string]any{"early": true}))
	}
	for _, name := range []string{"kind", "capabilities", "lookup"} {
		h.retry("install-" + name)
		h.retriesUncounted("install-"+name, helmv2.InstallFailedReason)
		h.retry("upgrade-" + name)
		h.retriesUncounted("upgrade-"+name, helmv2.UpgradeFailedReason)
	}
	h.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: "late"},
		Data: map[string]string{"k": "v"}})
	h.createDefinition(group)
	h.later(2 * time.Second) // what the cluster serves is not asked for more often
	for _, name := range []string{"kind", "capabilities", "lookup"} {
		h.retry("install-" + name)
		h.ready("install-"+name, 1)
		h.retry("upgrade-" + name)
		h.ready("upgrade-"+name, 2)
	}
}

// retriesUncounted waits until a HelmRelease was tried at least twice, and checks that no failure counts.
func (h *releases) retriesUncounted(name, reason string) {
	h.Helper()
	r := &helmv2.HelmRelease{}
	testenv.Eventually(h, name+" is retried", func() error {
		if err := h.Get(r, name); err != nil {
			return err
		}
		if c := apimeta.FindStatusCondition(r.Status.Conditions, reconcile.TypeReady); c == nil || c.Reason != reason {
			return fmt.Errorf("%+v", r.Status.Conditions)
		}
		if r.Status.Failures < 2 {
			return errors.New("it was tried once")
		}
		return nil
	})
	if reconcile.IsStalled(r) || r.Status.InstallFailures+r.Status.UpgradeFailures != 0 {
		h.Errorf("%s counts failures: %+v", name, r.Status)
	}
}

// TestAnUpgradeIsRemediatedByAnInstall has an upgrade that fails as an upgrade only. Its remediation uninstalls the
// release, which is then installed again.
func TestAnUpgradeIsRemediatedByAnInstall(t *testing.T) {
	t.Parallel()
	h := newSteps(t)
	h.publish("1.0.0", map[string]string{"templates/hook.yaml": hookTemplate("pre-upgrade")})
	for name, remediation := range map[string]helmv2.UpgradeRemediation{
		"last":    {RemediateLastFailure: ptr.To(true), Strategy: helmv2.RemediationUninstall},
		"retries": {Retries: 2, Strategy: helmv2.RemediationUninstall},
	} {
		h.release(name, func(s *helmv2.HelmReleaseSpec) { s.Upgrade = &helmv2.Upgrade{Remediation: &remediation} })
	}
	for _, name := range []string{"last", "retries"} {
		h.ready(name, 1)
		h.edit(name, values(failing("blue")))
		h.retry(name)
		h.configMap(name+"-config", "blue")
		r := h.ready(name, 1)
		if got := r.Status.History[0].Action; got != helmv2.ActionInstall || len(r.Status.History) != 1 {
			t.Errorf("%s: the history is %+v", name, r.Status.History)
		}
	}
}

// TestFailedTestsEndTheRetries installs charts whose tests fail always. After each, the release is uninstalled and
// installed again as version 1, until no retries are left: the results of one release are not those of the next.
func TestFailedTestsEndTheRetries(t *testing.T) {
	t.Parallel()
	h := newSteps(t)
	h.publish("1.0.0", map[string]string{"templates/test.yaml": strings.Replace(testTemplate, "helm.sh/hook: test",
		"helm.sh/hook: test, helm.sh/hook-delete-policy: before-hook-creation", 1)})
	for retries, keepHistory := range []bool{false, true, false, true} {
		name := fmt.Sprintf("retries-%d", retries)
		h.release(name, values(failing("red")), func(s *helmv2.HelmReleaseSpec) {
			s.Test = &helmv2.Test{Enable: true}
			s.Install = &helmv2.Install{Remediation: &helmv2.InstallRemediation{Retries: retries}}
			s.Uninstall = &helmv2.Uninstall{KeepHistory: keepHistory}
		})
	}
	for retries, keepHistory := range []bool{false, true, false, true} {
		name := fmt.Sprintf("retries-%d", retries)
		h.exhaust(name)
		h.outOfRetries(name)
		r := &helmv2.HelmRelease{}
		h.NotReady(r, name, helmv2.TestFailedReason, "no retries are left")
		// An attempt that an API server under load refuses does not count, but has a version if the history is kept.
		isExpected := func(version int) bool { return version == 1 }
		if keepHistory {
			isExpected = func(version int) bool { return version > retries }
		}
		if r.Status.InstallFailures != int64(retries+1) || !isExpected(r.Status.History[0].Version) {
			t.Errorf("%s: %d failures, history %+v", name, r.Status.InstallFailures, r.Status.History)
		}
	}
}

// TestStatusesOfFailedReleases checks what clients read of a failed release: its objects, and the version of the
// digest.
func TestStatusesOfFailedReleases(t *testing.T) {
	t.Parallel()
	h := newSteps(t)
	h.publish("1.0.0", map[string]string{"templates/hook.yaml": hookTemplate("post-install")})
	h.release("app", values(failing("blue")))
	h.outOfRetries("app")
	r := &helmv2.HelmRelease{}
	h.NotReady(r, "app", helmv2.InstallFailedReason, "no retries are left")
	if r.Status.Inventory == nil || len(r.Status.Inventory.Entries) != 1 {
		t.Errorf("the inventory is %+v", r.Status.Inventory)
	}
	if got := r.Status.History[0].APIVersion; got != "v2" {
		t.Errorf("the version of the digest is %q", got)
	}
}

// TestSupersededSnapshotsAreDropped upgrades a release several times. The status names the last release and the one to
// roll back to.
func TestSupersededSnapshotsAreDropped(t *testing.T) {
	t.Parallel()
	h := newSteps(t)
	h.publish("1.0.0", nil)
	h.release("app")
	h.ready("app", 1)
	for i, color := range []string{"blue", "green", "white"} {
		h.edit("app", values(map[string]any{"color": color}))
		h.ready("app", i+2)
	}
	r := h.ready("app", 4)
	checkHistory(t, r, "4 deployed 1.0.0 upgrade", "3 superseded 1.0.0 upgrade")
}
