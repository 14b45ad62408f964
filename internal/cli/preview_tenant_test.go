package cli

import (
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// TestPreviewOfOneNamespace previews with the rights of a tenant, who may read one namespace only.
func TestPreviewOfOneNamespace(t *testing.T) {
	c, namespace := withDefinitions(t)
	ruledFleet(t, c, namespace)
	name := metav1.ObjectMeta{Namespace: namespace, Name: "tenant"}
	role := &rbacv1.Role{ObjectMeta: name, Rules: []rbacv1.PolicyRule{{
		Verbs:     []string{"get", "list", "patch", "create"},
		APIGroups: []string{"", "kustomize.toolkit.fluxcd.io", "helm.toolkit.fluxcd.io", "source.toolkit.fluxcd.io"},
		Resources: []string{"*"}}}}
	binding := &rbacv1.RoleBinding{ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role",
		Name: "tenant"}, Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "jane"}}}
	if err := c.Create(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	testenv.AwaitRight(t, authorizationv1.SubjectAccessReviewSpec{User: "jane",
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "list",
			Group: "kustomize.toolkit.fluxcd.io", Resource: "kustomizations"}}, true)
	from, to := ruledChange(t)
	args := []string{"--from-dir", from, "--to-dir", to, "--source", "GitRepository/" + namespace + "/fleet", "--as",
		"jane"}
	r := at(t, append([]string{"preview", "-n", "default", "-o", "json"}, args...)...)
	for _, want := range []string{"you may list Kustomizations in namespace '" + namespace + "' only", "are hidden",
		`"kind": "ConfigMap"`, `"kind": "Service"`} {
		if !strings.Contains(r.out, want) {
			t.Errorf("the preview has no %q: %s%s", want, r.out, r.err)
		}
	}
	if i := strings.Index(r.out, `"kind": "Role"`); i < 0 || !strings.Contains(r.out[max(0, i-150):i], `"hidden"`) {
		t.Errorf("a Role, which the tenant may not read, is not hidden:\n%s", r.out)
	}
	at(t, "preview", "--from-dir", from, "--to-dir", to, "-n", namespace, "--as", "joe", "--source", "GitRepository/"+
		namespace+"/fleet").wants(t, exitUsage, "joe")
	gates := at(t, append([]string{"simulate", "gates", "--change"}, args...)...)
	if !strings.Contains(gates.err, "you may not list all gates") {
		t.Errorf("%s%s", gates.out, gates.err)
	}
}
