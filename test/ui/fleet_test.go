package ui

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/internal/credentials/login"
	"github.com/sluice-gitops/sluice/internal/fleet"
	"github.com/sluice-gitops/sluice/internal/fleet/hub"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/web"
)

var clusters = flag.Int("clusters", 0, "measure the pages of a hub with this many clusters; 0 skips the measurement")

const (
	hubToken    = "a-token-of-the-hub"
	hubAudience = "https://hub.example.com"
	// fleetSize is how many clusters the browser tests have.
	fleetSize = 60
)

// TestFleetScale prints how long the pages of a hub take to the first paint. It asserts no time, as TestScale.
func TestFleetScale(t *testing.T) {
	if *clusters == 0 || *browser == "" {
		t.Skip("measures with -clusters and -browser")
	}
	h := newFleet(t, *clusters, nil)
	where, err := json.Marshal(map[string]string{"hub": h.URL, "hubToken": hubToken, "browser": *browser})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", "browser/fleet-scale.mjs")
	cmd.Env = append(os.Environ(), "SLUICE_UI_WORLD="+string(where))
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
}

// anyCluster is the access of the one user of the hub.
type anyCluster struct{}

func (anyCluster) MayRead(_ context.Context, who hub.Visitor, _ string) error {
	if who.Token != hubToken {
		return hub.Refuse(http.StatusUnauthorized, "the token is not valid, or it has expired",
			"Send a token of the hub's cluster")
	}
	return nil
}

// linked are streams of one cluster, whose UI is at a URL.
type linked struct {
	name string
	to   *url.URL
}

func (linked) Accept(http.ResponseWriter, *http.Request, string) {}

func (l *linked) IsLinked(cluster string) bool { return l != nil && cluster == l.name }

// Forward sends requests as a stream does: the cluster knows its own host only.
func (l *linked) Forward(w http.ResponseWriter, r *http.Request, _ string) {
	r.Header.Del("Origin")
	proxy := &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(l.to) }, FlushInterval: -1}
	proxy.ServeHTTP(w, r)
}

// newFleet starts a hub to which clusters have reported.
func newFleet(t testing.TB, count int, streams *linked) *httptest.Server {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k",
		Algorithm: string(jose.ES256), Use: "sig"}}})
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	clock := func() time.Time { return start } // stands still, so that no cluster becomes silent during the tests
	h := &hub.Hub{Log: logr.Discard(), Now: clock, Epoch: "e", Registry: &hub.Registry{Audience: hubAudience,
		Egress: &egress.Policy{}, Now: clock}}
	if streams != nil {
		h.Streams = streams
	}
	server := httptest.NewUnstartedServer(nil)
	sessions, err := login.New(login.Options{Site: "sluice-hub", About: "the hub", TTL: time.Hour, Now: clock,
		ExternalURL: &url.URL{Scheme: "http", Host: server.Listener.Addr().String()}, Log: logr.Discard(),
		Key: []byte(strings.Repeat("k", 32))})
	if err != nil {
		t.Fatal(err)
	}
	serves := &hub.Server{Hub: h, Access: anyCluster{}, Pages: web.Pages(), Login: sessions, TokenLogin: true}
	server.Config.Handler = serves.Handler()
	server.Start()
	t.Cleanup(server.Close)
	for n := range count {
		name := fleetName(n)
		labels := "stage=" + fleetStage(n) + ",region=" + []string{"eu", "us", "asia"}[n%3]
		h.Registry.Set(&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{fleet.ClusterLabel: name}},
			Data: map[string][]byte{"issuer": []byte(issuerOf(name)), "jwks": keys, "labels": []byte(labels),
				"subject": []byte("system:serviceaccount:flux-system:sluice")},
		})
	}
	go func() { _ = h.Start(t.Context()) }()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key},
		(&jose.SignerOptions{}).WithHeader("kid", "k"))
	if err != nil {
		t.Fatal(err)
	}
	for n := range count {
		if n == 4 {
			continue // one has never reported
		}
		name, now := fleetName(n), start
		token, err := jwt.Signed(signer).Claims(jwt.Claims{Issuer: issuerOf(name), Audience: jwt.Audience{hubAudience},
			Subject: "system:serviceaccount:flux-system:sluice", NotBefore: jwt.NewNumericDate(now),
			Expiry: jwt.NewNumericDate(now.Add(time.Hour)), IssuedAt: jwt.NewNumericDate(now)}).Serialize()
		if err != nil {
			t.Fatal(err)
		}
		sendReport(t, server.URL, token, name, fleetSummary(n))
	}
	return server
}

