package kustomization

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/fault"
)

// configMaps is a cluster that holds ConfigMaps of the namespace team.
type configMaps map[string]map[string]string

func (c configMaps) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	data, found := c[key.Name]
	if cm, ok := into.(*corev1.ConfigMap); ok && found && key.Namespace == "team" {
		cm.Data = data
		return nil
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, key.Name)
}

func (configMaps) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("nothing is listed")
}

// apiServer is the API server of another cluster, and notes the tokens that it sees.
func apiServer(t *testing.T) (server *httptest.Server, ca string, tokens *[]string) {
	t.Helper()
	tokens = &[]string{}
	server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*tokens = append(*tokens, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		if strings.Contains(r.Header.Get("Authorization"), "revoked") {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	t.Cleanup(server.Close)
	return server, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})), tokens
}

func via(name string) *kustomizev1.Kustomization {
	return &kustomizev1.Kustomization{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "app"},
		Spec: kustomizev1.KustomizationSpec{
			KubeConfig: &kustomizev1.KubeConfigReference{ConfigMapRef: &meta.LocalObjectReference{Name: name}}},
	}
}

// visit asks the API server that a Kustomization leads to.
func visit(t *testing.T, a *access) {
	t.Helper()
	if err := a.login(t.Context()); err != nil {
		t.Fatal(err)
	}
	c, err := rest.HTTPClientFor(a.config)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Get(a.config.Host + "/version")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
}

func TestTokensOfServiceAccountsForOtherClusters(t *testing.T) {
	server, ca, tokens := apiServer(t)
	life, made := time.Hour, 0
	r := &Remote{
		Reach: NewReach(&net.Dialer{}),
		Self: func(context.Context) (types.NamespacedName, error) {
			return types.NamespacedName{Namespace: "system", Name: "controller"}, nil
		},
		Token: func(_ context.Context, account types.NamespacedName,
			audiences []string) (*authenticationv1.TokenRequestStatus, error) {
			made++
			return &authenticationv1.TokenRequestStatus{
				Token:               fmt.Sprintf("%s for %s", account, strings.Join(audiences, "+")),
				ExpirationTimestamp: metav1.NewTime(time.Now().Add(life)),
			}, nil
		},
	}
	config := func(more ...string) map[string]string {
		data := map[string]string{"provider": "generic", "address": server.URL, "ca.crt": ca}
		for i := 0; i < len(more); i += 2 {
			data[more[i]] = more[i+1]
		}
		return data
	}
	r.Reader = configMaps{
		"named":   config("serviceAccountName", "app", "audiences", "one\n two\n"),
		"listed":  config("serviceAccountName", "app", "audiences", "- one\n- two"),
		"unnamed": config(), "stealing": config("audiences", "https://kubernetes.default.svc"),
		"plain":   config("address", "http://x", "serviceAccountName", "app"),
		"revoked": config("serviceAccountName", "revoked"),
		"unknown": config("provider", "other"),
		"garbage": config("ca.crt", "no certificate", "serviceAccountName", "app"),
	}
	ways := map[string]*access{}
	for name, want := range map[string]string{"named": "team/app for one+two", "listed": "team/app for one+two",
		"unnamed": "system/controller for " + server.URL} {
		a, err := r.access(t.Context(), via(name))
		if err != nil {
			t.Fatal(err)
		}
		visit(t, a)
		if got := (*tokens)[len(*tokens)-1]; got != want {
			t.Errorf("%s came with the token %q, want %q", name, got, want)
		}
		ways[name] = a
	}
	if ways["named"].id != ways["listed"].id || ways["named"].id == ways["unnamed"].id {
		t.Error("ways are told apart by something else than what they are made of")
	}
	r.DefaultAccount = "tenant"
	a, err := r.access(t.Context(), via("stealing"))
	if err != nil {
		t.Fatal(err)
	}
	visit(t, a)
	if got := (*tokens)[len(*tokens)-1]; got != "team/tenant for https://kubernetes.default.svc" {
		t.Errorf("the default account came with %q", got)
	}
	r.DefaultAccount = ""
	for name, says := range map[string]string{
		"stealing": "sets audiences for a token of the controller", "plain": "an https URL",
		"unknown": "has the provider 'other'", "gone": "not found", "garbage": "cannot be used",
	} {
		_, err := r.access(t.Context(), via(name))
		if f := fault.As(err); f == nil || f.Reason != meta.AuthenticationFailedReason ||
			!strings.Contains(f.Error(), says) {
			t.Errorf("%s: %v", name, err)
		}
	}

	t.Log("a token that is refused is made anew")
	made = 0
	if a, err = r.access(t.Context(), via("revoked")); err != nil {
		t.Fatal(err)
	}
	visit(t, a)
	visit(t, a)
	if made != 2 {
		t.Errorf("%d tokens were made for two visits", made)
	}

	t.Log("a token that is about to end is not used")
	made, life = 0, tokenLeeway/2
	a, err = r.access(t.Context(), via("named"))
	if err != nil {
		t.Fatal(err)
	}
	visit(t, a)
	visit(t, a)
	if made < 3 {
		t.Errorf("%d tokens were made for two visits", made)
	}
}

