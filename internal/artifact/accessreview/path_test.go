package accessreview

import (
	"net/http"
	"net/http/httptest"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// accountTokens creates two service accounts, of which one may get /metrics, and returns their tokens.
func accountTokens(t *testing.T) (prometheus, tenant string) {
	t.Helper()
	c, err := kubernetes.NewForConfig(testenv.Cluster(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, create, namespace := t.Context(), metav1.CreateOptions{}, &corev1.Namespace{}
	namespace.GenerateName = "paths-"
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	namespace, err = c.CoreV1().Namespaces().Create(ctx, namespace, create)
	must(err)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: namespace.Name},
		Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics"}}}}
	_, err = c.RbacV1().ClusterRoles().Create(ctx, role, create)
	must(err)
	_, err = c.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: role.ObjectMeta,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace.Name, Name: "prometheus"}}}, create)
	must(err)
	testenv.AwaitRight(t, authorizationv1.SubjectAccessReviewSpec{
		User:                  "system:serviceaccount:" + namespace.Name + ":prometheus",
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: "get", Path: "/metrics"}}, true)
	var tokens []string
	for _, name := range []string{"prometheus", "tenant"} {
		accounts := c.CoreV1().ServiceAccounts(namespace.Name)
		_, err = accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, create)
		must(err)
		token, err := accounts.CreateToken(ctx, name, &authenticationv1.TokenRequest{}, create)
		must(err)
		tokens = append(tokens, token.Status.Token)
	}
	return tokens[0], tokens[1]
}

// TestPathsNeedTheRight asks a real API server for rights on a path, as RBAC grants them with nonResourceURLs.
func TestPathsNeedTheRight(t *testing.T) {
	prometheus, tenant := accountTokens(t)
	reviewer, err := New(testenv.Cluster(t), "")
	if err != nil {
		t.Fatal(err)
	}
	handler := reviewer.Paths(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("series"))
	}))
	for _, test := range []struct {
		name, authorization, path string
		status                    int
	}{
		{name: "who may", authorization: "Bearer " + prometheus, path: "/metrics", status: http.StatusOK},
		{name: "who may again", authorization: "Bearer " + prometheus, path: "/metrics", status: http.StatusOK},
		{name: "other path", authorization: "Bearer " + prometheus, path: "/other", status: http.StatusForbidden},
		{name: "who may not", authorization: "Bearer " + tenant, path: "/metrics", status: http.StatusForbidden},
		{name: "unknown token", authorization: "Bearer x", path: "/metrics", status: http.StatusUnauthorized},
		{name: "empty token", authorization: "Bearer ", path: "/metrics", status: http.StatusUnauthorized},
		{name: "no token", path: "/metrics", status: http.StatusUnauthorized},
		{name: "basic", authorization: "Basic " + prometheus, path: "/metrics", status: http.StatusUnauthorized},
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, test.path, nil)
		r.Header.Set("Authorization", test.authorization)
		handler.ServeHTTP(w, r)
		if w.Code != test.status || (w.Body.String() == "series") != (test.status == http.StatusOK) {
			t.Errorf("%s: status %d with %q, want %d", test.name, w.Code, w.Body, test.status)
		}
	}
}
