package helmrelease_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
)

// hookTemplate returns the template of a Job that runs at a hook, and fails while the value fail is set.
func hookTemplate(event string) string {
	return fmt.Sprintf(`apiVersion: batch/v1
kind: Job
metadata:
  name: {{ .Release.Name }}-hook
  annotations: {helm.sh/hook: %s}
spec:
  backoffLimit: 0
  template:
    metadata:
      annotations: {playground.sluice.dev/fail: {{ .Values.fail | default "" | quote }}}
    spec:
      restartPolicy: Never
      containers: [{name: main, image: example.com/hook}]
`, event)
}

// failing are values with which hooks fail.
func failing(color string) map[string]any {
	return map[string]any{"color": color, "fail": "job-failed"}
}

func TestAFailedUpgradeIsRolledBack(t *testing.T) {
	t.Parallel()
	h := newSteps(t)
	h.publish("1.0.0", map[string]string{"templates/hook.yaml": hookTemplate("post-upgrade")})
	h.release("app", func(s *helmv2.HelmReleaseSpec) {
		s.Upgrade = &helmv2.Upgrade{Remediation: &helmv2.UpgradeRemediation{Retries: 1}}
	})
	h.ready("app", 1)
	h.edit("app", values(failing("blue")))
	h.retry("app")
	r := &helmv2.HelmRelease{}
	h.NotReady(r, "app", helmv2.RollbackSucceededReason, "upgrade failed 2 times, and no retries are left")
	h.outOfRetries("app")
	h.configMap("app-config", "red")
	checkHistory(t, r, "5 deployed 1.0.0 rollback", "4 failed 1.0.0 upgrade", "3 superseded 1.0.0 rollback")
	h.hasCondition("app", helmv2.ReleasedCondition, "False", helmv2.UpgradeFailedReason, "Job")
	h.hasCondition("app", helmv2.RemediatedCondition, "True", helmv2.RollbackSucceededReason,
		h.Namespace+"/app.v3 succeeded")
	if r.Status.UpgradeFailures != 2 || r.Status.Failures != 2 {
		t.Errorf("the counters are %d and %d", r.Status.UpgradeFailures, r.Status.Failures)
	}

	h.edit("app", values(map[string]any{"color": "green"})) // an input that matters changes
	r = h.ready("app", 6)
	h.configMap("app-config", "green")
	if r.Status.UpgradeFailures != 0 {
		t.Errorf("%d failures are still counted", r.Status.UpgradeFailures)
	}
}

func TestAFailedInstallIsUninstalledAndRetried(t *testing.T) {
	t.Parallel()
	h := newSteps(t)
	h.publish("1.0.0", map[string]string{"templates/hook.yaml": hookTemplate("post-install")})
	h.release("app", values(failing("blue")), func(s *helmv2.HelmReleaseSpec) {
		remediateLast := true
		s.Install = &helmv2.Install{Remediation: &helmv2.InstallRemediation{Retries: 1,
			RemediateLastFailure: &remediateLast}}
	})
	h.retry("app")
	r := &helmv2.HelmRelease{}
	h.NotReady(r, "app", helmv2.UninstallSucceededReason, "install failed 2 times")
	h.outOfRetries("app")
	h.hasCondition("app", helmv2.RemediatedCondition, "True", helmv2.UninstallSucceededReason, "succeeded")
	h.Gone(&corev1.ConfigMap{}, "app-config")
	if got := h.statuses("app"); got != "" {
		t.Errorf("releases are stored: %s", got)
	}
	h.edit("app", values(map[string]any{"color": "blue"}))
	h.ready("app", 1)
	h.configMap("app-config", "blue")
}

func TestResetAllowsFurtherRetries(t *testing.T) {
	t.Parallel()
	h := newSteps(t)
	gate := "{{ if not (lookup \"v1\" \"ConfigMap\" .Release.Namespace \"opened\") }}" +
		strings.Replace(hookTemplate("pre-install,pre-upgrade"), "helm.sh/hook: pre-install,pre-upgrade",
			`helm.sh/hook: "pre-install,pre-upgrade"`, 1) + "{{ end }}"
	h.publish("1.0.0", map[string]string{"templates/gate.yaml": gate})
	h.release("app", values(failing("blue")))
	h.NotReady(&helmv2.HelmRelease{}, "app", helmv2.InstallFailedReason, "It is retried when the chart, the "+
		"values, the spec or the health of what failed changes, or after `sluice reconcile helmrelease --reset`")
	h.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: "opened"}})
	at := time.Now().Format(time.RFC3339Nano)
	h.Patch(&helmv2.HelmRelease{}, "app", fmt.Sprintf(`{"metadata":{"annotations":{%q:%q,%q:%q}}}`,
		meta.ReconcileRequestAnnotation, at, helmv2.ResetRequestAnnotation, at))
	h.pass("app")
	r := h.ready("app", 2)
	if r.Status.LastHandledResetAt != at {
		t.Errorf("the last handled reset is %q", r.Status.LastHandledResetAt)
	}
	at = time.Now().Format(time.RFC3339Nano)
	h.Patch(&helmv2.HelmRelease{}, "app", fmt.Sprintf(`{"metadata":{"annotations":{%q:%q,%q:%q}}}`,
		meta.ReconcileRequestAnnotation, at, helmv2.ForceRequestAnnotation, at))
	h.pass("app")
	if r = h.ready("app", 3); r.Status.LastHandledForceAt != at {
		t.Errorf("the last handled force is %q", r.Status.LastHandledForceAt)
	}
}

