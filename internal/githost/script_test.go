package githost

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const commit = "0123456789abcdef0123456789abcdef01234567"

// exchange is an expected request and its response.
type exchange struct {
	Request  string            `json:"request"`          // METHOD host/path?query, with a sorted query
	Body     json.RawMessage   `json:"body,omitempty"`   // empty for none
	Status   int               `json:"status,omitempty"` // 0 is 200
	Response json.RawMessage   `json:"response,omitempty"`
	Header   map[string]string `json:"header,omitempty"` // of the response
}

func raw(s string) json.RawMessage { return json.RawMessage(s) }

// testCase is an entry of a file in testdata.
type testCase struct {
	Name      string            `json:"name"`
	Kind      Kind              `json:"kind"`
	Address   string            `json:"address"`
	Login     string            `json:"login"` // expected Authorization header
	Secret    map[string]string `json:"secret,omitempty"`
	Labels    bool              `json:"labels,omitempty"` // the host supports labels
	URL       string            `json:"url,omitempty"`    // expected result
	Personal  bool              `json:"personal,omitempty"`
	Grant     string            `json:"grant,omitempty"`
	Exchanges []exchange        `json:"exchanges"`
	Unchanged json.RawMessage   `json:"unchanged,omitempty"`
}

// loadCases reads a file in testdata. COMMIT stands for the commit and KEY for the key of its status.
func loadCases(t *testing.T, file string) (cases []testCase) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	variables := strings.NewReplacer("COMMIT", commit, "KEY", digest("kustomization/apps/1a2b"))
	if err := yaml.UnmarshalStrict([]byte(variables.Replace(string(content))), &cases); err != nil {
		t.Fatal(err)
	}
	return cases
}

// script is a server that expects requests in a fixed order.
type script struct {
	t         *testing.T
	mu        sync.Mutex
	exchanges []exchange
	login     string // expected Authorization header of each request
}

func startScript(t *testing.T, login string, exchanges ...exchange) redirectTo {
	t.Helper()
	s := &script{t: t, exchanges: exchanges, login: login}
	server := httptest.NewServer(s)
	t.Cleanup(func() {
		server.Close()
		for _, e := range s.exchanges {
			t.Errorf("missing request: %s", e.Request)
		}
	})
	return redirectTo(server.URL)
}

// redirectTo is a transport that sends the requests for all hosts to one server.
type redirectTo string

func (d redirectTo) RoundTrip(req *http.Request) (*http.Response, error) {
	to, err := url.Parse(string(d))
	if err != nil {
		return nil, err
	}
	req = req.Clone(req.Context())
	req.Host, req.URL.Scheme, req.URL.Host = req.URL.Host, to.Scheme, to.Host
	return http.DefaultTransport.RoundTrip(req)
}

// startServer starts a server that handles the requests for all hosts.
func startServer(t *testing.T, handler http.HandlerFunc) redirectTo {
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return redirectTo(server.URL)
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := r.Method + " " + r.Host + r.URL.EscapedPath()
	if r.URL.RawQuery != "" {
		got += "?" + r.URL.RawQuery
	}
	if len(s.exchanges) == 0 {
		s.t.Errorf("unexpected request: %s", got)
		w.WriteHeader(http.StatusTeapot)
		return
	}
	e := s.exchanges[0]
	s.exchanges = s.exchanges[1:]
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.t.Error(err)
	}
	if got != e.Request {
		s.t.Errorf("got request\n%s, want\n%s", got, e.Request)
	}
	if !equalJSON(s.t, string(body), string(e.Body)) {
		s.t.Errorf("%s: got body\n%s, want\n%s", got, body, e.Body)
	}
	if login := r.Header.Get("Authorization"); login != s.login {
		s.t.Errorf("%s: got login %q, want %q", got, login, s.login)
	}
	if len(e.Body) > 0 && r.Header.Get("Content-Type") != "application/json" {
		s.t.Errorf("%s: got Content-Type %q", got, r.Header.Get("Content-Type"))
	}
	for name, value := range e.Header {
		w.Header().Set(name, value)
	}
	if e.Status != 0 {
		w.WriteHeader(e.Status)
	}
	_, _ = w.Write(e.Response)
}

func equalJSON(t *testing.T, a, b string) bool {
	t.Helper()
	if a == "" || b == "" {
		return a == b
	}
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		t.Errorf("not JSON: %s, %s", a, b)
	}
	return reflect.DeepEqual(x, y)
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// newClient returns a client whose requests go to a test server; secret is pairs of keys and values.
func newClient(t *testing.T, s redirectTo, kind Kind, address string, secret ...string) *Client {
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

// expectTerminal returns the fault of err, which must be terminal.
func expectTerminal(t *testing.T, err error) *fault.Fault {
	t.Helper()
	f := fault.As(err)
	if f == nil || !f.Terminal {
		t.Fatalf("got %v, want a terminal fault", err)
	}
	return f
}
