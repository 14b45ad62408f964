package helmrelease_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// TestRulesSeeAllOfARelease has a gate that denies what an action creates although drift detection does not
// compare it: hooks, and objects that are excluded by annotation.
func TestRulesSeeAllOfARelease(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Create(&gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: "release"},
		Spec: gatingv1.GateSpec{Interval: meta.Duration{Duration: time.Hour}, Default: gatingv1.Opened,
			Rules: []gatingv1.Rule{{Name: "no-secrets", Outcome: gatingv1.OutcomeDeny,
				Expression: "(change.created + change.configured).exists(o, o.kind == 'Secret')"}}}})
	h.publish("1.0.0", nil)
	h.release("app", func(s *helmv2.HelmReleaseSpec) { s.Gates = system.GateRefs("release") })
	h.ready("app", 1)

	secret := func(annotation string) string {
		return "apiVersion: v1\nkind: Secret\nmetadata:\n  name: hidden\n  annotations: {" + annotation + "}\n"
	}
	const denied = "denies the change by rule 'no-secrets'"
	h.publish("1.1.0", map[string]string{"templates/secret.yaml": secret(`"helm.sh/hook": pre-upgrade`)})
	h.waitsFor("1.1.0")
	h.hasCondition("app", meta.ApprovedCondition, "False", meta.GateClosedReason, denied)
	h.publish("1.2.0", map[string]string{"templates/secret.yaml": secret(
		`"helm.toolkit.fluxcd.io/driftDetection": disabled`)})
	h.waitsFor("1.2.0")
	h.hasCondition("app", meta.ApprovedCondition, "False", meta.GateClosedReason, denied)

	h.publish("1.3.0", map[string]string{"templates/secret.yaml": "", "values.yaml": "color: blue\n"})
	h.ready("app", 2)
	h.configMap("app-config", "blue")

	t.Log("the release is not decided about again after a restart")
	h.Stop()
	h.Start()
	h.ready("app", 2)
	h.hasCondition("app", meta.ApprovedCondition, "True", meta.GateOpenReason, "approved")
}
