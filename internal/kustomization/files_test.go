package kustomization_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// TestSymlinksAreNotFollowed has a symlink to a file, as the path, and to nothing. By default none of them is part of
// the artifact, as in Flux.
func TestSymlinksAreNotFollowed(t *testing.T) {
	t.Parallel()
	files := map[string]string{"ks/own.yaml": system.ConfigMap("own", "1"),
		"real/a.yaml": system.ConfigMap("a", "1"), "real/sub/b.yaml": system.ConfigMap("b", "1"),
		"ks/a.yaml": testenv.Symlink("../real/a.yaml"),
		"linked":    testenv.Symlink("real"), "dangling/own.yaml": system.ConfigMap("beside", "1"),
		"dangling/gone.yaml": testenv.Symlink("nowhere")}
	for name, follow := range map[string]bool{"default": false, "feature gate": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newHarness(t, func(o *options.Options) {
				if follow {
					o.FeatureGates = map[string]string{"FollowSymlinks": "true"}
				}
			})
			commit := s.Git.Commit("app", files)
			s.GitRepository("app")
			for _, path := range []string{"ks", "linked", "dangling"} {
				s.Kustomization(path, "app", path,
					func(k *kustomizev1.Kustomization) { k.Spec.NamePrefix = path + "-" })
			}
			s.Ready("ks", commit)
			s.ConfigMapHas("ks-own", "1")
			if follow {
				s.Ready("linked", commit)
				s.NotReady(&kustomizev1.Kustomization{}, "dangling", "BuildFailed", "nowhere")
			} else {
				s.NotReady(&kustomizev1.Kustomization{}, "linked", "ArtifactFailed", "linked")
				s.Ready("dangling", commit)
				s.ConfigMapHas("dangling-beside", "1")
			}
			for _, object := range []string{"ks-a", "linked-a", "linked-b"} {
				err := s.Get(&corev1.ConfigMap{}, object)
				if follow && err != nil || !follow && !apierrors.IsNotFound(err) {
					t.Errorf("%s: %v", object, err)
				}
			}
		})
	}
}

// TestNamesThatDifferInCase applies all files of a repository that a file system without cases could not hold.
func TestNamesThatDifferInCase(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	commit := s.Git.Commit("app", map[string]string{"README": "1", "readme": "2",
		"app/web/a.yaml": system.ConfigMap("lower", "1"), "app/Web/a.yaml": system.ConfigMap("upper", "1"),
		"app/web/A.yaml": system.ConfigMap("file", "1")})
	s.GitRepository("app")
	s.Kustomization("all", "app", "app")
	s.Ready("all", commit)
	for _, name := range []string{"lower", "upper", "file"} {
		s.ConfigMapHas(name, "1")
	}
	s.HasEvent("app", sourcev1.NamesDifferInCaseReason, "differ only in case", `"readme" and "README"`)
}