func TestRetryOnFailureRetriesWithoutRemediation(t *testing.T) {
	t.Parallel()
	h := newSteps(t)
	gate := `{{ if not (lookup "v1" "ConfigMap" .Release.Namespace "opened") }}{{ fail "not opened" }}{{ end }}`
	h.publish("1.0.0", map[string]string{"templates/gate.yaml": gate})
	h.release("app", func(s *helmv2.HelmReleaseSpec) {
		s.Install = &helmv2.Install{Strategy: &helmv2.InstallStrategy{Name: helmv2.StrategyRetryOnFailure,
			RetryInterval: &meta.Duration{Duration: time.Second}}}
	})
	h.NotReady(&helmv2.HelmRelease{}, "app", helmv2.InstallFailedReason, "not opened")
	h.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: "opened"}})
	h.retry("app")
	h.ready("app", 1)
}

// TestBadCharts releases what cannot be released. Each failure says why. Those before a release exists do not count as
// attempts, and are retried.
func TestBadCharts(t *testing.T) {
	t.Parallel()
	h := newSteps(t)
	h.publish("0.0.1", nil)
	for name, c := range map[string]struct {
		version string
		files   map[string]string
		values  map[string]any
		says    string
		stored  bool
	}{
		"schema": {version: "1.0.0", values: map[string]any{"color": "red", "size": "big"}, says: "size",
			files: map[string]string{"values.schema.json": `{"properties":{"size":{"type":"integer"}}}`}},
		"missing": {version: "1.0.1", says: "set .Values.must",
			files: map[string]string{"templates/x.yaml": `{{ required "set .Values.must" .Values.must }}`}},
		"template": {version: "1.0.2", says: "nope", files: map[string]string{"templates/x.yaml": "{{ nope }}"}},
		"kind": {version: "1.0.3", says: "does not serve kind Nope", files: map[string]string{
			"templates/x.yaml": "apiVersion: a.example.com/v1\nkind: Nope\nmetadata: {name: a}\n"}},
		"field": {version: "1.0.4", says: "dada", stored: true, files: map[string]string{
			"templates/config.yaml": strings.Replace(configTemplate, "\ndata:", "\ndada:", 1)}},
		"yaml": {version: "1.0.5", says: "YAML", files: map[string]string{"templates/x.yaml": "a: [\n"}},
		"namespace": {version: "1.0.6", says: "does-not-exist", stored: true, files: map[string]string{
			"templates/x.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: does-not-exist}\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := h.in(t)
			h.publish(c.version, c.files)
			h.release(name, values(c.values), func(s *helmv2.HelmReleaseSpec) { s.Chart.Spec.Version = c.version })
			h.NotReady(&helmv2.HelmRelease{}, name, helmv2.InstallFailedReason, c.says)
			if c.stored {
				h.outOfRetries(name)
			} else {
				h.retry(name)
				h.retriesUncounted(name, helmv2.InstallFailedReason)
			}
		})
	}
}

// TestSecretValuesStayOutOfMessages has a template that fails with a value of a Secret, which is one of several in the
// Secret's values.yaml.
func TestSecretValuesStayOutOfMessages(t *testing.T) {
	t.Parallel()
	h := newSteps(t)
	h.publish("1.0.0", map[string]string{"templates/x.yaml": `{{ fail (print "rejected " .Values.login.password) }}`})
	h.System.Secret("credentials", map[string]string{"values.yaml": "login: {user: me, password: hunter2-secret}\n"})
	h.release("app", func(s *helmv2.HelmReleaseSpec) {
		s.ValuesFrom = []meta.ValuesReference{{Kind: "Secret", Name: "credentials"}}
	})
	r := &helmv2.HelmRelease{}
	h.NotReady(r, "app", helmv2.InstallFailedReason, "rejected")
	text, err := json.Marshal(r.Status)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "hunter2") {
		t.Errorf("the status contains a value of a Secret: %s", text)
	}
}
