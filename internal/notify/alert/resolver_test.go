package alert

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
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
	"github.com/sluice-gitops/sluice/api/notification/v1beta3"
	"github.com/sluice-gitops/sluice/internal/egress"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/notify/delivery"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// host takes events, and says what it was told to.
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
	_, _ = io.WriteString(w, "{}") // the client is gone, then
}

func (h *host) answers(status int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status = status
}

// last returns the last request, and how many there were.
func (h *host) last() (*http.Request, int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.requests) == 0 {
		return nil, 0
	}
	return h.requests[len(h.requests)-1], len(h.requests)
}

// bench is a resolver over the Secrets of a namespace.
type bench struct {
	*testing.T
	*Resolver
	client    client.Client
	namespace string
	clock     *clocktesting.FakePassiveClock
}

func newBench(t *testing.T) *bench {
	t.Helper()
	c, err := client.New(testenv.Cluster(t), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	clock := clocktesting.NewFakePassiveClock(time.Now())
	return &bench{t, &Resolver{Secrets: c, Egress: &egress.Policy{}, Clock: clock}, c, testenv.Namespace(t), clock}
}

func (b *bench) secret(name string, data map[string]string) *corev1.Secret {
	b.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: name}, StringData: data}
	if err := b.client.Create(b.Context(), s); err != nil {
		b.Fatal(err)
	}
	return s
}

func (b *bench) object(change func(*v1beta3.ProviderSpec)) *v1beta3.Provider {
	p := &v1beta3.Provider{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "p", UID: "p", Generation: 1}}
	p.Spec.Type = v1beta3.SlackProvider
	change(&p.Spec)
	return p
}

func (b *bench) send(p *v1beta3.Provider) error {
	sender, err := b.Provider(b.Context(), p)
	if err != nil {
		return err
	}
	return sender.Send(b.Context(), of("Kustomization", "apps", "web"))
}

func ref(name string) *meta.LocalObjectReference { return &meta.LocalObjectReference{Name: name} }

