package helmrelease_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

func TestObjectOfAHelmReleaseAndAKustomization(t *testing.T) {
	t.Parallel()
	h := sharedHarness(t)
	h.publish("1.0.0", nil)
	h.release("app")
	h.ready("app", 1)
	h.Git.Commit("repo", map[string]string{"a.yaml": system.ConfigMap("app-config", "blue"),
		"b.yaml": system.ConfigMap("other", "1")})
	h.GitRepository("repo")
	h.Kustomization("apps", "repo", "")
	const want = "is declared by both HelmRelease '"
	h.Contended(&helmv2.HelmRelease{}, "app", "ConfigMap/"+h.Namespace+"/app-config "+want+h.Namespace+
		"/app' and Kustomization '"+h.Namespace+"/apps'; each apply overwrites the other")
	h.Contended(&kustomizev1.Kustomization{}, "apps", want)
	h.HasEvent("app", "SeveralOwners", want)

	was := &corev1.ConfigMap{}
	if err := h.Get(was, "app-config"); err != nil {
		t.Fatal(err)
	}

	t.Log("the Kustomization no longer declares the object")
	h.Git.Commit("repo", map[string]string{"a.yaml": ""})
	h.RequestFetch("repo")
	h.Contended(&helmv2.HelmRelease{}, "app")
	h.Contended(&kustomizev1.Kustomization{}, "apps")
	is := &corev1.ConfigMap{}
	if err := h.Get(is, "app-config"); err != nil || is.UID != was.UID {
		t.Errorf("the object of the release was deleted: %v", err)
	}
}
