package gate_test

import (
	"testing"
	"time"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
)

// The revision that staging was Ready at goes through the waves, also while the source has a newer one that staging has
// failed at.
func TestPromotedRevisionGoesThroughWaves(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	s.GrantAll("default")
	push := func(staging, fleet string) string {
		return s.commitEach(map[string]string{"staging": staging, "a": fleet, "b": fleet})
	}
	first := push("1", "1")
	s.GitRepository("app")
	s.Kustomization("staging", "app", "staging", func(k *kustomizev1.Kustomization) {
		behind()(k) // its health counts
	})
	s.Ready("staging", first)
	s.newGate("release", func() gatingv1.GateSpec {
		spec := afterStaging("staging", 0)
		spec.Waves = []gatingv1.Wave{wave("canary")}
		return spec
	}())
	s.promotes("release", first)
	for name, wave := range map[string]string{"a": "canary", "b": ""} {
		s.Kustomization(name, "app", name, inWave(wave))
	}
	s.Ready("a", first)
	s.Ready("b", first)

	t.Log("what staging has goes to the canary, and waits there for its soak")
	s.setSoak(time.Hour)
	second := push("2", "2")
	s.RequestFetch("app")
	s.Ready("staging", second)
	s.Ready("a", second)
	s.waitsAtGate("b", second, "when the soak of wave 'canary' ends")

	t.Log("a newer revision fails in staging: it goes nowhere, and the older one goes on after the soak")
	push("bad", "3")
	s.RequestFetch("app")
	s.NotReady(&kustomizev1.Kustomization{}, "staging", meta.HealthCheckFailedReason, "")
	s.promotes("release", second)
	s.Reconcile(&kustomizev1.Kustomization{}, "b")
	s.ConfigMapHas("b", "1")
	s.setSoak(0)
	s.ConfigMapHas("b", "2")
	s.ConfigMapHas("a", "2")

	t.Log("a repair passes staging, the canary, and the rest")
	fourth := push("4", "4")
	s.RequestFetch("app")
	s.Ready("b", fourth)
	s.Ready("a", fourth)
}
