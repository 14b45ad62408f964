package kustomization_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

func TestApplyThatWaitsIsContinuedByLaterPasses(t *testing.T) {
	t.Parallel()
	immutable := func(value string) map[string]string {
		return map[string]string{"a.yaml": strings.TrimSpace(system.ConfigMap("a", value)) + "\nimmutable: true\n"}
	}
	s := newSteps(t)
	s.system.Clusters.Apply.WaitTimeout = passWaits
	commit := s.Commit("app", immutable("1"))
	s.apply("app", "app", "", func(k *kustomizev1.Kustomization) { k.Spec.Force = true })
	s.Ready("app", commit)
	s.edit("holder", &corev1.ConfigMap{}, "a", `{"metadata":{"finalizers":["sluice.test/hold"]}}`)

	commit = s.Commit("app", immutable("2"))
	s.Pass("app")
	k := &kustomizev1.Kustomization{}
	if err := s.Get(k, "app"); err != nil {
		t.Fatal(err)
	}
	c := apimeta.FindStatusCondition(k.Status.Conditions, "Ready")
	if c == nil || c.Status != metav1.ConditionUnknown || !strings.Contains(c.Message, "sluice.test/hold") {
		t.Fatalf("the apply does not wait for the deletion: %+v", c)
	}
	s.edit("holder", &corev1.ConfigMap{}, "a", `{"metadata":{"finalizers":null}}`)
	s.Pass("app")
	s.Ready("app", commit)
	s.ConfigMapHas("a", "2")
}
