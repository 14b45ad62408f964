package githost

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/fault"
)

const commit = "0123456789abcdef0123456789abcdef01234567"

// exchange is a request that a host documents, and its answer.
type exchange struct {
	request string // METHOD host/path?query, with the query in order
	body    string // JSON; empty for none
	status  int    // 200 when 0
	answer  string
	header  map[string]string // of the answer
}

// script is a host that expects requests in an order.
type script struct {
	t         *testing.T
	mu        sync.Mutex
	exchanges []exchange
	login     string // what every request must have in Authorization
}

func play(t *testing.T, login string, exchanges ...exchange) detour {
	t.Helper()
	s := &script{t: t, exchanges: exchanges, login: login}
	server := httptest.NewServer(s)
	t.Cleanup(func() {
		server.Close()
		for _, e := range s.exchanges {
			t.Errorf("not asked: %s", e.request)
		}
	})
	return detour(server.URL)
}

// detour brings every host's requests to one server.
type detour string

func (d detour) RoundTrip(req *http.Request) (*http.Response, error) {
	to, err := url.Parse(string(d))
	if err != nil {
		return nil, err
	}
	req = req.Clone(req.Context())
	req.Host, req.URL.Scheme, req.URL.Host = req.URL.Host, to.Scheme, to.Host
	return http.DefaultTransport.RoundTrip(req)
}

// answering is a host that answers everything in one way.
func answering(t *testing.T, handler http.HandlerFunc) detour {
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return detour(server.URL)
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := r.Method + " " + r.Host + r.URL.EscapedPath()
	if r.URL.RawQuery != "" {
		got += "?" + r.URL.RawQuery
	}
	if len(s.exchanges) == 0 {
		s.t.Errorf("unexpected: %s", got)
		w.WriteHeader(http.StatusTeapot)
		return
	}
	e := s.exchanges[0]
	s.exchanges = s.exchanges[1:]
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.t.Error(err)
	}
	if got != e.request {
		s.t.Errorf("the request is\n%s, not\n%s", got, e.request)
	}
	if !sameJSON(s.t, string(body), e.body) {
		s.t.Errorf("the body of %s is\n%s, not\n%s", got, body, e.body)
	}
	if login := r.Header.Get("Authorization"); login != s.login {
		s.t.Errorf("the login of %s is %q, not %q", got, login, s.login)
	}
	if e.body != "" && r.Header.Get("Content-Type") != "application/json" {
		s.t.Errorf("the body of %s is of type %q", got, r.Header.Get("Content-Type"))
	}
	for name, value := range e.header {
		w.Header().Set(name, value)
	}
	if e.status != 0 {
		w.WriteHeader(e.status)
	}
	_, _ = io.WriteString(w, e.answer)
}

func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	if a == "" || b == "" {
		return a == b
	}
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		t.Errorf("no JSON: %s, %s", a, b)
	}
	return reflect.DeepEqual(x, y)
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// client speaks with a script; secret is keys and values.
func client(t *testing.T, s detour, kind Kind, address string, secret ...string) *Client {
	t.Helper()
	repo, err := Parse(kind, address)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Repository: repo, Transport: s, Secret: map[string][]byte{}}
	for i := 0; i < len(secret); i += 2 {
		o.Secret[secret[i]] = []byte(secret[i+1])
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// terminal is the fault of err, which must be terminal.
func terminal(t *testing.T, err error) *fault.Fault {
	t.Helper()
	f := fault.As(err)
	if f == nil || !f.Terminal {
		t.Fatalf("%v is not terminal", err)
	}
	return f
}
