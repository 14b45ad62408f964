package hub_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/fleet"
	"github.com/sluice-gitops/sluice/internal/fleet/hub"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// TestControllerReports lets a controller report with a token that the API server signed, verified by the keys that the
// API server publishes. Reports read nothing from the API server.
func TestControllerReports(t *testing.T) {
	t.Parallel()
	clients, err := kubernetes.NewForConfig(testenv.Cluster(t))
	if err != nil {
		t.Fatal(err)
	}
	read := func(path string) []byte {
		t.Helper()
		b, err := clients.Discovery().RESTClient().Get().AbsPath(path).DoRaw(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	var issuer struct{ Issuer string }
	if err := json.Unmarshal(read("/.well-known/openid-configuration"), &issuer); err != nil {
		t.Fatal(err)
	}
	s := &hub.Server{Hub: &hub.Hub{Log: logr.Discard(), Now: time.Now, Epoch: "e",
		Registry: &hub.Registry{Now: time.Now,
			Egress: &egress.Policy{}}}}
	server := httptest.NewTLSServer(s.Handler())
	t.Cleanup(server.Close)
	token := filepath.Join(t.TempDir(), "token")
	h := system.Prepare(t, func(o *options.Options) {
		o.Report = options.ReportOptions{To: server.URL, As: "edge-7", CAFile: hub.CAFile(t, server), TokenFile: token,
			Labels: map[string]string{"region": "eu"}}
		o.Version = "v9"
	})
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "sluice", Namespace: h.Namespace}}
	if err := h.Client.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	request, err := clients.CoreV1().ServiceAccounts(h.Namespace).CreateToken(t.Context(), "sluice",
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{server.URL}}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(token, []byte(request.Status.Token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Hub.Registry.Set(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "edge-7",
		Labels: map[string]string{fleet.ClusterLabel: "edge-7"}}, Data: map[string][]byte{
		"issuer": []byte(issuer.Issuer), "jwks": read("/openid/v1/jwks"), "audience": []byte(server.URL),
		"subject": []byte("system:serviceaccount:" + h.Namespace + ":sluice")}})
	go func() { _ = s.Hub.Start(t.Context()) }()
	h.Start()
	await := func(what string, ok func(*fleet.Cluster) bool) {
		t.Helper()
		testenv.Eventually(t, what, func() error {
			c, err := s.Hub.Get(t.Context(), "edge-7")
			if err == nil && c.Summary != nil && ok(c) {
				return nil
			}
			return fmt.Errorf("the hub has %+v, %w", c, err)
		})
	}
	await("the start", func(c *fleet.Cluster) bool {
		return c.Summary.Version == "v9" && c.Labels["region"] == "eu"
	})
	h.Requests.Reset()
	ks := &kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{Name: "app", Namespace: h.Namespace}}
	ks.Spec.Suspend, ks.Spec.Interval.Duration, ks.Spec.Path = true, time.Hour, "./"
	ks.Spec.SourceRef.Kind, ks.Spec.SourceRef.Name = "GitRepository", "app"
	if err := h.Client.Create(t.Context(), ks); err != nil {
		t.Fatal(err)
	}
	await("a change", func(c *fleet.Cluster) bool {
		return c.Summary.Kinds["Kustomization"]["suspended"] == 1
	})
	for _, line := range h.Requests.Matching("GET ") {
		if !strings.Contains(line, "watch=") && !strings.Contains(line, "/leases/") {
			t.Errorf("the controllers sent %s", line)
		}
	}
}

// TestReaders asks the API server of the hub who may read.
func TestReaders(t *testing.T) {
	t.Parallel()
	cfg, namespace := testenv.Cluster(t), testenv.Namespace(t)
	clients, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	access, err := hub.NewAccess(cfg, "https://hub.example.com")
	if err != nil {
		t.Fatal(err)
	}
	token := func(account string, audiences ...string) string {
		t.Helper()
		accounts := clients.CoreV1().ServiceAccounts(namespace)
		if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}},
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		r, err := accounts.CreateToken(t.Context(), account, &authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return r.Status.Token
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: namespace}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{fleet.Group}, Resources: []string{fleet.Resource}, Verbs: []string{"get", "list"}}}}
	if _, err := clients.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: namespace}, RoleRef: rbacv1.RoleRef{
		APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: namespace}, Subjects: []rbacv1.Subject{
		{Kind: "ServiceAccount", Name: "viewer", Namespace: namespace},
		{Kind: "ServiceAccount", Name: "gate", Namespace: namespace},
		{Kind: "Group", APIGroup: rbacv1.GroupName, Name: namespace}}}
	_, err = clients.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	testenv.AwaitRight(t, authorizationv1.SubjectAccessReviewSpec{User: "alice", Groups: []string{namespace},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Group: fleet.Group, Resource: fleet.Resource,
			Verb: "list"}}, true)
	if err := access.MayRead(t.Context(), hub.Visitor{User: "alice", Groups: []string{namespace}}, ""); err != nil {
		t.Errorf("a user whose group may read: %v", err)
	}
	if err := access.MayRead(t.Context(), hub.Visitor{User: "alice"}, ""); err == nil ||
		!strings.Contains(err.Error(), "user 'alice' may not list clusters") {
		t.Errorf("the same user without the group: %v", err)
	}
	const another = "Send a token of the hub's cluster, such as that of kubectl create token"
	for name, test := range map[string]struct{ token, says string }{
		"no token":    {says: another},
		"garbage":     {token: "x", says: another},
		"other hub":   {token: token("other", "https://other.example.com"), says: "the token is not valid"},
		"no right":    {token: token("stranger"), says: "Ask for ClusterRole sluice-fleet-viewer"},
		"for the API": {token: token("viewer")},
		"for the hub": {token: token("gate", "https://hub.example.com")},
	} {
		for _, cluster := range []string{"", "edge-7"} {
			err := access.MayRead(t.Context(), hub.Visitor{Token: test.token}, cluster)
			if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("%s, cluster %q: want %q, got %v", name, cluster, test.says, err)
			}
		}
	}
}