func TestASecretSaysWhereAndHow(t *testing.T) {
	b := newBench(t)
	h := newHost(t, (*httptest.Server).Start)
	b.secret("login", map[string]string{"address": h.URL + "/hidden\n", "username": "of-the-secret",
		"headers": "X-Team: front\nX-Other: end"})
	if err := b.send(b.object(func(s *v1beta3.ProviderSpec) {
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

func TestMutualTLSWithAnAuthorityOfItsOwn(t *testing.T) {
	b := newBench(t)
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
		change func(*v1beta3.ProviderSpec)
		says   string
	}{
		"all":               {func(s *v1beta3.ProviderSpec) { s.CertSecretRef = ref("all") }, ""},
		"all, by the login": {func(s *v1beta3.ProviderSpec) { s.SecretRef = ref("all") }, ""},
		"without a key": {func(s *v1beta3.ProviderSpec) { s.CertSecretRef = ref("authority") },
			"the event did not get to"},
		"without anything": {func(*v1beta3.ProviderSpec) {}, "certificate"},
	} {
		p := b.object(c.change)
		p.UID, p.Spec.Address = types.UID(name), h.URL
		if err := b.send(p); c.says == "" && err != nil ||
			c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

func TestAProxyFromEveryPlace(t *testing.T) {
	b := newBench(t)
	proxy := newHost(t, (*httptest.Server).Start)
	b.secret("proxy", map[string]string{"address": proxy.URL, "username": "me", "password": "s3cr3t-of-proxy"})
	b.secret("login", map[string]string{"proxy": strings.Replace(proxy.URL, "://", "://me:s3cr3t-of-login@", 1)})
	for name, c := range map[string]struct {
		change func(*v1beta3.ProviderSpec)
		login  string
	}{
		"its own Secret": {func(s *v1beta3.ProviderSpec) {
			s.ProxySecretRef, s.Proxy = ref("proxy"),
				"http://127.0.0.1:1"
		}, "bWU6czNjcjN0LW9mLXByb3h5"},
		"the login": {func(s *v1beta3.ProviderSpec) { s.SecretRef, s.Proxy = ref("login"), "http://127.0.0.1:1" },
			"bWU6czNjcjN0LW9mLWxvZ2lu"},
		"the spec": {func(s *v1beta3.ProviderSpec) { s.Proxy = proxy.URL }, ""},
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
			t.Errorf("%s: %s with login %q, want %q", name, r.URL, got, c.login)
		}
	}
}

func TestProvidersThatCannotBeUsed(t *testing.T) {
	b := newBench(t)
	const hidden = "s3cr3t-of-the-test"
	b.secret("headers", map[string]string{"headers": "- " + hidden})
	b.secret("header", map[string]string{"headers": "X-A: \"" + hidden + "\\r\\nX-B: c\""})
	b.secret("half", map[string]string{"tls.crt": hidden})
	b.secret("pair", map[string]string{"tls.crt": hidden, "tls.key": hidden})
	b.secret("proxy", map[string]string{"address": "http://" + hidden + "@", "username": "a"})
	b.secret("address", map[string]string{"address": "https://" + hidden + "\x7f/"})
	for name, c := range map[string]struct {
		change       func(*v1beta3.ProviderSpec)
		reason, says string
		final        bool
	}{
		"a Secret that is not there": {func(s *v1beta3.ProviderSpec) { s.SecretRef = ref("none") }, "TokenNotFound",
			"none' not found. Create it, or correct spec.secretRef", false},
		"a certificate that is not": {func(s *v1beta3.ProviderSpec) { s.CertSecretRef = ref("none") },
			"TokenNotFound", "correct spec.certSecretRef", false},
		"a proxy that is not there": {func(s *v1beta3.ProviderSpec) { s.ProxySecretRef = ref("none") },
			"TokenNotFound", "correct spec.proxySecretRef", false},
		"headers that are none": {func(s *v1beta3.ProviderSpec) { s.SecretRef = ref("headers") },
			"ValidationFailed", "no YAML of names and values", false},
		"a header of two lines": {func(s *v1beta3.ProviderSpec) { s.SecretRef = ref("header") },
			"ValidationFailed", "header", true},
		"half a certificate": {func(s *v1beta3.ProviderSpec) { s.CertSecretRef = ref("half") },
			"ValidationFailed", "only one of the keys tls.crt and tls.key", false},
		"no certificate": {func(s *v1beta3.ProviderSpec) { s.CertSecretRef = ref("pair") },
			"ValidationFailed", "no pair", false},
		"no proxy": {func(s *v1beta3.ProviderSpec) { s.ProxySecretRef = ref("proxy") },
			"ValidationFailed", "is not the URL of a proxy", false},
		"no proxy in the spec": {func(s *v1beta3.ProviderSpec) { s.Proxy = "http://" }, "ValidationFailed",
			"the proxy cannot be used that spec.proxy names", false},
		"no address": {func(s *v1beta3.ProviderSpec) { s.Address = "" }, "ValidationFailed",
			"no address", true},
		"an address that is none": {func(s *v1beta3.ProviderSpec) { s.SecretRef = ref("address") },
			"ValidationFailed", "is no URL", true},
		"a type from tomorrow": {func(s *v1beta3.ProviderSpec) { s.Type = "pigeon" }, "ValidationFailed",
			"pigeon", true},
		"the metadata of the machine": {func(s *v1beta3.ProviderSpec) { s.Address = "http://169.254.169.254/" },
			"SendFailed", "link-local", false},
	} {
		p := b.object(func(s *v1beta3.ProviderSpec) { s.Address = "http://127.0.0.1:1/" })
		p.UID = types.UID(name)
		c.change(&p.Spec)
		b.Egress = &egress.Policy{RefuseLinkLocal: true}
		err := b.send(p)
		expectFault(t, name, err, c.reason, c.says, c.final)
		if err != nil && strings.Contains(err.Error(), hidden) {
			t.Errorf("%s: the error tells a secret: %v", name, err)
		}
	}
}

func TestSecretsAreReadWhenTheyMayBeOthers(t *testing.T) {
	b := newBench(t)
	old, current := newHost(t, (*httptest.Server).Start), newHost(t, (*httptest.Server).Start)
	secret := b.secret("login", map[string]string{"address": old.URL})
	p := b.object(func(s *v1beta3.ProviderSpec) { s.SecretRef = ref("login") })
	counts := func(when string, wantOld, wantCurrent int) {
		t.Helper()
		if err := b.send(p); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if _, n := old.last(); n != wantOld {
			t.Errorf("%s: the old host was told %d times, want %d", when, n, wantOld)
		}
		if _, n := current.last(); n != wantCurrent {
			t.Errorf("%s: the current host was told %d times, want %d", when, n, wantCurrent)
		}
	}
	set := func(address string) {
		t.Helper()
		secret.StringData = map[string]string{"address": address}
		if err := b.client.Update(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
	}
	counts("at first", 1, 0)
	set(current.URL)
	counts("within the time that a look counts", 2, 0)
	b.clock.SetTime(b.clock.Now().Add(lookEvery))
	counts("after it", 2, 1)
	set(old.URL)
	b.Doubt(p)
	counts("after something went wrong", 3, 1)
	set(current.URL)
	p.Generation++
	counts("of another generation", 3, 2)

	b.clock.SetTime(b.clock.Now().Add(2 * keepUnused))
	other := b.object(func(s *v1beta3.ProviderSpec) { s.Address = old.URL })
	other.UID = "other"
	if err := b.send(other); err != nil {
		t.Fatal(err)
	}
	if b.kept(p) != nil {
		t.Error("what nobody uses is kept")
	}
}

func TestEachFailureIsNewsOnce(t *testing.T) {
	b := newBench(t)
	h := newHost(t, (*httptest.Server).Start)
	book := newBook()
	p := b.object(func(s *v1beta3.ProviderSpec) { s.Address = h.URL })
	key := client.ObjectKeyFromObject(p)
	book.setProvider(key, p)
	health := &Health{Edges: reconcile.NewEdges()}
	s := &Sender{Router: book.Router, Resolver: b.Resolver, Health: health}
	d := delivery.Delivery{Provider: key, Event: of("Kustomization", "apps", "web")}
	retried := 0
	step := &Provider{Resolver: b.Resolver, Health: health, Retry: func(types.NamespacedName) { retried++ }}
	reconciled := func() string {
		return fmt.Sprint(step.Reconcile(t.Context(), &reconcile.Pass[*v1beta3.Provider]{Object: p.DeepCopy()}))
	}
	if err := s.Send(t.Context(), d); err != nil || health.of(key) != nil || reconciled() != initialized {
		t.Fatalf("%v, %s", err, reconciled())
	}
	h.answers(http.StatusServiceUnavailable)
	first := s.Send(t.Context(), d)
	expectFault(t, "refused", first, "SendFailed", "503", false)
	if !strings.Contains(reconciled(), "503") {
		t.Errorf("the Provider says %s", reconciled())
	}
	if health.note(key, s.Send(t.Context(), d)) {
		t.Error("the same failure is news twice")
	}
	if !health.note(key, fault.New(SendFailedReason, "another one")) {
		t.Error("another failure is none")
	}
	h.answers(http.StatusOK)
	if err := s.Send(t.Context(), d); err != nil || reconciled() != initialized {
		t.Errorf("%v, %s", err, reconciled())
	}
	if retried != 0 {
		t.Errorf("what waits was tried %d times although nothing changed", retried)
	}
	h.answers(http.StatusServiceUnavailable)
	expectFault(t, "refused again", s.Send(t.Context(), d), "SendFailed", "503", false)
	p.Generation++
	if said := reconciled(); said != initialized || retried != 1 {
		t.Errorf("of another generation: %s, and tried %d times", said, retried)
	}

	p.Spec.Suspend = true
	_, before := h.last()
	if err := s.Send(t.Context(), d); err != nil {
		t.Errorf("a suspended Provider: %v", err)
	}
	if _, after := h.last(); after != before {
		t.Error("a suspended Provider sent")
	}
	book.setProvider(key, nil)
	expectFault(t, "a Provider that is gone", s.Send(t.Context(), d), "ValidationFailed", "is gone", true)
}

func TestNamesOfCommitStatusesMayTellTheAlert(t *testing.T) {
	b := newBench(t)
	h := newHost(t, (*httptest.Server).Start)
	h.answers(http.StatusCreated)
	b.secret("login", map[string]string{"token": "s3cr3t-of-the-test"})
	book := newBook()
	p := b.object(func(s *v1beta3.ProviderSpec) {
		s.Type, s.Address, s.SecretRef = v1beta3.GitHubProvider, h.URL+"/org/fleet", ref("login")
		s.CommitStatusExpr = "alert.spec.eventMetadata.cluster + '/' + provider.metadata.name + '/' + " +
			"event.involvedObject.name"
	})
	book.setProvider(client.ObjectKeyFromObject(p), p)
	a := book.alert("a", v1beta3.AlertSpec{EventMetadata: map[string]string{"cluster": "prod-1"}})
	s := &Sender{Router: book.Router, Resolver: b.Resolver, Health: &Health{Edges: reconcile.NewEdges()}}
	e := of("Kustomization", "apps", "web", with("revision", "main@sha1:0123456789abcdef0123456789abcdef01234567"))
	if err := s.Send(t.Context(), delivery.Delivery{Alert: client.ObjectKeyFromObject(a),
		Provider: client.ObjectKeyFromObject(p), Event: e}); err != nil {
		t.Fatal(err)
	}
	r, n := h.last()
	if !strings.HasSuffix(r.URL.Path, "/statuses/0123456789abcdef0123456789abcdef01234567") ||
		!strings.Contains(h.bodies[n-1], `"prod-1/p/web"`) {
		t.Errorf("%s: %s", r.URL, h.bodies)
	}
}

// FuzzHeaders reads what is in a Secret: it never fails but with a fault, which holds nothing of it.
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
