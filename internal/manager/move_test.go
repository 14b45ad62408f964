package manager

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

func TestObjectsMoveBetweenKustomizations(t *testing.T) {
	after := func(name string) func(*kustomizev1.Kustomization) {
		return func(k *kustomizev1.Kustomization) {
			k.Spec.DependsOn = []kustomizev1.DependencyReference{{NamespacedName: meta.NamespacedName{Name: name}}}
		}
	}
	alone := func(*kustomizev1.Kustomization) {}
	for name, c := range map[string]struct {
		giver, taker func(*kustomizev1.Kustomization)
	}{
		"the taker runs first": {after("taker"), alone},
		"the giver runs first": {alone, after("giver")},
		"in any order":         {alone, alone},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSystem(t)
			commit := s.git.Commit("app", map[string]string{"one/a.yaml": cm("a", "1"), "one/b.yaml": cm("b", "1"),
				"two/c.yaml": cm("c", "1")})
			s.source("app")
			s.sync("giver", "app", "one", c.giver)
			s.sync("taker", "app", "two", c.taker)
			s.ready("giver", commit)
			s.ready("taker", commit)
			was := &corev1.ConfigMap{}
			if err := s.get(was, "a"); err != nil {
				t.Fatal(err)
			}
			commit = s.git.Commit("app", map[string]string{"one/a.yaml": "", "two/a.yaml": cm("a", "2")})
			s.pull("app")
			s.ready("giver", commit)
			s.ready("taker", commit)
			is := &corev1.ConfigMap{}
			if err := s.get(is, "a"); err != nil {
				t.Fatal(err)
			}
			if is.UID != was.UID {
				t.Error("it was deleted on its way")
			}
			if owner := is.Labels["kustomize.toolkit.fluxcd.io/name"]; owner != "taker" || is.Data["k"] != "2" {
				t.Errorf("it belongs to %s, and holds %v", owner, is.Data)
			}
			testenv.Eventually(t, "the inventories", func() error {
				if giver, taker := s.inventory("giver"), s.inventory("taker"); strings.Contains(giver, "_a_") ||
					!strings.Contains(taker, "_a_") {
					return fmt.Errorf("%s and %s", giver, taker)
				}
				return nil
			})

			t.Log("what goes for good is pruned, although others cannot come to the revision")
			files := map[string]string{"one/b.yaml": "", "one/d.yaml": cm("d", "1")}
			if name == "in any order" {
				files["two/c.yaml"] = "kind: ["
			}
			s.git.Commit("app", files)
			s.pull("app")
			s.gone(&corev1.ConfigMap{}, "b")

			t.Log("deleting the one that had it leaves it")
			s.remove(&kustomizev1.Kustomization{}, "giver")
			s.gone(&kustomizev1.Kustomization{}, "giver")
			s.gone(&corev1.ConfigMap{}, "d")
			s.configMap("a", "2")
		})
	}
}
