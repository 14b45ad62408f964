package alert

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/meta"
	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// host is a server that records requests and responds with a status.
type host struct {
	*httptest.Server
	mu       sync.Mutex
	status   int
	requests []*http.Request
	bodies   []string
}

func newHost(t *testing.T, start func(*httptest.Server)) *host {
	t.Helper()
	h := &host{status: http.StatusOK}
	h.Server = httptest.NewUnstartedServer(h)
	start(h.Server)
	t.Cleanup(h.Close)
	return h
}

func (h *host) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requests, h.bodies = append(h.requests, r), append(h.bodies, string(body))
	w.WriteHeader(h.status)
	_, _ = io.WriteString(w, "{}") // fails if the client is gone
}

func (h *host) respondWith(status int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status = status
}

// last returns the last request and the number of requests.
func (h *host) last() (*http.Request, int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.requests) == 0 {
		return nil, 0
	}
	return h.requests[len(h.requests)-1], len(h.requests)
}

// resolverTest is a resolver that reads the Secrets of a test namespace.
type resolverTest struct {
	*testing.T
	*Resolver
	client    client.Client
	namespace string
	clock     *clocktesting.FakePassiveClock
}

func newResolverTest(t *testing.T) *resolverTest {
	t.Helper()
	c, err := client.New(testenv.Cluster(t), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	clock := clocktesting.NewFakePassiveClock(time.Now())
	return &resolverTest{T: t, Resolver: &Resolver{Secrets: c, Egress: &egress.Policy{}, Clock: clock}, client: c,
		namespace: testenv.Namespace(t), clock: clock}
}

func (b *resolverTest) secret(name string, data map[string]string) *corev1.Secret {
	b.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: name}, StringData: data}
	if err := b.client.Create(b.Context(), s); err != nil {
		b.Fatal(err)
	}
	return s
}

func (b *resolverTest) object(change func(*notificationv1.ProviderSpec)) *notificationv1.Provider {
	p := &notificationv1.Provider{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "p", UID: "p",
		Generation: 1}}
	p.Spec.Type = notificationv1.SlackProvider
	change(&p.Spec)
	return p
}

func (b *resolverTest) send(p *notificationv1.Provider) error {
	sender, err := b.Provider(b.Context(), p)
	if err != nil {
		return err
	}
	return sender.Send(b.Context(), newEvent("Kustomization", "apps", "web"))
}

func ref(name string) *meta.LocalObjectReference { return &meta.LocalObjectReference{Name: name} }

func TestSecretOverridesSpec(t *testing.T) {
	b := newResolverTest(t)
	h := newHost(t, (*httptest.Server).Start)
	b.secret("login", map[string]string{"address": h.URL + "/hidden\n", "username": "of-the-secret",
		"headers": "X-Team: front\nX-Other: end"})
	if err := b.send(b.object(func(s *notificationv1.ProviderSpec) {
		s.SecretRef, s.Address, s.Username = ref("login"), "http://127.0.0.1:1/", "of-the-spec"
	})); err != nil {
		t.Fatal(err)
	}
	r, _ := h.last()
	if r.URL.Path != "/hidden" || r.Header.Get("X-Team") != "front" ||
		!strings.Contains(h.bodies[0], `"of-the-secret"`) {
		t.Errorf("%s with %v: %s", r.URL, r.Header, h.bodies[0])
	}
}

func TestMutualTLS(t *testing.T) {
	b := newResolverTest(t)
	h := newHost(t, func(s *httptest.Server) {
		s.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
		s.StartTLS()
	})
	pair := h.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	crt := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}))
	all := map[string]string{"ca.crt": crt, "tls.crt": crt,
		"tls.key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))}
	b.secret("all", all)
	b.secret("authority", map[string]string{"ca.crt": crt})
	for name, c := range map[string]struct {
		change func(*notificationv1.ProviderSpec)
		want   string // in the error; empty for success
	}{
		"certSecretRef": {change: func(s *notificationv1.ProviderSpec) { s.CertSecretRef = ref("all") }},
		"secretRef":     {change: func(s *notificationv1.ProviderSpec) { s.SecretRef = ref("all") }},
		"no client certificate": {change: func(s *notificationv1.ProviderSpec) { s.CertSecretRef = ref("authority") },
			want: "cannot send the event to"},
		"no Secret": {change: func(*notificationv1.ProviderSpec) {}, want: "certificate"},
	} {
		p := b.object(c.change)
		p.UID, p.Spec.Address = types.UID(name), h.URL
		if err := b.send(p); c.want == "" && err != nil ||
			c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got error %v, want %q", name, err, c.want)
		}
	}
}

