package kustomization_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

func TestObjectOfTwoKustomizations(t *testing.T) {
	t.Parallel()
	s := newSteps(t)
	s.Commit("app", map[string]string{"one/a.yaml": system.ConfigMap("a", "1"),
		"one/b.yaml": system.ConfigMap("b", "1"), "two/a.yaml": system.ConfigMap("a", "2")})
	s.apply("one", "app", "one")
	s.apply("two", "app", "two")
	s.follow()
	for _, name := range []string{"one", "two"} {
		s.Contended(&kustomizev1.Kustomization{}, name, "ConfigMap/"+s.Namespace+
			"/a is declared by both Kustomization '"+s.Namespace+"/one' and Kustomization '"+s.Namespace+
			"/two'; each apply overwrites the other")
		s.HasEvent(name, "SeveralOwners", "is declared by both")
	}

	t.Log("one of them no longer declares the object")
	commit := s.Commit("app", map[string]string{"one/a.yaml": ""})
	s.Pass("one")
	s.Pass("two")
	s.follow()
	for _, name := range []string{"one", "two"} {
		s.Ready(name, commit)
		s.Contended(&kustomizev1.Kustomization{}, name)
	}

	t.Log("one of them is deleted")
	s.Commit("app", map[string]string{"one/a.yaml": system.ConfigMap("a", "1")})
	s.Pass("one")
	s.Pass("two")
	s.follow()
	s.Contended(&kustomizev1.Kustomization{}, "two", "declared by both")
	s.removes("one")
	s.follow()
	s.Contended(&kustomizev1.Kustomization{}, "two")
}

// TestSharedObjectIsLeftToTheOther removes an object with the labels of one of two owners from that one.
func TestSharedObjectIsLeftToTheOther(t *testing.T) {
	t.Parallel()
	s := newSteps(t)
	s.Commit("app", map[string]string{"one/a.yaml": system.ConfigMap("a", "1"),
		"one/b.yaml": system.ConfigMap("b", "1"), "two/a.yaml": system.ConfigMap("a", "2"),
		"two/c.yaml": system.ConfigMap("c", "1")})
	keepsLabels := func(k *kustomizev1.Kustomization) {
		k.Spec.DriftDetection = &meta.DriftDetection{Mode: meta.DriftDisabled}
	}
	share := func(version string) {
		t.Helper()
		commit := s.Commit("app", map[string]string{"two/a.yaml": system.ConfigMap("a", version)})
		s.Pass("two")
		s.Ready("two", commit)
		commit = s.Commit("app", map[string]string{"one/a.yaml": system.ConfigMap("a", "1"),
			"one/b.yaml": system.ConfigMap("b", version)})
		s.Pass("one")
		s.Ready("one", commit)
		s.follow()
		s.Contended(&kustomizev1.Kustomization{}, "one", "declared by both")
	}
	s.apply("two", "app", "two", keepsLabels)
	s.apply("one", "app", "one", keepsLabels)
	share("2")
	was := &corev1.ConfigMap{}
	if err := s.Get(was, "a"); err != nil {
		t.Fatal(err)
	}
	kept := func() {
		t.Helper()
		is := &corev1.ConfigMap{}
		if err := s.Get(is, "a"); err != nil || is.UID != was.UID {
			t.Fatalf("the object was deleted: %v", err)
		}
	}

	t.Log("one no longer declares the object")
	commit := s.Commit("app", map[string]string{"one/a.yaml": ""})
	s.Pass("one")
	s.Ready("one", commit)
	kept()
	commit = s.Commit("app", map[string]string{"two/c.yaml": system.ConfigMap("c", "2")})
	s.Pass("two")
	s.Ready("two", commit)
	s.follow()
	if got := s.inventory("one"); strings.Contains(got, "_a_") {
		t.Errorf("one retains the object: %s", got)
	}
	kept()

	t.Log("none of them declares the object any longer")
	share("3")
	s.Commit("app", map[string]string{"one/a.yaml": "", "two/a.yaml": ""})
	s.Pass("one")
	s.Pass("two")
	s.follow()
	s.Gone(&corev1.ConfigMap{}, "a")

	t.Log("one is deleted")
	share("4")
	if err := s.Get(was, "a"); err != nil {
		t.Fatal(err)
	}
	s.removes("one")
	s.NotReady(&kustomizev1.Kustomization{}, "one", "Progressing", "waiting for Kustomization 'two' to adopt 1 object")
	s.Commit("app", map[string]string{"two/c.yaml": system.ConfigMap("c", "3")})
	s.Pass("two")
	s.follow()
	s.Gone(&kustomizev1.Kustomization{}, "one")
	kept()
}
