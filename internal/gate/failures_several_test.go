package gate_test

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// isBack waits until a Kustomization has a commit that it went back to because of one of the gates.
func (s *harness) isBack(name, to string, gates ...string) {
	s.Helper()
	k := s.Ready(name, to)
	testenv.Eventually(s, name+" says that it went back", func() error {
		if err := s.Get(k, name); err != nil {
			return err
		}
		for _, g := range gates {
			if r := k.Status.Reverted; r != nil && r.Gate == s.Namespace+"/"+g {
				return nil
			}
		}
		return fmt.Errorf("%+v", k.Status.Reverted)
	})
}

// appStays requests a reconcile of the Kustomization app, and waits until a commit waits for a gate, as a text says.
// What it applied before stays.
func (s *harness) appStays(commit, text string) {
	s.Helper()
	s.Reconcile(&kustomizev1.Kustomization{}, "app")
	s.waitsAtGate("app", commit, text)
	s.ConfigMapHas("a", "1")
}

// nameRevision opens a gate for a revision by its name.
func (s *harness) nameRevision(gate, commit string) {
	s.Helper()
	s.AnnotateGate(gate, map[string]any{
		gatingv1.OpenRequestedAtAnnotation: time.Now().UTC().Add(time.Second).Format(time.RFC3339Nano),
		gatingv1.OpenRevisionAnnotation:    "main@sha1:" + commit})
}

func TestSeveralGatesWatchAnObject(t *testing.T) {
	t.Parallel()
	for name, second := range map[string]gatingv1.OnFailure{"Hold and Revert": gatingv1.OnFailureHold,
		"Revert twice": gatingv1.OnFailureRevert} {
		t.Run(name, func(t *testing.T) {
			s := sharedHarness(t)
			s.WatchingGate("release", gatingv1.OnFailureRevert)
			s.WatchingGate("other", second)
			healthy := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1")})
			s.GitRepository("app")
			s.Kustomization("app", "app", "", behind("other", "release"))
			s.Ready("app", healthy)
			failed := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "bad")})
			s.RequestFetch("app")
			s.isBack("app", healthy, "release", "other")
			s.ConfigMapHas("a", "1")

			t.Log("both gates open, and each that reverts refuses the failed revision until it is named there")
			s.GateOpened("release", metav1.ConditionTrue, "except for revision 'main@sha1:"+failed)
			if second == gatingv1.OnFailureRevert {
				s.GateOpened("other", metav1.ConditionTrue, "except for revision 'main@sha1:"+failed)
				s.nameRevision("other", failed)
				s.GateOpened("other", metav1.ConditionTrue, "Gate open requested")
				s.appStays(failed, "gate '"+s.Namespace+"/release' refuses revision 'main@sha1:"+failed)
			} else if g := s.GateOpened("other", metav1.ConditionTrue, "opened"); len(g.Status.Failures) > 0 {
				t.Errorf("failures are %+v", g.Status.Failures)
			}
			s.repair("a") // before it comes again
			s.nameRevision("release", failed)
			s.Ready("app", failed)
			s.ConfigMapHas("a", "bad")
		})
	}
}

func TestFailureOfAChangeThatRulesLetThrough(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	s.Create(&gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "release"},
		Spec: gatingv1.GateSpec{Default: gatingv1.Closed, OnFailure: gatingv1.OnFailureRevert,
			Soak: &meta.Duration{Duration: time.Hour}, Rules: []gatingv1.Rule{
				{Name: "deletions", Expression: "change.deleted.size() > 0", Outcome: gatingv1.OutcomeDeny},
				{Name: "rest", Expression: "true", Outcome: gatingv1.OutcomePass}}}})
	s.GateOpened("release", metav1.ConditionFalse, "Gate closed by default")
	healthy := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1"),
		"b.yaml": system.ConfigMap("b", "1")})
	s.GitRepository("app")
	s.Kustomization("app", "app", "", behind("release"))
	s.Ready("app", healthy)

	t.Log("a rule lets the change through, it fails, and no rule lets the revision through again")
	failed := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "bad")})
	s.RequestFetch("app")
	s.isBack("app", healthy, "release")
	s.appStays(failed, "refuses revision 'main@sha1:"+failed)

	t.Log("rules decide about the next one: it is denied, and the one after that passes")
	denied := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "2"), "b.yaml": ""})
	s.RequestFetch("app")
	s.appStays(denied, "denies the change by rule 'deletions'")
	passes := s.Git.Commit("app", map[string]string{"b.yaml": system.ConfigMap("b", "2")})
	s.RequestFetch("app")
	if k := s.Ready("app", passes); k.Status.Reverted != nil {
		t.Errorf("status.reverted is %+v", k.Status.Reverted)
	}
	s.ConfigMapHas("b", "2")
}

