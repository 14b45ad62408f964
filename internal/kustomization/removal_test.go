package kustomization_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// TestWorkloadsStayWhenTheNamespaceOfTheControllersIsDeleted deletes it while the controllers still run.
func TestWorkloadsStayWhenTheNamespaceOfTheControllersIsDeleted(t *testing.T) {
	t.Parallel()
	s := newHarness(t)
	target := testenv.Namespace(t)
	commit := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1")})
	s.GitRepository("app")
	s.Kustomization("app", "app", "", func(k *kustomizev1.Kustomization) {
		k.Spec.Prune, k.Spec.TargetNamespace = true, target
	})
	s.Ready("app", commit)
	own := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace}}
	if err := s.Client.Delete(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	s.Gone(&kustomizev1.Kustomization{}, "app")
	a := types.NamespacedName{Namespace: target, Name: "a"}
	if err := s.Client.Get(t.Context(), a, &corev1.ConfigMap{}); err != nil {
		t.Errorf("the object of the Kustomization: %v", err)
	}
}