// issuerOf returns the issuer of the tokens of a cluster.
func issuerOf(name string) string { return "https://" + name + ".example.com" }

func fleetName(n int) string { return fmt.Sprintf("%s-%03d", []string{"edge", "shop", "bank"}[n%3], n) }

func fleetStage(n int) string {
	switch {
	case n%10 == 0:
		return "staging"
	case n%10 < 3:
		return "canary"
	}
	return "production"
}

// sendReport sends the report of a cluster.
func sendReport(t testing.TB, address, token, name string, s *fleet.Summary) {
	t.Helper()
	body, err := json.Marshal(fleet.Report{Cluster: name, Instance: "i-" + name, Sequence: 1, Summary: s})
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address+fleet.ReportsPath, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(fleet.ClusterHeader, name)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		var answer fleet.Error
		err := json.NewDecoder(resp.Body).Decode(&answer)
		t.Fatalf("the hub refused the report of %s: %d %+v (%v)", name, resp.StatusCode, answer, err)
	}
}

// fleetSummary returns the summary of a cluster: a commit went through staging and canary, and is on its way to
// production.
func fleetSummary(n int) *fleet.Summary {
	now := time.Now().UTC()
	commit := func(letter string, ago time.Duration, subject string) fleet.Revision {
		return fleet.Revision{Source: "GitRepository/flux-system/fleet", URL: "https://git.example/acme/fleet",
			Revision: "main@sha1:" + strings.Repeat(letter, 40), Subject: subject, Author: "mona <mona@example.com>",
			Committed: now.Add(-ago), Fetched: now.Add(-ago), Objects: 12, Current: 12}
	}
	latest := commit("c", 20*time.Minute, "Raise the limits of checkout")
	before := commit("b", 3*time.Hour, "Add a cache to the catalog")
	s := &fleet.Summary{Time: now, Version: "v0.1.0", Counts: fleet.Counts{"ready": 40},
		Kinds:     map[string]fleet.Counts{"Kustomization": {"ready": 32}, "HelmRelease": {"ready": 8}},
		Revisions: []fleet.Revision{latest}}
	switch {
	case n%17 == 3:
		s.Counts = fleet.Counts{"failed": 1 + n%4, "ready": 36}
		s.Problems = []fleet.Problem{{Object: "Kustomization/shop/checkout", State: "failed",
			Reason: "HealthCheckFailed", Since: now.Add(-time.Hour), Affected: 2,
			Message: "Deployment/shop/checkout: image pull failed <img src=x onerror=window.hacked=1>"}}
		fallthrough
	case n%7 == 3:
		s.Revisions = []fleet.Revision{before}
	case n%7 == 5 && fleetStage(n) == "production":
		s.Revisions[0].Current = 9
		s.Revisions[0].Applied = []fleet.Applied{{Revision: before.Revision, Subject: before.Subject, Objects: 3}}
		s.Counts = fleet.Counts{"waiting": 3, "ready": 37}
		s.Changes = []fleet.Change{{Gate: "Gate/shop/release", Object: "Kustomization/shop/checkout",
			Revision: latest.Revision, Risk: "medium", Message: "gate 'shop/release': 0 of 1 approvals",
			Since: now.Add(-time.Duration(n) * time.Minute), Required: 1, Groups: []string{"shop-team"}}}
	}
	if n%11 == 8 {
		s.Version = "v0.0.9"
	}
	return s
}

// fleet starts a hub, through which the UI in the cluster is reached as that of one cluster, and returns its address
// and a token of a user of the cluster.
func (b *bench) fleet(ui string) (address, token string, err error) {
	to, err := url.Parse(ui)
	if err != nil {
		return "", "", err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "viewer"}}
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "viewer"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "shop-team"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "shop", Name: "viewer"}}}
	request := &authenticationv1.TokenRequest{}
	if err := errors.Join(b.Client.Create(b.Context(), account), b.Client.Create(b.Context(), binding)); err != nil {
		return "", "", err
	}
	if err := b.Client.SubResource("token").Create(b.Context(), account, request); err != nil {
		return "", "", err
	}
	const waits = 5 // the number of a cluster where a change waits
	h := newFleet(b, fleetSize, &linked{name: fleetName(waits), to: to})
	return strings.Replace(h.URL, "127.0.0.1", "localhost", 1), request.Status.Token, nil
}
