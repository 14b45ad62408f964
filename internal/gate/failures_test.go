package gate_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// behind makes a Kustomization refer to gates, and wait for the health of its objects: a ConfigMap with the value bad
// is unhealthy, unless a person adds the key fixed.
func behind(gates ...string) func(*kustomizev1.Kustomization) {
	return func(k *kustomizev1.Kustomization) {
		system.WaitForHealth(system.NoTimeout)(k)
		k.Spec.Gates = system.GateRefs(gates...)
		k.Spec.HealthCheckExprs = []meta.HealthCheckExpr{{APIVersion: "v1", Kind: "ConfigMap",
			Current: "data.k != 'bad' || has(data.fixed)", Failed: "data.k == 'bad' && !has(data.fixed)"}}
	}
}

// repair adds the key fixed to a ConfigMap, as a person would.
func (s *harness) repair(name string) {
	s.Helper()
	s.mergeConfigMap(name, `{"data":{"fixed":"yes"}}`)
}

func (s *harness) mergeConfigMap(name, patch string) {
	s.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}}
	if err := s.Client.Patch(s.Context(), cm, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		s.Fatal(err)
	}
}

func TestFailureClosesGate(t *testing.T) {
	t.Parallel()
	s := newHarness(t)
	s.WatchingGate("release", gatingv1.OnFailureHold)
	first := s.Git.Commit("app", map[string]string{"app/a.yaml": system.ConfigMap("a", "1"),
		"other/b.yaml": system.ConfigMap("b", "1")})
	s.GitRepository("app")
	s.Kustomization("app", "app", "app", behind("release"))
	s.Kustomization("other", "app", "other", behind("release"))
	s.Ready("app", first)
	s.Ready("other", first)

	t.Log("a failed build closes nothing: nothing was applied")
	broken := s.Git.Commit("app", map[string]string{"app/a.yaml": "no: [yaml"})
	s.RequestFetch("app")
	s.NotReady(&kustomizev1.Kustomization{}, "app", "BuildFailed", "")
	s.Ready("other", broken)

	t.Log("an unhealthy object closes the gate for all")
	second := s.Git.Commit("app", map[string]string{"app/a.yaml": system.ConfigMap("a", "bad")})
	s.RequestFetch("app")
	s.NotReady(&kustomizev1.Kustomization{}, "app", "HealthCheckFailed", "ConfigMap/"+s.Namespace+"/a Failed")
	g := s.GateOpened("release", metav1.ConditionFalse, "Kustomization '"+s.Namespace+"/app' is unhealthy")
	if f := g.Status.Failures; len(f) != 1 || !strings.HasSuffix(f[0].Revision, second) ||
		g.Status.Why.Reason != gatingv1.WhyRevisionFailed || !strings.Contains(g.Status.Why.Message, "/a Failed") {
		t.Errorf("failures are %+v, why %+v", f, g.Status.Why)
	}
	s.HasEvent("release", "GateClosed", second)

	t.Log("a newer revision waits, also after a restart")
	third := s.Git.Commit("app", map[string]string{"app/a.yaml": system.ConfigMap("a", "3"),
		"other/b.yaml": system.ConfigMap("b", "3")})
	s.RequestFetch("app")
	s.pending("other", third, 0, 1, 0)
	s.Stop()
	s.Start()
	s.RequestFetch("app")
	s.pending("other", third, 0, 1, 0)
	s.GateOpened("release", metav1.ConditionFalse, "is unhealthy")
	s.ConfigMapHas("b", "1")
	s.ConfigMapHas("a", "bad")

	t.Log("it passes by its name, and what is healthy then opens the gate")
	s.AnnotateGate("release", map[string]any{
		gatingv1.OpenRequestedAtAnnotation: time.Now().UTC().Format(time.RFC3339Nano),
		gatingv1.OpenRevisionAnnotation:    "main@sha1:" + third})
	s.Ready("app", third)
	s.Ready("other", third)
	s.AnnotateGate("release", map[string]any{gatingv1.OpenRequestedAtAnnotation: nil,
		gatingv1.OpenRevisionAnnotation: nil})
	if g := s.GateOpened("release", metav1.ConditionTrue, "Gate opened by default"); len(g.Status.Failures) > 0 {
		t.Errorf("failures are %+v", g.Status.Failures)
	}
}

func TestRecoveredObjectOpensGate(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	s.WatchingGate("release", gatingv1.OnFailureHold)
	commit := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "bad")})
	s.GitRepository("app")
	s.Kustomization("app", "app", "", behind("release"))
	s.NotReady(&kustomizev1.Kustomization{}, "app", "HealthCheckFailed", "/a Failed")
	s.GateOpened("release", metav1.ConditionFalse, "is unhealthy")
	s.says(&kustomizev1.Kustomization{}, "app", "Approved", metav1.ConditionTrue, "GateOpen",
		"Reconciliation is approved.") // nothing waits

	t.Log("a person makes it healthy, and the gate opens")
	s.repair("a")
	s.Ready("app", commit)
	s.GateOpened("release", metav1.ConditionTrue, "Gate opened by default")

	t.Log("it becomes unhealthy again within the soak time; someone opens the gate in spite of it")
	s.mergeConfigMap("a", `{"data":{"fixed":null}}`)
	s.GateOpened("release", metav1.ConditionFalse, "is unhealthy")
	s.TurnGate("release", gatingv1.Opened)

	t.Log("a deleted object counts no more")
	s.AnnotateGate("release", map[string]any{gatingv1.OpenRequestedAtAnnotation: nil})
	s.GateOpened("release", metav1.ConditionFalse, "is unhealthy")
	k := &kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "app"}}
	if err := s.Client.Delete(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	s.GateOpened("release", metav1.ConditionTrue, "Gate opened by default")
}
