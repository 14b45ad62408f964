package rollout

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
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

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// configMaps is a reader of the ConfigMaps in namespace team, by name.
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
	return errors.New("List is not supported")
}

// apiServer starts the API server of another cluster, which records the tokens of requests.
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

// connect connects with a ConfigMap in namespace team.
func connect(t *testing.T, r *RemoteClusters, configMap string) (*connection, error) {
	t.Helper()
	return r.connect(t.Context(), "team",
		&meta.KubeConfigReference{ConfigMapRef: &meta.LocalObjectReference{Name: configMap}})
}

// mustConnect is connect for ConfigMaps that are valid.
func mustConnect(t *testing.T, r *RemoteClusters, configMap string) *connection {
	t.Helper()
	c, err := connect(t, r, configMap)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// sendTo sends a request to the API server of a connection.
func sendTo(t *testing.T, to *connection) {
	t.Helper()
	if err := to.login(t.Context()); err != nil {
		t.Fatal(err)
	}
	c, err := rest.HTTPClientFor(to.config)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Get(to.config.Host + "/version")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
}

func TestGenericProviderUsesServiceAccountTokens(t *testing.T) {
	server, ca, tokens := apiServer(t)
	lifetime, issued := time.Hour, 0
	r := &RemoteClusters{
		Transports: NewTransports(&egress.Policy{}, nil),
		Self: func(context.Context) (types.NamespacedName, error) {
			return types.NamespacedName{Namespace: "system", Name: "controller"}, nil
		},
		Token: func(_ context.Context, account types.NamespacedName,
			audiences []string) (*authenticationv1.TokenRequestStatus, error) {
			issued++
			return &authenticationv1.TokenRequestStatus{
				Token:               fmt.Sprintf("%s for %s", account, strings.Join(audiences, "+")),
				ExpirationTimestamp: metav1.NewTime(time.Now().Add(lifetime)),
			}, nil
		},
	}
	setConfigs(server, ca, r)
	connections := map[string]*connection{}
	for name, want := range map[string]string{"named": "team/app for one+two", "listed": "team/app for one+two",
		"unnamed": "system/controller for " + server.URL} {
		c := mustConnect(t, r, name)
		sendTo(t, c)
		if got := (*tokens)[len(*tokens)-1]; got != want {
			t.Errorf("%s: the token is %q, want %q", name, got, want)
		}
		connections[name] = c
	}
	if connections["named"].id != connections["listed"].id || connections["named"].id == connections["unnamed"].id {
		t.Error("connections must have the same id exactly if their content is the same")
	}
	r.DefaultAccount = "tenant"
	sendTo(t, mustConnect(t, r, "stealing"))
	if got := (*tokens)[len(*tokens)-1]; got != "team/tenant for https://kubernetes.default.svc" {
		t.Errorf("default account: the token is %q", got)
	}
	r.DefaultAccount = ""
	refusesConfigs(t, r)

	t.Log("A rejected token is replaced")
	issued = 0
	c := mustConnect(t, r, "revoked")
	sendTo(t, c)
	sendTo(t, c)
	if issued != 2 {
		t.Errorf("%d tokens were issued for 2 requests, want 2", issued)
	}

	t.Log("A token that expires soon is not used")
	issued, lifetime = 0, tokenLeeway/2
	c = mustConnect(t, r, "named")
	sendTo(t, c)
	sendTo(t, c)
	if issued < 3 {
		t.Errorf("%d tokens were issued for 2 requests, want at least 3", issued)
	}
}

// setConfigs sets the ConfigMaps that the tests connect with.
func setConfigs(server *httptest.Server, ca string, r *RemoteClusters) {
	config := func(keysAndValues ...string) map[string]string {
		data := map[string]string{"provider": "generic", "address": server.URL, "ca.crt": ca}
		for i := 0; i < len(keysAndValues); i += 2 {
			data[keysAndValues[i]] = keysAndValues[i+1]
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
}

// refusesConfigs checks ConfigMaps that are invalid for the controller's account.
func refusesConfigs(t *testing.T, r *RemoteClusters) {
	t.Helper()
	for name, want := range map[string]string{
		"stealing": "sets audiences for a token of the controller. Name a ServiceAccount in the key " +
			"serviceAccountName; the controller's own token is only issued for the " +
			"address", "plain": "an https URL",
		"unknown": "has unknown provider 'other'. Set the key provider to aws, azure, gcp or " +
			"generic", "gone": "not found. Create it, or correct " +
			"spec.kubeConfig", "garbage": "cannot be used",
	} {
		_, err := connect(t, r, name)
		reason := meta.AuthenticationFailedReason
		if name == "gone" {
			reason = meta.ReconciliationFailedReason
		}
		if f := fault.As(err); f == nil || f.Reason != reason ||
			!strings.Contains(f.Error(), want) || IsCredentialsNotFound(err) != (name == "gone") {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
	}
}

// gke is a fake of Google's cloud with one cluster. It issues a new token for each request.
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
		_, _ = fmt.Fprintf(w, `{"access_token":"google-%d","expires_in":3600,"token_type":"Bearer",`+
			`"issued_token_type":"urn:ietf:params:oauth:token-type:access_token"}`, g.tokens)
	case "container.googleapis.com/v1/projects/p/locations/l/clusters/c":
		_, _ = fmt.Fprintf(w, `{"endpoint":%q,"masterAuth":{"clusterCaCertificate":%q}}`, g.address,
			base64.StdEncoding.EncodeToString([]byte(g.ca)))
	default:
		w.WriteHeader(http.StatusForbidden)
	}
	return w.Result(), nil
}

// Annotations and Token implement [auth.Accounts].
func (*gke) Annotations(context.Context, types.NamespacedName) (map[string]string, error) {
	const provider = "projects/1/locations/global/workloadIdentityPools/pool/providers/cluster"
	return map[string]string{"gcp.auth.fluxcd.io/workload-identity-provider": provider}, nil
}

func (*gke) Token(context.Context, types.NamespacedName, string) (string, error) { return "token", nil }

func TestCloudProviderFindsCluster(t *testing.T) {
	server, ca, tokens := apiServer(t)
	cloud := &gke{address: strings.TrimPrefix(server.URL, "https://"), ca: ca}
	named := map[string]string{"provider": "gcp", "cluster": "projects/p/locations/l/clusters/c",
		"serviceAccountName": "app"}
	other := map[string]string{"provider": "gcp", "cluster": "projects/p/locations/l/clusters/other",
		"serviceAccountName": "app"}
	both := map[string]string{"provider": "gcp", "cluster": "projects/p/locations/l/clusters/c",
		"serviceAccountName": "app", "audiences": "a\nb"}
	r := &RemoteClusters{
		Transports: NewTransports(&egress.Policy{}, nil),
		Identities: &auth.Identities{Accounts: cloud, Transport: cloud},
		Reader: configMaps{"named": named, "other": other,
			"both": both, "wrong": {"provider": "aws", "cluster": "c"}},
	}
	for range 2 {
		sendTo(t, mustConnect(t, r, "named"))
	}
	if want := []string{"google-1", "google-1"}; !slices.Equal(*tokens, want) {
		t.Errorf("the cluster received the tokens %v, want %v", *tokens, want)
	}
	for name, want := range map[string]struct {
		message  string
		terminal bool
	}{
		"other": {message: "does not lead to a cluster"},
		"both":  {message: "has 2 audiences. Set one: clouds check only one", terminal: true},
		"wrong": {message: "is not the ARN", terminal: true},
	} {
		_, err := connect(t, r, name)
		if f := fault.As(err); f == nil || f.Terminal != want.terminal || !strings.Contains(f.Error(), want.message) {
			t.Errorf("%s: got %v, want %+v", name, err, want)
		}
	}
}

func FuzzParseList(f *testing.F) {
	f.Add("- one\n- two, three\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, audience := range parseList(text) {
			if audience == "" || audience != strings.TrimSpace(audience) || strings.ContainsAny(audience, "\n,") {
				t.Errorf("parseList(%q) contains %q", text, audience)
			}
		}
	})
}