// TestControllerIdentityTrustsNoAuthorityOfAProvider has a Secret with an authority. Whoever has its key, and the proxy
// of spec.proxySecretRef, could read the token.
func TestControllerIdentityTrustsNoAuthorityOfAProvider(t *testing.T) {
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nonexistent")
	b := newResolverTest(t)
	h := newHost(t, (*httptest.Server).StartTLS)
	crt := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw})
	b.secret("authority", map[string]string{"ca.crt": string(crt)})
	for name, c := range map[string]struct {
		change func(*notificationv1.ProviderSpec)
		want   string
	}{
		"certSecretRef": {change: func(s *notificationv1.ProviderSpec) { s.CertSecretRef = ref("authority") },
			want: "cannot be used with the authority in ca.crt of spec.certSecretRef"},
		"secretRef": {change: func(s *notificationv1.ProviderSpec) { s.SecretRef = ref("authority") },
			want: "cannot be used with the authority in ca.crt of spec.secretRef"},
		"no Secret": {change: func(*notificationv1.ProviderSpec) {}, want: "/nonexistent"},
		"service account": {change: func(s *notificationv1.ProviderSpec) {
			s.CertSecretRef, s.ServiceAccountName = ref("authority"), "app"
		}, want: "service account '" + b.namespace + "/app'"},
	} {
		p := b.object(c.change)
		p.UID, p.Spec.Type, p.Spec.Address, p.Spec.Channel = types.UID(name), notificationv1.GooglePubSubProvider,
			"project", "topic"
		if err := b.send(p); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got error %v, want %q", name, err, c.want)
		}
	}
}

func TestProxySources(t *testing.T) {
	b := newResolverTest(t)
	proxy := newHost(t, (*httptest.Server).Start)
	b.secret("proxy", map[string]string{"address": proxy.URL, "username": "me", "password": "s3cr3t-of-proxy"})
	b.secret("login", map[string]string{"proxy": strings.Replace(proxy.URL, "://", "://me:s3cr3t-of-login@", 1)})
	for name, c := range map[string]struct {
		change func(*notificationv1.ProviderSpec)
		login  string
	}{
		"proxySecretRef": {login: "bWU6czNjcjN0LW9mLXByb3h5", change: func(s *notificationv1.ProviderSpec) {
			s.ProxySecretRef, s.Proxy = ref("proxy"), "http://127.0.0.1:1"
		}},
		"secretRef": {login: "bWU6czNjcjN0LW9mLWxvZ2lu", change: func(s *notificationv1.ProviderSpec) {
			s.SecretRef, s.Proxy = ref("login"), "http://127.0.0.1:1"
		}},
		"spec.proxy": {change: func(s *notificationv1.ProviderSpec) { s.Proxy = proxy.URL }},
	} {
		p := b.object(c.change)
		p.UID, p.Spec.Address = types.UID(name), "http://chat.example.com/hook"
		if err := b.send(p); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		r, _ := proxy.last()
		if got := strings.TrimPrefix(r.Header.Get("Proxy-Authorization"),
			"Basic "); r.URL.String() != "http://chat.example.com/hook" || got != c.login {
			t.Errorf("%s: request to %s with login %q, want %q", name, r.URL, got, c.login)
		}
	}
}

// invalidProviders are changes that make a Provider invalid, and the expected faults.
var invalidProviders = map[string]struct {
	change       func(*notificationv1.ProviderSpec)
	reason, want string
	final        bool
}{
	"missing Secret": {reason: "TokenNotFound",
		want:   "none' not found. Create it or correct spec.secretRef",
		change: func(s *notificationv1.ProviderSpec) { s.SecretRef = ref("none") }},
	"missing certificate": {reason: "TokenNotFound",
		want:   "correct spec.certSecretRef",
		change: func(s *notificationv1.ProviderSpec) { s.CertSecretRef = ref("none") }},
	"missing proxy": {reason: "TokenNotFound",
		want:   "correct spec.proxySecretRef",
		change: func(s *notificationv1.ProviderSpec) { s.ProxySecretRef = ref("none") }},
	"headers are a list": {reason: "ValidationFailed",
		want:   "not a YAML map of strings. Write one line NAME: VALUE for each header",
		change: func(s *notificationv1.ProviderSpec) { s.SecretRef = ref("headers") }},
	"too many headers": {reason: "ValidationFailed",
		want:   "Remove headers that the service does not need",
		change: func(s *notificationv1.ProviderSpec) { s.SecretRef = ref("many") }},
	"header with a line break": {reason: "ValidationFailed", final: true,
		want:   "header",
		change: func(s *notificationv1.ProviderSpec) { s.SecretRef = ref("header") }},
	"certificate without key": {reason: "ValidationFailed",
		want:   "only one of the keys tls.crt and tls.key",
		change: func(s *notificationv1.ProviderSpec) { s.CertSecretRef = ref("half") }},
	"malformed certificate": {reason: "ValidationFailed",
		want:   "do not match",
		change: func(s *notificationv1.ProviderSpec) { s.CertSecretRef = ref("pair") }},
	"malformed proxy in the Secret": {reason: "ValidationFailed",
		want:   "is not the URL of a proxy",
		change: func(s *notificationv1.ProviderSpec) { s.ProxySecretRef = ref("proxy") }},
	"malformed proxy in the spec": {reason: "ValidationFailed",
		want:   "the proxy in spec.proxy is not valid",
		change: func(s *notificationv1.ProviderSpec) { s.Proxy = "http://" }},
	"no address": {reason: "ValidationFailed", final: true,
		want:   "no address",
		change: func(s *notificationv1.ProviderSpec) { s.Address = "" }},
	"malformed address": {reason: "ValidationFailed", final: true,
		want:   "is not an HTTP URL",
		change: func(s *notificationv1.ProviderSpec) { s.SecretRef = ref("address") }},
	"unknown type": {reason: "ValidationFailed", final: true,
		want:   "pigeon",
		change: func(s *notificationv1.ProviderSpec) { s.Type = "pigeon" }},
	"metadata service": {reason: "SendFailed",
		want:   "link-local",
		change: func(s *notificationv1.ProviderSpec) { s.Address = "http://169.254.169.254/" }},
}

