package kustomization_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// TestRemoteBasesNeedAFlag applies bases at URLs of a git server and of a web server. A base that moves is applied at
// the next reconciliation, with the same revision of the source.
func TestRemoteBasesNeedAFlag(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(system.ConfigMap("web", "1")))
	}))
	t.Cleanup(web.Close)
	for name, allowed := range map[string]bool{"refused": false, "allowed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newHarness(t, func(o *options.Options) { o.NoRemoteBases = !allowed })
			base := map[string]string{"base/kustomization.yaml": "resources: [a.yaml]\n",
				"base/a.yaml": system.ConfigMap("base", "1")}
			s.Git.Commit("bases", base)
			commit := s.Git.Commit("app", map[string]string{
				"git/kustomization.yaml": "namePrefix: git-\n" +
					"resources: ['" + s.Git.URL + "/bases.git//base?ref=main']\n",
				"web/kustomization.yaml": "resources: ['" + web.URL + "/a.yaml']\nnamePrefix: http-\n"})
			s.GitRepository("app")
			for _, path := range []string{"git", "web"} {
				s.Kustomization(path, "app", path)
				if !allowed {
					s.NotReady(&kustomizev1.Kustomization{}, path, "BuildFailed", "--no-remote-bases=false")
				}
			}
			if !allowed {
				return
			}
			s.Ready("git", commit)
			s.Ready("web", commit)
			s.ConfigMapHas("git-base", "1")
			s.ConfigMapHas("http-web", "1")
			base["base/a.yaml"] = system.ConfigMap("base", "2")
			s.Git.Commit("bases", base)
			s.Reconcile(&kustomizev1.Kustomization{}, "git")
			s.ConfigMapHas("git-base", "2")
		})
	}
}