// gke is Google's cloud with one cluster, whose token is new every time that it is asked for.
type gke struct {
	address, ca string
	tokens      int
}

func (g *gke) RoundTrip(req *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	switch req.URL.Host + req.URL.Path {
	case "sts.googleapis.com/v1/token":
		g.tokens++
		_, _ = fmt.Fprintf(w, `{"access_token":"google-%d","issued_token_type":"urn:ietf:params:oauth:token-type:access_token","token_type":"Bearer","expires_in":3600}`, g.tokens)
	case "container.googleapis.com/v1/projects/p/locations/l/clusters/c":
		_, _ = fmt.Fprintf(w, `{"endpoint":%q,"masterAuth":{"clusterCaCertificate":%q}}`, g.address,
			base64.StdEncoding.EncodeToString([]byte(g.ca)))
	default:
		w.WriteHeader(http.StatusForbidden)
	}
	return w.Result(), nil
}

// Annotations and Token make gke the cluster's service accounts, too.
func (*gke) Annotations(context.Context, types.NamespacedName) (map[string]string, error) {
	return map[string]string{"gcp.auth.fluxcd.io/workload-identity-provider": "projects/1/locations/global/workloadIdentityPools/pool/providers/cluster"}, nil
}

func (*gke) Token(context.Context, types.NamespacedName, string) (string, error) { return "token", nil }

func TestClustersOfACloud(t *testing.T) {
	server, ca, tokens := apiServer(t)
	cloud := &gke{address: strings.TrimPrefix(server.URL, "https://"), ca: ca}
	named := map[string]string{"provider": "gcp", "cluster": "projects/p/locations/l/clusters/c",
		"serviceAccountName": "app"}
	other := map[string]string{"provider": "gcp", "cluster": "projects/p/locations/l/clusters/other",
		"serviceAccountName": "app"}
	both := map[string]string{"provider": "gcp", "cluster": "projects/p/locations/l/clusters/c",
		"serviceAccountName": "app", "audiences": "a\nb"}
	r := &Remote{
		Reach: NewReach(&net.Dialer{}), Identities: &auth.Identities{Accounts: cloud, Transport: cloud},
		Reader: configMaps{"named": named, "other": other, "both": both, "wrong": {"provider": "aws", "cluster": "c"}},
	}
	for range 2 {
		a, err := r.access(t.Context(), via("named"))
		if err != nil {
			t.Fatal(err)
		}
		visit(t, a)
	}
	if want := []string{"google-1", "google-1"}; !slices.Equal(*tokens, want) {
		t.Errorf("the cluster saw the tokens %v, want %v", *tokens, want)
	}
	for name, want := range map[string]struct {
		says  string
		final bool
	}{"other": {"leads to no cluster", false}, "both": {"has 2 audiences", true}, "wrong": {"is not the ARN", true}} {
		_, err := r.access(t.Context(), via(name))
		if f := fault.As(err); f == nil || f.Terminal != want.final || !strings.Contains(f.Error(), want.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzAudiences(f *testing.F) {
	f.Add("- one\n- two, three\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, audience := range listed(text) {
			if audience == "" || audience != strings.TrimSpace(audience) || strings.ContainsAny(audience, "\n,") {
				t.Errorf("%q gives %q", text, audience)
			}
		}
	})
}