func TestInvalidProviders(t *testing.T) {
	b := newResolverTest(t)
	const hidden = "s3cr3t-of-the-test"
	b.secret("headers", map[string]string{"headers": "- " + hidden})
	b.secret("header", map[string]string{"headers": "X-A: \"" + hidden + "\\r\\nX-B: c\""})
	many := ""
	for name := range numbered(maxHeaders + 1) {
		many += name + ": x\n"
	}
	b.secret("many", map[string]string{"headers": many})
	b.secret("half", map[string]string{"tls.crt": hidden})
	b.secret("pair", map[string]string{"tls.crt": hidden, "tls.key": hidden})
	b.secret("proxy", map[string]string{"address": "http://" + hidden + "@", "username": "a"})
	b.secret("address", map[string]string{"address": "https://" + hidden + "\x7f/"})
	for name, c := range invalidProviders {
		p := b.object(func(s *notificationv1.ProviderSpec) { s.Address = "http://127.0.0.1:1/" })
		p.UID = types.UID(name)
		c.change(&p.Spec)
		b.Egress = &egress.Policy{RefuseLinkLocal: true}
		err := b.send(p)
		expectFault(t, name, err, c.reason, c.want, c.final)
		if err != nil && strings.Contains(err.Error(), hidden) {
			t.Errorf("%s: the error contains a secret: %v", name, err)
		}
	}
}

func TestChangedSecretsAreReadAgain(t *testing.T) {
	b := newResolverTest(t)
	old, current := newHost(t, (*httptest.Server).Start), newHost(t, (*httptest.Server).Start)
	secret := b.secret("login", map[string]string{"address": old.URL})
	p := b.object(func(s *notificationv1.ProviderSpec) { s.SecretRef = ref("login") })
	expectRequests := func(when string, wantOld, wantCurrent int) {
		t.Helper()
		if err := b.send(p); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if _, n := old.last(); n != wantOld {
			t.Errorf("%s: the old host got %d requests, want %d", when, n, wantOld)
		}
		if _, n := current.last(); n != wantCurrent {
			t.Errorf("%s: the current host got %d requests, want %d", when, n, wantCurrent)
		}
	}
	set := func(address string) {
		t.Helper()
		secret.StringData = map[string]string{"address": address}
		if err := b.client.Update(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
	}
	expectRequests("first event", 1, 0)
	set(current.URL)
	expectRequests("before the TTL", 2, 0)
	b.clock.SetTime(b.clock.Now().Add(secretTTL))
	expectRequests("after the TTL", 2, 1)
	set(old.URL)
	b.Invalidate(p)
	expectRequests("after Invalidate", 3, 1)
	set(current.URL)
	p.Generation++
	expectRequests("new generation", 3, 2)

	b.clock.SetTime(b.clock.Now().Add(2 * unusedTTL))
	other := b.object(func(s *notificationv1.ProviderSpec) { s.Address = old.URL })
	other.UID = "other"
	if err := b.send(other); err != nil {
		t.Fatal(err)
	}
	if b.lookup(p) != nil {
		t.Error("an unused sender is still cached")
	}
}

// FuzzHeaders checks that errors are faults without the content of the Secret.
func FuzzHeaders(f *testing.F) {
	f.Add("X-A: b\nX-C: \"d\"")
	f.Add("- a\n- &x [*x]")
	f.Add("a: {b: c}")
	f.Add("? |\n  a\n: b")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := headers([]byte(text))
		if err != nil && (fault.As(err) == nil || len(text) > 12 && strings.Contains(err.Error(), text)) {
			t.Errorf("%q: %v", text, err)
		}
		if len(all) > maxHeaders {
			t.Errorf("%d headers", len(all))
		}
	})
}
