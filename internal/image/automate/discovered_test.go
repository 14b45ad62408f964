package automate_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/internal/image/discover/plan"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// Discovered image objects of an automated workload need neither a marker nor a binding.
func TestDiscoveredWorkloadIsUpdated(t *testing.T) {
	s := system.Prepare(t, system.ImageAutomation)
	of := func(namespace string) string {
		return strings.Replace(system.DeploymentWithImages("web", "nginx:1", "nginx:1", "redis:1"), "name: web\n",
			fmt.Sprintf("name: web\n  namespace: %s\n", namespace), 1)
	}
	s.Git.Commit("app", map[string]string{
		"base/web.yaml": system.DeploymentWithImages("web", "nginx:1", "nginx:1"), "mine/web.yaml": of(s.Namespace),
		"theirs/web.yaml": of("theirs"),
		"other/web.yaml":  system.DeploymentWithImages("web", "mirror/nginx:1"),
		"db/db.yaml":      system.DeploymentWithImages("db", "nginx:1"),
	})
	s.GitRepository("app")
	for name, labels := range map[string]map[string]string{"asked": {plan.Automated: "true"}, "view": nil,
		"lost": {plan.Automated: "true"}} {
		p := &imagev1.ImagePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name, Labels: labels,
			Annotations: map[string]string{
				plan.Of:        map[bool]string{true: "StatefulSet/none", false: "Deployment/web"}[name == "lost"],
				plan.Container: map[bool]string{true: "c1", false: "c0"}[name == "view"]}}}
		p.Spec.ImageRepositoryRef.Name, p.Spec.Policy.SemVer = "nginx", &imagev1.SemVerPolicy{Range: ">=1.0.0"}
		s.Create(p)
		s.ChooseImage(name, "nginx:2")
	}
	s.ImageUpdateAutomation("update", "app")
	s.Start() // the first pass sees all policies
	s.BranchHas("app", "main", "base/web.yaml", system.DeploymentWithImages("web", "nginx:2", "nginx:1"))
	s.BranchHas("app", "main", "mine/web.yaml", strings.Replace(of(s.Namespace), "nginx:1", "nginx:2", 1))
	for file, want := range map[string]string{"theirs/web.yaml": of("theirs"),
		"other/web.yaml": system.DeploymentWithImages("web", "mirror/nginx:1"),
		"db/db.yaml":     system.DeploymentWithImages("db", "nginx:1")} {
		if got := s.Git.Run("app", "show", "main:"+file) + "\n"; got != want {
			t.Errorf("%s:\n%s", file, got)
		}
	}
	a := s.ImageUpdateAutomationReady("update", metav1.ConditionTrue, "Succeeded",
		"no file has container 'c0' of StatefulSet 'none', which ImagePolicy 'lost' updates")
	if len(a.Status.ObservedPolicies) != 3 || s.CommitCount("app", "main") != 2 {
		t.Errorf("%d commits; %+v", s.CommitCount("app", "main"), a.Status)
	}
}
