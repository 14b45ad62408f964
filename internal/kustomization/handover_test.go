package kustomization_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

func TestObjectsMoveBetweenKustomizations(t *testing.T) {
	t.Parallel()
	after := func(name string) func(*kustomizev1.Kustomization) {
		return func(k *kustomizev1.Kustomization) {
			k.Spec.DependsOn = []kustomizev1.DependencyReference{{NamespacedName: meta.NamespacedName{Name: name}}}
		}
	}
	alone := func(*kustomizev1.Kustomization) {}
	for name, c := range map[string]struct {
		giver, taker func(*kustomizev1.Kustomization)
	}{
		"the taker runs first": {giver: after("taker"), taker: alone},
		"the giver runs first": {giver: alone, taker: after("giver")},
		"in any order":         {giver: alone, taker: alone},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSteps(t)
			commit := s.Commit("app", map[string]string{"one/a.yaml": system.ConfigMap("a", "1"),
				"one/b.yaml": system.ConfigMap("b", "1"),
				"two/c.yaml": system.ConfigMap("c", "1")})
			s.apply("giver", "app", "one", c.giver)
			s.apply("taker", "app", "two", c.taker)
			s.follow()
			s.Ready("giver", commit)
			s.Ready("taker", commit)
			was := &corev1.ConfigMap{}
			if err := s.Get(was, "a"); err != nil {
				t.Fatal(err)
			}
			commit = s.rollOut("app", map[string]string{"one/a.yaml": "",
				"two/a.yaml": system.ConfigMap("a", "2")})
			s.Ready("giver", commit)
			s.Ready("taker", commit)
			checkMoved(t, s, was)

			t.Log("an object that no Kustomization declares is pruned, even if others cannot build the revision")
			files := map[string]string{"one/b.yaml": "", "one/d.yaml": system.ConfigMap("d", "1")}
			if name == "in any order" {
				files["two/c.yaml"] = "kind: ["
			}
			s.rollOut("app", files)
			s.Gone(&corev1.ConfigMap{}, "b")

			t.Log("deleting the previous owner keeps the object")
			s.removes("giver")
			s.Gone(&kustomizev1.Kustomization{}, "giver")
			s.Gone(&corev1.ConfigMap{}, "d")
			s.ConfigMapHas("a", "2")
		})
	}
}

func TestRenamedKustomizationKeepsObjects(t *testing.T) {
	t.Parallel()
	s := newSteps(t)
	commit := s.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1")})
	s.apply("before", "app", "")
	s.Ready("before", commit)
	was := &corev1.ConfigMap{}
	if err := s.Get(was, "a"); err != nil {
		t.Fatal(err)
	}
	s.apply("after", "app", "", func(k *kustomizev1.Kustomization) {
		k.Spec.DependsOn = []kustomizev1.DependencyReference{{NamespacedName: meta.NamespacedName{Name: "slow"}}}
	})
	s.removes("before")
	const waits = "waiting for Kustomization 'after' to adopt 1 object"
	s.NotReady(&kustomizev1.Kustomization{}, "before", "Progressing", waits)
	s.HasEvent("before", "Progressing", waits)
	for _, e := range s.system.EventsAbout("before") {
		if e.Type != corev1.EventTypeNormal {
			t.Errorf("the rename is reported as a problem: %s %s", e.Reason, e.Note)
		}
	}
	s.patch("after", `{"spec":{"dependsOn":null}}`)
	s.Ready("after", commit)
	s.follow()
	s.Gone(&kustomizev1.Kustomization{}, "before")
	is := &corev1.ConfigMap{}
	if err := s.Get(is, "a"); err != nil || is.UID != was.UID {
		t.Errorf("the object was recreated: %v", err)
	}
}

// checkMoved checks that the object was kept, and that its owner and the inventories changed.
func checkMoved(t *testing.T, s *steps, was *corev1.ConfigMap) {
	t.Helper()
	is := &corev1.ConfigMap{}
	if err := s.Get(is, "a"); err != nil {
		t.Fatal(err)
	}
	if is.UID != was.UID {
		t.Error("the object was recreated")
	}
	if owner := is.Labels["kustomize.toolkit.fluxcd.io/name"]; owner != "taker" || is.Data["k"] != "2" {
		t.Errorf("owner %s, data %v", owner, is.Data)
	}
	if giver, taker := s.inventory("giver"), s.inventory("taker"); strings.Contains(giver, "_a_") ||
		!strings.Contains(taker, "_a_") {
		t.Errorf("inventories %s and %s", giver, taker)
	}
}
