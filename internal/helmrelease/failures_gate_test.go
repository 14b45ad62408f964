package helmrelease_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// behind makes a HelmRelease refer to a gate. A ConfigMap with the value bad is unhealthy, unless a person adds the key
// fixed.
func behind(gate string) func(*helmv2.HelmReleaseSpec) {
	return func(s *helmv2.HelmReleaseSpec) {
		s.Gates = system.GateRefs(gate)
		s.HealthCheckExprs = []meta.HealthCheckExpr{{APIVersion: "v1", Kind: "ConfigMap",
			Current: "data.k != 'bad' || has(data.fixed)", Failed: "data.k == 'bad' && !has(data.fixed)"}}
	}
}

func TestFailedReleaseClosesGate(t *testing.T) {
	t.Parallel()
	h := sharedHarness(t)
	h.WatchingGate("release", gatingv1.OnFailureHold)
	h.publish("1.0.0", nil)
	h.release("app", behind("release"))
	h.release("other", behind("release"))
	h.ready("app", 1)
	h.ready("other", 1)

	t.Log("a chart that cannot be rendered closes nothing")
	h.publish("1.1.0", map[string]string{"templates/broken.yaml": "{{ fail \"no\" }}"})
	h.hasCondition("app", "Ready", "False", helmv2.UpgradeFailedReason, "fail")
	h.hasCondition("other", "Ready", "False", helmv2.UpgradeFailedReason, "fail")
	h.GateOpened("release", metav1.ConditionTrue, "Gate opened by default")

	t.Log("other values are unhealthy: the gate closes for all")
	h.publish("1.2.0", nil)
	h.ready("app", 2)
	h.ready("other", 2)
	h.edit("app", values(map[string]any{"color": "bad"}))
	h.hasCondition("app", "Ready", "False", helmv2.UpgradeFailedReason, "Failed")
	g := h.GateOpened("release", metav1.ConditionFalse, "HelmRelease '"+h.Namespace+"/app' is unhealthy")
	if f := g.Status.Failures; len(f) != 1 || f[0].Revision != "1.2.0" || f[0].Change == "" {
		t.Errorf("failures are %+v", f)
	}
	h.edit("other", values(map[string]any{"color": "blue"}))
	h.hasCondition("other", meta.ApprovedCondition, "False", meta.GateClosedReason, "is unhealthy")

	t.Log("a person makes it healthy: it is released again, and the gate opens")
	h.Patch(&corev1.ConfigMap{}, "app-config", `{"data":{"fixed":"yes"}}`)
	h.ready("app", 4)
	h.GateOpened("release", metav1.ConditionTrue, "Gate opened by default")
	h.ready("other", 3)
	h.configMap("other-config", "blue")
}

func TestReleasesFollowWaves(t *testing.T) {
	t.Parallel()
	h := sharedHarness(t)
	h.Create(&gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: "release"},
		Spec: gatingv1.GateSpec{Default: gatingv1.Opened, Waves: []gatingv1.Wave{{Name: "canary",
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"stage": "canary"}}}}}})
	h.GateOpened("release", metav1.ConditionTrue, "Gate opened by default")
	h.publish("1.0.0", nil)
	h.release("app", behind("release"))
	h.Patch(&helmv2.HelmRelease{}, "app", `{"metadata":{"labels":{"stage":"canary"}}}`)
	h.ready("app", 1)
	h.release("other", behind("release"))
	h.ready("other", 1)

	t.Log("a version that cannot be released holds the next wave")
	h.publish("1.1.0", map[string]string{"templates/broken.yaml": "{{ fail \"no\" }}"})
	h.hasCondition("app", "Ready", "False", helmv2.UpgradeFailedReason, "fail")
	h.hasCondition("other", meta.ApprovedCondition, "False", meta.GateClosedReason,
		"holds the last wave (objects that no wave selects) until wave 'canary' is Ready: HelmRelease '"+h.Namespace+
			"/app' failed with the revision")

	t.Log("the next version goes through both; other values of the version that a release has do not wait")
	h.publish("1.2.0", nil)
	h.ready("app", 2)
	h.ready("other", 2)
	h.Patch(&helmv2.HelmRelease{}, "app", `{"spec":{"suspend":true}}`)
	h.edit("other", values(map[string]any{"color": "blue"}))
	h.configMap("other-config", "blue")
}
