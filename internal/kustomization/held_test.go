package kustomization_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// deleteConfigMap deletes a ConfigMap.
func (s *harness) deleteConfigMap(name string) {
	s.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}}
	if err := s.Client.Delete(s.Context(), cm); err != nil {
		s.Fatal(err)
	}
}

func TestDriftIsCorrectedBehindClosedGate(t *testing.T) {
	t.Parallel()
	s := newHarness(t)
	s.Gate("release")
	s.TurnGate("release", gatingv1.Opened)
	first := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1"),
		"b.yaml": system.ConfigMap("b", "1")})
	s.GitRepository("app")
	s.Kustomization("app", "app", "", func(k *kustomizev1.Kustomization) { k.Spec.Gates = system.GateRefs("release") })
	s.Ready("app", first)
	s.TurnGate("release", gatingv1.Closed)

	t.Log("no change is pending")
	s.deleteConfigMap("b")
	s.ConfigMapHas("b", "1")
	s.HasEvent("app", "DriftCorrected", "ConfigMap/"+s.Namespace+"/b created")

	t.Log("a newer revision is pending: it is not applied, and drift is corrected to the old one")
	var last string
	for _, value := range []string{"2", "3", "4"} { // more than the store retains
		last = s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", value),
			"c.yaml": system.ConfigMap("c", value)})
		s.RequestFetch("app")
		s.WaitsFor("app", last)
	}
	s.deleteConfigMap("b")
	s.edit("kubectl-edit", &corev1.ConfigMap{}, "a", `{"data":{"k":"edited"}}`)
	s.ConfigMapHas("b", "1")
	s.ConfigMapHas("a", "1")

	t.Log("the old revision survives a restart")
	s.Stop()
	s.deleteConfigMap("b")
	s.Start()
	s.ConfigMapHas("b", "1")
	s.deleteConfigMap("b")
	s.ConfigMapHas("b", "1")
	s.ConfigMapHas("a", "1")
	if err := s.Get(&corev1.ConfigMap{}, "c"); !apierrors.IsNotFound(err) {
		t.Errorf("an object of the pending revision exists: %v", err)
	}
	s.Ready("app", first)

	t.Log("the opened gate lets the pending revision through")
	s.TurnGate("release", gatingv1.Opened)
	s.Ready("app", last)
	s.ConfigMapHas("a", "4")
}
