package helmrelease_test

import (
	"testing"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

func TestObjectOfAHelmReleaseAndAKustomization(t *testing.T) {
	h := newHarness(t)
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

	t.Log("the Kustomization no longer declares the object")
	h.Git.Commit("repo", map[string]string{"a.yaml": ""})
	h.RequestFetch("repo")
	h.Contended(&helmv2.HelmRelease{}, "app")
	h.Contended(&kustomizev1.Kustomization{}, "apps")
}
