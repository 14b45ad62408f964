package hub

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/credentials/login"
	"github.com/sluice-gitops/sluice/internal/fleet"
	"github.com/sluice-gitops/sluice/internal/network/egress"
)

const (
	testIssuer   = "https://kubernetes.default.svc.cluster.local"
	testAudience = "https://hub.example.com"
)

// testClock is a clock that tests set.
type testClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *testClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *testClock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// issuer signs the tokens of a cluster.
type issuer struct {
	key  *ecdsa.PrivateKey
	jwks string
}

func newIssuer(t testing.TB) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k",
		Algorithm: "ES256", Use: "sig"}}})
	if err != nil {
		t.Fatal(err)
	}
	return &issuer{key: key, jwks: string(b)}
}

// token returns a token with the default claims of a cluster, changed by a function.
func (i *issuer) token(t testing.TB, now time.Time, change func(*jwt.Claims)) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: i.key},
		(&jose.SignerOptions{}).WithHeader("kid", "k"))
	if err != nil {
		t.Fatal(err)
	}
	c := jwt.Claims{Issuer: testIssuer, Subject: fleet.DefaultSubject, Audience: jwt.Audience{testAudience},
		IssuedAt: jwt.NewNumericDate(now), NotBefore: jwt.NewNumericDate(now),
		Expiry: jwt.NewNumericDate(now.Add(time.Hour))}
	if change != nil {
		change(&c)
	}
	token, err := jwt.Signed(signer).Claims(c).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// secret registers a cluster of the issuer.
func (i *issuer) secret(cluster string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "cluster-" + cluster,
		Labels: map[string]string{fleet.ClusterLabel: cluster}},
		Data: map[string][]byte{fleet.IssuerKey: []byte(testIssuer), fleet.KeysKey: []byte(i.jwks),
			fleet.LabelsKey: []byte("stage=production")}}
}

func newTestHub(t testing.TB, clock *testClock, backend artifact.Backend) *Server {
	t.Helper()
	log := testr.New(t.(*testing.T))
	h := &Hub{Log: log, Now: clock.Now, Epoch: "e", Registry: &Registry{Audience: testAudience,
		Egress: &egress.Policy{}, Now: clock.Now}}
	if backend != nil {
		h.Store = NewStore(backend, "r", log, clock.Now)
	}
	return &Server{Hub: h}
}

// sessions returns the sessions of a hub that browsers reach by a URL.
func (s *Server) sessions(t *testing.T, external string, provider *login.OIDC) *login.Sessions {
	t.Helper()
	u, err := url.Parse(external)
	if err != nil {
		t.Fatal(err)
	}
	sessions, err := login.New(login.Options{Site: "sluice-hub", About: "the hub", ExternalURL: u, TTL: time.Hour,
		Key: []byte(strings.Repeat("k", 32)), OIDC: provider, KeepToken: true, Log: s.Hub.Log, Now: s.Hub.Now})
	if err != nil {
		t.Fatal(err)
	}
	return sessions
}

func (s *Server) register(secret *corev1.Secret) {
	s.Hub.Registry.Set(secret)
	s.Hub.refresh()
}

// send sends a body as a cluster, and returns the status and the body of the answer.
func (s *Server) send(cluster, token, body string) (int, fleet.Error) {
	r := httptest.NewRequest("POST", fleet.ReportsPath, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(fleet.ClusterHeader, cluster)
	r.Header.Set("Authorization", "Bearer "+token)
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	var answer fleet.Error
	_ = json.Unmarshal(w.Body.Bytes(), &answer)
	return w.Code, answer
}

// body returns the body of a report.
func body(t testing.TB, r fleet.Report) string {
	t.Helper()
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func testReport(cluster string, sequence int64, at time.Time) fleet.Report {
	return fleet.Report{Cluster: cluster, Instance: "one", Sequence: sequence, Summary: &fleet.Summary{Time: at,
		Version: "v1.0.0", Counts: fleet.Counts{"ready": 3, "failed": 1}, Labels: map[string]string{
			"stage": "staging", "region": "eu"},
		Problems: []fleet.Problem{{Object: "Kustomization/team/app", State: "failed", Message: "<b>no</b>"},
			{Object: "Kustomization/team/web", State: "failed"}},
		Changes: []fleet.Change{{Gate: "Gate/team/release", Object: "Kustomization/team/app", Revision: "v2"}}}}
}