func TestGateIsDeletedDuringRevert(t *testing.T) {
	t.Parallel()
	s := newHarness(t)
	s.WatchingGate("release", gatingv1.OnFailureRevert)
	healthy := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1")})
	s.GitRepository("app")
	s.Kustomization("app", "app", "", behind("release"))
	s.Ready("app", healthy)
	failed := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "bad")})
	s.RequestFetch("app")
	k := &kustomizev1.Kustomization{}
	testenv.Eventually(t, "it begins to go back", func() error {
		if err := s.Get(k, "app"); err != nil || k.Status.Reverted == nil {
			return fmt.Errorf("%+v (%w)", k.Status.Conditions, err)
		}
		return nil
	})
	s.Stop()
	s.deleteGate()
	s.mergeConfigMap("a", `{"data":{"k":"bad"}}`) // as if the process had been stopped before it wrote
	s.Start()
	s.ConfigMapHas("a", "1")
	s.appStays(failed, "gate '"+s.Namespace+"/release' is not found")

	t.Log("without a reference to the gate it applies what its source has")
	s.Update(k, "app", func() { k.Spec.Gates = nil })
	s.ConfigMapHas("a", "bad")
	s.repair("a")
	if k := s.Ready("app", failed); k.Status.Reverted != nil {
		t.Errorf("status.reverted is %+v", k.Status.Reverted)
	}
}

func TestGateIsDeletedBetweenWaves(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	create := func(change ...func(*gatingv1.Gate)) {
		s.Gone(&gatingv1.Gate{}, "release")
		s.wavedGate([]gatingv1.Wave{wave("canary", soak(time.Hour))}, change...)
	}
	s.wavedGate([]gatingv1.Wave{wave("canary")})
	s.fleet(map[string]string{"a": "canary", "b": ""})
	s.setSoak(time.Hour)
	second := s.commitEach(map[string]string{"a": "2", "b": "2"})
	s.RequestFetch("app")
	s.Ready("a", second)
	s.waitsAtGate("b", second, "when the soak of wave 'canary' ends")
	s.deleteGate()
	s.stays("b", "1", second, "gate '"+s.Namespace+"/release' is not found")
	s.mergeConfigMap("b", `{"data":{"k":"drifted"}}`)
	s.ConfigMapHas("b", "1")

	t.Log("another gate with the name starts the soak again; one that selects releases what it held")
	create()
	s.waitsAtGate("b", second, "when the soak of wave 'canary' ends")
	s.deleteGate()
	create(func(g *gatingv1.Gate) { g.Spec.Selector = &gatingv1.Selector{} })
	k := &kustomizev1.Kustomization{}
	s.Update(k, "b", func() { k.Spec.Gates = nil })
	s.waitsAtGate("b", second, "when the soak of wave 'canary' ends")
	s.ConfigMapHas("b", "1")
	s.deleteGate()
	s.Ready("b", second)
	s.ConfigMapHas("b", "2")
}

// deleteGate deletes the gate release.
func (s *harness) deleteGate() {
	s.Helper()
	g := &gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "release"}}
	if err := s.Client.Delete(s.Context(), g); err != nil {
		s.Fatal(err)
	}
}
