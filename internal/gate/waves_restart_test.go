package gate_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// setSoak changes the soak of the first wave, and waits until the controller has observed it.
func (s *harness) setSoak(d time.Duration) {
	s.Helper()
	g := &gatingv1.Gate{}
	s.Update(g, "release", func() { soak(d)(&g.Spec.Waves[0]) })
	testenv.Eventually(s, "the soak is observed", func() error {
		if err := s.Get(g, "release"); err != nil || g.Status.ObservedGeneration == g.Generation {
			return err
		}
		return fmt.Errorf("generation %d, %d observed", g.Generation, g.Status.ObservedGeneration)
	})
}

// stays checks, after another pass of a Kustomization, that it waits with the value of a ConfigMap.
func (s *harness) stays(name, value, commit, text string) {
	s.Helper()
	s.Reconcile(&kustomizev1.Kustomization{}, name)
	s.waitsAtGate(name, commit, text)
	s.ConfigMapHas(name, value)
}

func TestSoakSurvivesRestart(t *testing.T) {
	t.Parallel()
	s := newHarness(t)
	s.wavedGate([]gatingv1.Wave{wave("canary")})
	s.fleet(map[string]string{"a": "canary", "b": ""})
	s.setSoak(time.Hour)
	second := s.commitEach(map[string]string{"a": "2", "b": "2"})
	s.RequestFetch("app")
	s.Ready("a", second)
	before := s.progress(second, "wave 'canary': 1 of 1 have revision 'main@sha1:"+second+"' and are Ready, soaks")
	const waits = ", when the soak of wave 'canary' ends"
	s.waitsAtGate("b", second, waits)
	s.Stop()
	s.Start()
	s.stays("b", "1", second, waits)
	if after := s.progress(second, "soaks until"); !after.Since.Equal(before.Since) {
		member := &kustomizev1.Kustomization{}
		err := s.Get(member, "a")
		t.Errorf("the wave before the restart: %+v\nafter it: %+v\nits member: %+v %v", before, after,
			member.Status, err)
	}

	t.Log("a status that no controller wrote opens no wave, also after a restart")
	s.Stop()
	forged := before
	forged.Wave, forged.Passed, forged.Since, forged.Until = "", []string{"canary"}, nil, nil
	s.writeStatus(&gatingv1.Gate{}, "release", map[string]any{"waves": []gatingv1.WaveProgress{forged}})
	s.Start()
	s.stays("b", "1", second, waits)
	s.progress(second, "soaks until")

	t.Log("a shorter soak opens it")
	s.setSoak(time.Second)
	s.Ready("b", second)
	s.progress(second, "all objects have revision")
}

// TestForgedReadinessOpensNoWave writes to the status of an object that is not Ready that it is.
func TestForgedReadinessOpensNoWave(t *testing.T) {
	t.Parallel()
	s := newHarness(t)
	s.wavedGate([]gatingv1.Wave{wave("canary")})
	first := s.fleet(map[string]string{"a": "canary", "b": ""})
	second := s.commitEach(map[string]string{"a": "bad", "b": "2"})
	s.RequestFetch("app")
	k := &kustomizev1.Kustomization{}
	s.NotReady(k, "a", "HealthCheckFailed", "")
	s.waitsAtGate("b", second, "until wave 'canary' is Ready")
	s.Stop()
	if err := s.Get(k, "a"); err != nil {
		t.Fatal(err)
	}
	reconcile.Mark(k, "Ready", metav1.ConditionTrue, "ReconciliationSucceeded", "by a tenant")
	now := meta.TimeOf(time.Now().Add(-time.Hour))
	k.Status.Admitted.ReadyAt, k.Status.Admitted.Failure = &now, nil
	s.writeStatus(&kustomizev1.Kustomization{}, "a", map[string]any{"conditions": k.Status.Conditions,
		"admitted": k.Status.Admitted, "lastAppliedRevision": "main@sha1:" + second})
	s.Start()
	s.Reconcile(&kustomizev1.Kustomization{}, "b")
	s.waitsAtGate("b", second, "until wave 'canary' is Ready")
	s.ConfigMapHas("b", "1")
	s.Ready("b", first)
}

