package auth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"

	"github.com/sluice-gitops/sluice/internal/text/fault"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// clouds is a transport that sends requests for the hosts of a test to local servers. It counts the requests.
type clouds struct {
	t       *testing.T
	servers map[string]*httptest.Server

	mu       sync.Mutex
	requests map[string]int
}

func newClouds(t *testing.T, hosts map[string]http.HandlerFunc) *clouds {
	t.Helper()
	c := &clouds{t: t, servers: map[string]*httptest.Server{}, requests: map[string]int{}}
	for host, handler := range hosts {
		c.servers[host] = httptest.NewServer(handler)
		t.Cleanup(c.servers[host].Close)
	}
	return c
}

func (c *clouds) RoundTrip(req *http.Request) (*http.Response, error) {
	s := c.servers[req.URL.Host]
	if s == nil {
		return nil, fmt.Errorf("no host %s", req.URL.Host)
	}
	c.mu.Lock()
	c.requests[req.URL.Host]++
	c.mu.Unlock()
	out := req.Clone(req.Context())
	out.Host, out.URL.Scheme, out.URL.Host = req.URL.Host, "http", strings.TrimPrefix(s.URL, "http://")
	return http.DefaultTransport.RoundTrip(out)
}

// total returns the number of requests.
func (c *clouds) total() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, m := range c.requests {
		n += m
	}
	return n
}

// accounts are service accounts and their annotations.
type accounts map[types.NamespacedName]map[string]string

func (a accounts) Annotations(_ context.Context, account types.NamespacedName) (map[string]string, error) {
	if annotations, ok := a[account]; ok {
		return annotations, nil
	}
	return nil, errors.New("not found")
}

func (a accounts) Token(_ context.Context, account types.NamespacedName, audience string) (string, error) {
	return tokenOf(account, audience), nil
}

func tokenOf(account types.NamespacedName, audience string) string {
	return "token-of:" + account.String() + ":for:" + audience
}

var (
	app   = types.NamespacedName{Namespace: "team", Name: "app"}
	other = types.NamespacedName{Namespace: "other", Name: "app"}
)

// expect checks one property of a request.
func expect(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %q, want %q", what, got, want)
	}
}

func answer(w http.ResponseWriter, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format, args...)
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// login returns the login of an authenticator.
func login(t *testing.T, a authn.Authenticator, err error) authn.AuthConfig {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	c, err := authn.Authorization(within(t), a)
	if err != nil {
		t.Fatal(err)
	}
	return *c
}

// mustFail checks that err is a fault with a reason, whose message contains the words and no secret.
func mustFail(t *testing.T, err error, words ...string) {
	t.Helper()
	f := fault.As(err)
	if f == nil {
		t.Fatalf("want a fault, got %v", err)
	}
	text := f.Error()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("the fault %q does not contain %q", text, w)
		}
	}
	for _, s3cret := range []string{"token-of:", "s3cret", "\n"} {
		if strings.Contains(text, s3cret) {
			t.Errorf("the fault %q contains %q", text, s3cret)
		}
	}
	if f.Reason == "" {
		t.Errorf("the fault has no reason: %q", text)
	}
}

// roundTrips runs step, and checks the number of requests.
func (c *clouds) roundTrips(what string, want int, step func()) {
	c.t.Helper()
	before := c.total()
	step()
	if got := c.total() - before; got != want {
		c.t.Errorf("%s: %d requests, want %d", what, got, want)
	}
}

func at(t time.Time) *testclock.FakePassiveClock { return testclock.NewFakePassiveClock(t) }

func form(t *testing.T, r *http.Request) func(string) string {
	t.Helper()
	if err := r.ParseForm(); err != nil {
		t.Error(err)
	}
	return r.PostForm.Get
}

func body(t *testing.T, r *http.Request) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	return string(b)
}
