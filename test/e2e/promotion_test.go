package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// TestExampleOfPromotion applies examples/promotion with a soak of two seconds: production takes what staging has been
// Ready at, and never what has failed there. What fails in production only is taken back.
func TestExampleOfPromotion(t *testing.T) {
	t.Parallel()
	s := system.New(t)
	files := map[string]string{}
	for _, name := range []string{"staging/app.yaml", "production/app.yaml"} {
		files[name] = strings.ReplaceAll(exampleFile(t, name), `version: "1"`, `k: "1"`)
	}
	first := s.Git.Commit("fleet", files)
	s.GitRepository("fleet")
	for _, name := range []string{"rights", "gates", "staging", "production"} {
		for document := range strings.SplitSeq(exampleFile(t, "cluster/"+name+".yaml"), "\n---\n") {
			s.Create(exampleObject(t, document, s.Namespace))
		}
	}
	s.Ready("app-staging", first)
	s.Ready("app-production", first)
	g := &gatingv1.Gate{}
	if err := s.Get(g, "production"); err != nil {
		t.Fatal(err)
	}
	o := g.Status.Checks[0].Revision
	if o == nil || o.PromotedAt == nil || o.PromotedAt.Sub(o.Since.Time).Seconds() < 1 {
		t.Errorf("the gate has promoted %+v", o)
	}

	t.Log("a commit that fails in staging does not go on")
	files["staging/app.yaml"] = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: app-staging}\ndata: [no map]\n"
	files["production/app.yaml"] = system.ConfigMap("app-production", "2")
	second := s.Git.Commit("fleet", files)
	s.RequestFetch("fleet")
	testenv.Eventually(t, "production waits", func() error {
		k := &kustomizev1.Kustomization{}
		if err := s.Get(k, "app-production"); err != nil {
			return err
		}
		c := apimeta.FindStatusCondition(k.Status.Conditions, meta.ApprovedCondition)
		if c == nil || !strings.Contains(c.Message, "app-staging' is not Ready at revision 'main@sha1:"+second) ||
			!strings.HasSuffix(k.Status.LastAppliedRevision, first) {
			return fmt.Errorf("%s %+v", k.Status.LastAppliedRevision, c)
		}
		return nil
	})

	t.Log("the next one does")
	files["staging/app.yaml"] = system.ConfigMap("app-staging", "3")
	files["production/app.yaml"] = system.ConfigMap("app-production", "3")
	third := s.Git.Commit("fleet", files)
	s.RequestFetch("fleet")
	s.Ready("app-production", third)
	s.ConfigMapHas("app-production", "3")
	takesBack(t, s, files, third)
}

// takesBack commits what fails in production only, and then a fix.
func takesBack(t *testing.T, s *system.System, files map[string]string, third string) {
	t.Helper()
	t.Log("a commit that fails in production only is taken back")
	files["staging/app.yaml"] = system.ConfigMap("app-staging", "4")
	files["production/app.yaml"] = system.ConfigMap("app-production", "4")
	// it ends as failed by its own deadline, which does not bound what is healthy
	files["production/web.yaml"] = strings.Replace(system.WebDeployment("web:4", "not-ready"), "spec:\n",
		"spec:\n  progressDeadlineSeconds: 3\n", 1)
	fourth := s.Git.Commit("fleet", files)
	s.RequestFetch("fleet")
	isReverted(s, "app-production", fourth, third)
	s.ConfigMapHas("app-production", "3")
	s.Gone(&appsv1.Deployment{}, "web")
	s.Ready("app-staging", fourth)

	t.Log("a fix passes as every commit")
	files["production/web.yaml"] = system.WebDeployment("web:5", "")
	fifth := s.Git.Commit("fleet", files)
	s.RequestFetch("fleet")
	s.Ready("app-production", fifth)
	s.ConfigMapHas("app-production", "4")
}

// isReverted waits until a Kustomization went back from a revision to another one.
func isReverted(s *system.System, name, from, to string) {
	s.Helper()
	testenv.Eventually(s, name+" goes back", func() error {
		k := &kustomizev1.Kustomization{}
		if err := s.Get(k, name); err != nil {
			return err
		}
		if r := k.Status.Reverted; r == nil || !strings.HasSuffix(r.From, from) || !strings.HasSuffix(r.To, to) {
			return fmt.Errorf("%+v %+v", r, k.Status.Conditions)
		}
		return nil
	})
}

// exampleFile returns a file of examples/promotion.
func exampleFile(t *testing.T, name string) string {
	t.Helper()
	root, err := testenv.Root()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(root, "examples", "promotion", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// exampleObject returns an object of the example for a namespace, with a short soak.
func exampleObject(t *testing.T, document, namespace string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	content := strings.ReplaceAll(document, "soak: 2h", "soak: 2s")
	if err := yaml.UnmarshalStrict([]byte(content), &o.Object); err != nil {
		t.Fatal(err)
	}
	o.SetNamespace(namespace)
	if o.GetKind() == kustomizev1.KustomizationKind {
		if err := unstructured.SetNestedField(o.Object, namespace, "spec", "targetNamespace"); err != nil {
			t.Fatal(err)
		}
	}
	if o.GetKind() == "RoleBinding" {
		subjects := []any{map[string]any{"kind": "ServiceAccount", "name": "gate-production", "namespace": namespace}}
		if err := unstructured.SetNestedSlice(o.Object, subjects, "subjects"); err != nil {
			t.Fatal(err)
		}
	}
	return o
}
