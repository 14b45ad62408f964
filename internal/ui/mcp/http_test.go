package mcp_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/ui/incluster"
	"github.com/sluice-gitops/sluice/internal/ui/mcp"
)

// withToken is a transport that logs in with a token.
type withToken string

// RoundTrip implements [http.RoundTripper].
func (t withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(t))
	return http.DefaultTransport.RoundTrip(r)
}

// serve serves over HTTP with the login of the web UI, and returns the address.
func (s *site) serve() string {
	s.Helper()
	server := httptest.NewUnstartedServer(nil)
	external := &url.URL{Scheme: "http", Host: server.Listener.Addr().String()}
	o := incluster.Options{Config: s.config, Scheme: kubeclient.Scheme(), Mapper: s.client.RESTMapper(),
		TokenLogin: true}
	o.ExternalURL, o.Key, o.Log, o.Now = external, []byte(strings.Repeat("k", 32)), logr.Discard(), time.Now
	login, err := incluster.New(o)
	if err != nil {
		s.Fatal(err)
	}
	server.Config.Handler = s.server.Handler(mcp.HTTPOptions{Login: login, External: external,
		Issuer: "https://login.example.com"})
	server.Start()
	s.Cleanup(server.Close)
	return external.String()
}

// tenant returns the token of a ServiceAccount that may get and list Kustomizations of the namespace, and no more.
func (s *site) tenant() string {
	s.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "agent"}}
	s.create(account)
	s.create(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "agent"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"kustomize.toolkit.fluxcd.io"}, Resources: []string{"kustomizations"},
		Verbs: []string{"get", "list"}}}})
	s.create(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "agent"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "agent"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.namespace, Name: "agent"}}})
	request := &authenticationv1.TokenRequest{}
	if err := s.client.SubResource("token").Create(s.Context(), account, request); err != nil {
		s.Fatal(err)
	}
	return request.Status.Token
}

// TestRequestsAreMadeAsTheUser calls tools over HTTP as a tenant.
func TestRequestsAreMadeAsTheUser(t *testing.T) {
	s := newSite(t, writes, func(o *mcp.Options) { o.Local = nil })
	s.kustomization("web", "no file")
	other := s.kustomization("secretapp", "no file")
	other.ResourceVersion, other.UID, other.Namespace = "", "", "default"
	s.create(other)
	t.Cleanup(func() { _ = s.client.Delete(context.WithoutCancel(t.Context()), other) })
	s.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}})
	address := s.serve()
	c := s.session(&sdk.StreamableClientTransport{Endpoint: address + mcp.Path,
		HTTPClient: &http.Client{Transport: withToken(s.tenant())}})
	s.awaitObject(c, "web")
	testenv.Eventually(t, "the rights", func() error { // the API server's authorizer lags behind
		r, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "get_object", Arguments: map[string]any{
			"kind": "Kustomization", "namespace": s.namespace, "name": "web"}})
		if err == nil && r.IsError {
			err = r.GetError()
		}
		return err
	})
	if r := s.ok(c, "list_objects", map[string]any{"search": "secretapp", "namespace": "default"}); r["total"] != 0.0 {
		t.Errorf("a tenant sees %v", r)
	}
	object := map[string]any{"kind": "Kustomization", "namespace": "default", "name": "secretapp"}
	s.fails(c, "forbidden", "get_object", object)
	s.fails(c, "forbidden", "get_kubernetes_resources", map[string]any{"apiVersion": "v1", "kind": "Secret",
		"namespace": s.namespace})
	object["namespace"], object["name"] = s.namespace, "web"
	s.fails(c, "forbidden", "reconcile", object)
	if !strings.Contains(s.logged(), `"user"="system:serviceaccount:`+s.namespace+`:agent" "action"="reconcile"`) {
		t.Errorf("the log does not name the user: %s", s.logged())
	}
}

func TestRequestsNeedALogin(t *testing.T) {
	s := newSite(t, func(o *mcp.Options) { o.Local = nil })
	address := s.serve()
	const list = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`
	send := func(edit func(*http.Request)) (int, string, http.Header) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address+mcp.Path, strings.NewReader(list))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		edit(r)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body), resp.Header
	}
	token := s.tenant()
	login := func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
	for name, c := range map[string]struct {
		edit func(*http.Request)
		want int
	}{
		"no token":      {edit: func(*http.Request) {}, want: http.StatusUnauthorized},
		"another token": {edit: func(r *http.Request) { r.Header.Set("Authorization", "Bearer x") }, want: 401},
		"another host":  {edit: func(r *http.Request) { login(r); r.Host = "evil.example" }, want: 421},
		"another site": {edit: func(r *http.Request) {
			login(r)
			r.Header.Set("Sec-Fetch-Site", "cross-site")
		}, want: 403},
		"a login": {edit: login, want: http.StatusOK},
	} {
		status, body, header := send(c.edit)
		if status != c.want || strings.Contains(body, "why_not_live") != (c.want == http.StatusOK) {
			t.Errorf("%s: %d %s", name, status, body)
		}
		if c.want == 401 && !strings.Contains(header.Get("WWW-Authenticate"), "oauth-protected-resource") {
			t.Errorf("%s: %v", name, header)
		}
	}
	resp, err := http.Get(address + "/.well-known/oauth-protected-resource")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(body), "https://login.example.com") ||
		!strings.Contains(string(body), address+mcp.Path) {
		t.Errorf("%s (%v)", body, err)
	}
}
