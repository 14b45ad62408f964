package helmrelease_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/helm/digest"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// deleteConfig deletes the ConfigMap of the release.
func (h *harness) deleteConfig() {
	h.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: "app-config"}}
	if err := h.Client.Delete(h.Context(), cm); err != nil {
		h.Fatal(err)
	}
}

// waitsFor waits until the HelmRelease reports a pending version.
func (h *harness) waitsFor(version string) {
	h.Helper()
	testenv.Eventually(h, "app waits for "+version, func() error {
		r := &helmv2.HelmRelease{}
		if err := h.Get(r, "app"); err != nil {
			return err
		}
		if p := r.Status.Pending; p == nil || p.Revision != version {
			return fmt.Errorf("%+v", p)
		}
		return nil
	})
}

func TestDriftIsCorrectedBehindClosedGate(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Gate("release")
	h.TurnGate("release", gatingv1.Opened)
	h.publish("1.0.0", nil)
	h.release("app", detecting(meta.DriftEnabled), func(s *helmv2.HelmReleaseSpec) {
		s.Gates = system.GateRefs("release")
	})
	h.ready("app", 1)
	h.TurnGate("release", gatingv1.Closed)
	h.hasCondition("app", meta.ApprovedCondition, "False", meta.GateClosedReason, "release")

	t.Log("no change is pending")
	h.deleteConfig()
	h.configMap("app-config", "red")
	h.HasEvent("app", meta.DriftCorrectedReason, "app-config")

	t.Log("a newer chart is pending: it is not released, and drift is corrected to the old one")
	h.publish("1.1.0", map[string]string{"values.yaml": "color: blue\n"})
	h.waitsFor("1.1.0")
	h.deleteConfig()
	h.configMap("app-config", "red")
	h.Patch(&corev1.ConfigMap{}, "app-config", drifted)
	h.configMap("app-config", "red")

	t.Log("the old release survives a restart")
	h.Stop()
	h.deleteConfig()
	h.Start()
	h.configMap("app-config", "red")
	h.deleteConfig()
	h.configMap("app-config", "red")
	if got := h.statuses("app"); got != "1 deployed" {
		t.Errorf("stored releases are %s", got)
	}

	t.Log("the opened gate lets the pending chart through")
	h.TurnGate("release", gatingv1.Opened)
	h.ready("app", 2)
	h.configMap("app-config", "blue")
}

// TestChangedReleaseIsNotAppliedBehindClosedGate writes what a tenant may write if no admission policy protects the
// status: another manifest in the Secret of the release, and its digest in the status.
func TestChangedReleaseIsNotAppliedBehindClosedGate(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Gate("release")
	h.TurnGate("release", gatingv1.Opened)
	h.publish("1.0.0", nil)
	h.release("app", detecting(meta.DriftEnabled), func(s *helmv2.HelmReleaseSpec) {
		s.Gates = system.GateRefs("release")
	})
	r := h.ready("app", 1)
	h.TurnGate("release", gatingv1.Closed)
	h.hasCondition("app", meta.ApprovedCondition, "False", meta.GateClosedReason, "release")
	h.Stop()
	changed := h.stored("app")[0]
	changed.Manifest = strings.ReplaceAll(changed.Manifest, "red", "changed")
	if err := h.driver().Update("sh.helm.release.v1.app.v1", changed); err != nil {
		t.Fatal(err)
	}
	r.Status.History[0].Digest = digest.Release(h.stored("app")[0], "")
	history, err := json.Marshal(r.Status.History)
	if err != nil {
		t.Fatal(err)
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"history":`+string(history)+`}}`))
	if err := h.Client.Status().Patch(t.Context(), r, patch); err != nil {
		t.Fatal(err)
	}
	h.deleteConfig()
	h.Start()
	h.publish("1.1.0", map[string]string{"values.yaml": "color: blue\n"})
	h.waitsFor("1.1.0") // the pass that would correct drift is over
	if err := h.Get(&corev1.ConfigMap{}, "app-config"); err == nil {
		t.Error("a release that the gate did not let through was applied")
	}
}
