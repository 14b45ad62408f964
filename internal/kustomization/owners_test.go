package kustomization_test

import (
	"testing"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

func TestObjectOfTwoKustomizations(t *testing.T) {
	s := newHarness(t)
	s.Git.Commit("app", map[string]string{"one/a.yaml": system.ConfigMap("a", "1"),
		"one/b.yaml": system.ConfigMap("b", "1"), "two/a.yaml": system.ConfigMap("a", "2")})
	s.GitRepository("app")
	s.Kustomization("one", "app", "one")
	s.Kustomization("two", "app", "two")
	for _, name := range []string{"one", "two"} {
		s.Contended(&kustomizev1.Kustomization{}, name, "ConfigMap/"+s.Namespace+
			"/a is declared by both Kustomization '"+s.Namespace+"/one' and Kustomization '"+s.Namespace+
			"/two'; each apply overwrites the other")
		s.HasEvent(name, "SeveralOwners", "is declared by both")
	}

	t.Log("one of them no longer declares the object")
	commit := s.Git.Commit("app", map[string]string{"one/a.yaml": ""})
	s.RequestFetch("app")
	for _, name := range []string{"one", "two"} {
		s.Ready(name, commit)
		s.Contended(&kustomizev1.Kustomization{}, name)
	}

	t.Log("one of them is deleted")
	s.Git.Commit("app", map[string]string{"one/a.yaml": system.ConfigMap("a", "1")})
	s.RequestFetch("app")
	s.Contended(&kustomizev1.Kustomization{}, "two", "declared by both")
	k := &kustomizev1.Kustomization{}
	if err := s.Get(k, "one"); err != nil {
		t.Fatal(err)
	}
	if err := s.Client.Delete(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	s.Contended(&kustomizev1.Kustomization{}, "two")
}