func TestNewRevisionStartsWithTheFirstWave(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	s.wavedGate([]gatingv1.Wave{wave("canary"), wave("eu")})
	s.fleet(map[string]string{"a": "canary", "b": "eu", "c": ""})
	second := s.commitEach(map[string]string{"a": "2", "b": "bad", "c": "2"})
	s.RequestFetch("app")
	s.NotReady(&kustomizev1.Kustomization{}, "b", "HealthCheckFailed", "")
	s.Ready("a", second)
	s.waitsAtGate("c", second, "holds the last wave (objects that no wave selects) until wave 'eu' is Ready")
	s.setSoak(time.Hour)
	third := s.commitEach(map[string]string{"a": "3", "b": "3", "c": "3"})
	s.RequestFetch("app")
	s.Ready("a", third)
	s.waitsAtGate("b", third, ", when the soak of wave 'canary' ends")
	s.waitsAtGate("c", third, ", when the soak of wave 'canary' ends")
	s.ConfigMapHas("b", "bad")
	s.ConfigMapHas("c", "1")

	t.Log("an object that is created meanwhile waits for its wave")
	fourth := s.commitEach(map[string]string{"d": "4"})
	s.RequestFetch("app")
	s.Kustomization("d", "app", "d", inWave("eu"))
	s.waitsAtGate("d", fourth, "holds wave 'eu' until")
	s.Gone(&corev1.ConfigMap{}, "d")
	s.setSoak(time.Second)
	for _, name := range []string{"b", "c", "d"} {
		s.Ready(name, fourth)
	}
}

func TestMembersThatHoldAWave(t *testing.T) {
	t.Parallel()
	s := newHarness(t)
	s.Gate("freeze", func(g *gatingv1.Gate) { g.Spec.Default = gatingv1.Opened })
	s.TurnGate("freeze", gatingv1.Opened)
	s.wavedGate([]gatingv1.Wave{wave("canary"), wave("eu")})
	s.fleet(map[string]string{"a": "canary", "b": "eu", "c": ""})
	k := &kustomizev1.Kustomization{}
	s.Update(k, "a", func() { k.Spec.Suspend = true })
	s.Suspended(kustomizev1.KustomizationKind, "a")
	second := s.commitEach(map[string]string{"a": "2", "b": "2", "c": "2"})
	s.RequestFetch("app")
	remedy := "Kustomization '" + s.Namespace + "/a' is suspended. Resume it, or change its labels so that it " +
		"belongs to a later wave"
	s.progress(second, "waits: "+remedy)
	s.waitsAtGate("b", second, "holds wave 'eu' until wave 'canary' is Ready: "+remedy)

	t.Log("other labels move it to the last wave; another gate holds the next one")
	s.TurnGate("freeze", gatingv1.Closed)
	s.Update(k, "b", func() { k.Spec.Gates = append(k.Spec.Gates, meta.GateReference{Name: "freeze"}) })
	s.Update(k, "a", func() { k.Labels = nil })
	s.progress(second, "wave 'eu': 0 of 1 have revision 'main@sha1:"+second+"' and are Ready, waits: Kustomization '"+
		s.Namespace+"/b' waits: Reconciliation is waiting approval, gate '"+s.Namespace+"/freeze' is closed")
	s.waitsAtGate("b", second, "gate '"+s.Namespace+"/freeze' is closed")
	s.waitsAtGate("c", second, "until wave 'eu' is Ready")
	s.ConfigMapHas("c", "1")

	t.Log("a deleted object does not count")
	if err := s.Client.Delete(t.Context(), &kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.Namespace, Name: "b"}}); err != nil {
		t.Fatal(err)
	}
	s.Ready("c", second)
	s.Update(k, "a", func() { k.Spec.Suspend = false })
	s.Ready("a", second)
	s.progress(second, "all objects have revision")
}

func TestWavesWithFailures(t *testing.T) {
	t.Parallel()
	for name, onFailure := range map[string]gatingv1.OnFailure{"Hold": gatingv1.OnFailureHold,
		"Revert": gatingv1.OnFailureRevert} {
		t.Run(name, func(t *testing.T) {
			s := sharedHarness(t)
			s.wavedGate([]gatingv1.Wave{wave("canary")}, func(g *gatingv1.Gate) {
				g.Spec.OnFailure, g.Spec.Soak = onFailure, &meta.Duration{Duration: time.Hour}
			})
			first := s.fleet(map[string]string{"a": "canary", "b": ""})
			second := s.commitEach(map[string]string{"a": "bad", "b": "2"})
			s.RequestFetch("app")
			if onFailure == gatingv1.OnFailureRevert {
				s.reverted("a", second, first)
				s.ConfigMapHas("a", "1")
			} else {
				s.GateOpened("release", metav1.ConditionFalse, "/a' is unhealthy")
			}
			s.progress(second, "revision 'main@sha1:"+second+"' failed: Kustomization '"+s.Namespace+"/a' is unhealthy")
			s.waitsAtGate("b", second, "")
			s.ConfigMapHas("b", "1")

			t.Log("a fix goes through the waves")
			third := s.commitEach(map[string]string{"a": "3", "b": "3"})
			s.RequestFetch("app")
			if onFailure == gatingv1.OnFailureHold {
				s.AnnotateGate("release", map[string]any{
					gatingv1.OpenRequestedAtAnnotation: time.Now().UTC().Add(time.Second).Format(time.RFC3339Nano),
					gatingv1.OpenRevisionAnnotation:    "main@sha1:" + third})
			}
			s.Ready("a", third)
			s.Ready("b", third)
			s.progress(third, "all objects have revision")
		})
	}
}
