package helmrelease_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// detecting returns a change to a mode of drift detection.
func detecting(mode string) func(*helmv2.HelmReleaseSpec) {
	return func(s *helmv2.HelmReleaseSpec) { s.DriftDetection = &meta.DriftDetection{Mode: mode} }
}

const drifted = `{"data":{"k":"drifted"}}`

func TestDriftIsCorrected(t *testing.T) {
	t.Parallel()
	h := sharedHarness(t)
	h.publish("1.0.0", nil)
	h.release("app", detecting(meta.DriftEnabled))
	h.ready("app", 1)
	h.configMap("app-config", "red")
	h.hasCondition("app", meta.DriftedCondition, "False", helmv2.NoDriftDetectedReason, "No drift detected")
	h.Patch(&corev1.ConfigMap{}, "app-config", drifted)
	h.HasEvent("app", meta.DriftCorrectedReason, "app-config")
	h.configMap("app-config", "red")
	if err := h.Client.Delete(t.Context(), h.configMap("app-config", "red")); err != nil {
		t.Fatal(err)
	}
	h.configMap("app-config", "red")
	h.hasCondition("app", meta.DriftedCondition, "False", helmv2.NoDriftDetectedReason, "No drift detected")
	if got := h.statuses("app"); got != "1 deployed" {
		t.Errorf("stored releases are %s", got)
	}
}

func TestDriftIsReported(t *testing.T) {
	t.Parallel()
	h := sharedHarness(t)
	h.publish("1.0.0", nil)
	h.release("app", detecting(meta.DriftWarn))
	h.ready("app", 1)
	h.Patch(&corev1.ConfigMap{}, "app-config", drifted)
	h.hasCondition("app", meta.DriftedCondition, "True", meta.DriftDetectedReason, "app-config differs")
	h.configMap("app-config", "drifted")

	h.edit("app", detecting(meta.DriftEnabled))
	h.configMap("app-config", "red")
	h.hasCondition("app", meta.DriftedCondition, "False", helmv2.NoDriftDetectedReason, "No drift detected")
	h.edit("app", detecting(meta.DriftDisabled))
	testenv.Eventually(t, "the condition is gone", func() error {
		r := &helmv2.HelmRelease{}
		if err := h.Get(r, "app"); err != nil {
			return err
		}
		if c := apimeta.FindStatusCondition(r.Status.Conditions, meta.DriftedCondition); c != nil {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
}

func TestDriftIsIgnored(t *testing.T) {
	t.Parallel()
	h := sharedHarness(t)
	annotated := `apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}-excluded
  annotations: {helm.toolkit.fluxcd.io/driftDetection: disabled}
data: {k: red}
`
	h.publish("1.0.0", map[string]string{"templates/excluded.yaml": annotated})
	h.release("app", func(s *helmv2.HelmReleaseSpec) {
		s.DriftDetection = &meta.DriftDetection{Mode: meta.DriftEnabled,
			Ignore: []meta.IgnoreRule{{Paths: []string{"/data/k"}}}}
	})
	h.release("off")
	h.ready("app", 1)
	h.ready("off", 1)
	for _, name := range []string{"app-config", "app-excluded", "off-config"} {
		h.Patch(&corev1.ConfigMap{}, name, drifted)
	}
	for _, name := range []string{"app", "off"} {
		h.Reconcile(&helmv2.HelmRelease{}, name)
	}
	for _, name := range []string{"app-config", "app-excluded", "off-config"} {
		h.configMap(name, "drifted")
	}
	h.edit("off", values(map[string]any{"color": "blue"})) // upgrades do not depend on drift detection
	h.configMap("off-config", "blue")
}

// TestFieldsOfOthersAreNoDrift sets fields that the chart does not declare, as defaults and webhooks do.
func TestFieldsOfOthersAreNoDrift(t *testing.T) {
	t.Parallel()
	h := sharedHarness(t)
	h.publish("1.0.0", nil)
	h.release("app", detecting(meta.DriftEnabled))
	h.ready("app", 1)
	h.Patch(&corev1.ConfigMap{}, "app-config", `{"data":{"other":"added"}}`)
	h.Reconcile(&helmv2.HelmRelease{}, "app")
	cm := &corev1.ConfigMap{}
	testenv.Eventually(t, "the object can be read", func() error { return h.Get(cm, "app-config") })
	if cm.Data["other"] != "added" || cm.Data["k"] != "red" {
		t.Errorf("the data are %v", cm.Data)
	}
}

// TestFieldsOfKubectlAreKept adds fields to the objects of a release as kubectl does: they are neither drift nor
// removed by a correction or an upgrade. A change of what the chart declares is corrected. Fields of overridden
// managers are removed, unless a rule ignores them.
func TestFieldsOfKubectlAreKept(t *testing.T) {
	h := newHarness(t, func(o *options.Options) { o.OverrideManagers = []string{"lens"} })
	h.publish("1.0.0", nil)
	h.release("app", func(s *helmv2.HelmReleaseSpec) {
		s.DriftDetection = &meta.DriftDetection{Mode: meta.DriftEnabled,
			Ignore: []meta.IgnoreRule{{Paths: []string{"/data/ignored"}}}}
	})
	h.ready("app", 1)
	h.configMap("app-config", "red")
	for manager, patch := range map[string]string{
		"kubectl-edit":     `{"data":{"edited":"yes"}}`,
		"kubectl-label":    `{"metadata":{"labels":{"labeled":"yes"}}}`,
		"kubectl-annotate": `{"metadata":{"annotations":{"annotated":"yes"}}}`,
		"kubectl-patch":    `{"data":{"k":"drifted"}}`,
		"lens":             `{"data":{"ignored":"yes","removed":"yes"}}`,
	} {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: "app-config"}}
		if err := h.Client.Patch(t.Context(), cm, client.RawPatch(types.MergePatchType, []byte(patch)),
			client.FieldOwner(manager)); err != nil {
			t.Fatal(err)
		}
	}
	testenv.Eventually(t, "the drift is corrected", func() error {
		cm := h.configMap("app-config", "red")
		if cm.Data["removed"] != "" {
			return fmt.Errorf("the data are %v", cm.Data)
		}
		return nil
	})
	h.HasEvent("app", meta.DriftCorrectedReason, "app-config")
	check := func(cm *corev1.ConfigMap) {
		t.Helper()
		if cm.Data["edited"] != "yes" || cm.Labels["labeled"] != "yes" || cm.Annotations["annotated"] != "yes" ||
			cm.Data["ignored"] != "yes" || cm.Data["removed"] != "" {
			t.Errorf("the object is %+v", cm)
		}
	}
	check(h.configMap("app-config", "red"))
	h.Reconcile(&helmv2.HelmRelease{}, "app")
	check(h.configMap("app-config", "red"))
	h.edit("app", values(map[string]any{"color": "blue"}))
	check(h.configMap("app-config", "blue"))
}
