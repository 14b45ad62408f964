package hub

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"

	"github.com/sluice-gitops/sluice/internal/fleet"
	"github.com/sluice-gitops/sluice/internal/fleet/client"
	"github.com/sluice-gitops/sluice/internal/fleet/report"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// CAFile is caFile, for tests outside of the package.
var CAFile = caFile

// caFile writes the certificate of a server as that of an authority.
func caFile(t *testing.T, server *httptest.Server) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "ca.crt")
	b := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestReporterOverTLS reports to a hub that is replaced by an empty one, while the state of the cluster changes.
func TestReporterOverTLS(t *testing.T) {
	t.Parallel()
	clock := &testClock{now: time.Now()}
	edge := newIssuer(t)
	var current atomic.Pointer[Server]
	replace := func() *Server {
		s := newTestHub(t, clock, nil)
		s.register(edge.secret("edge-7"))
		current.Store(s)
		return s
	}
	replace()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		current.Load().Handler().ServeHTTP(w, r)
	}))
	defer server.Close()
	c, err := client.New(client.Options{URL: server.URL, CAFile: caFile(t, server), Cluster: "edge-7",
		Token: func(context.Context) (string, error) { return edge.token(t, clock.Now(), nil), nil }})
	if err != nil {
		t.Fatal(err)
	}
	var failed atomic.Int64
	r := report.New()
	r.Client, r.Cluster, r.Now = c, "edge-7", clock.Now
	r.Log = funcr.New(func(_, text string) { t.Log(text) }, funcr.Options{})
	r.Summarize = func(context.Context) (*fleet.Summary, error) {
		return &fleet.Summary{Time: clock.Now(), Counts: fleet.Counts{"failed": int(failed.Load())}}, nil
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Start(ctx) }()
	await := func(what string, want int) {
		t.Helper()
		testenv.Eventually(t, what, func() error {
			one, err := current.Load().Hub.Get(ctx, "edge-7")
			if err == nil && one.Summary != nil && one.Summary.Counts["failed"] == want {
				return nil
			}
			return fmt.Errorf("the hub has %+v, %w", one, err)
		})
	}
	await("the first report", 0)
	failed.Store(3)
	r.Changed()
	await("a change", 3)
	replace()
	r.Changed() // nothing did: the new hub refuses the heartbeat, and gets the summary
	await("another hub", 3)
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestHubsThatAreWrong asks servers that do not answer as a hub does, and checks that the error says what to do.
func TestHubsThatAreWrong(t *testing.T) {
	t.Parallel()
	hangs := make(chan struct{})
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get(fleet.ClusterHeader) {
		case "html":
			w.WriteHeader(http.StatusBadGateway)
			_, _ = w.Write([]byte("<html><script>"))
		case "redirect":
			http.Redirect(w, r, "https://other.example.com/", http.StatusFound)
		case "busy":
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte(`{"error":"too many","hint":"Try again"}`))
		case "hangs":
			<-hangs
		case "text":
			_, _ = w.Write([]byte("hello"))
		}
	}))
	defer server.Close()
	defer close(hangs)
	other := httptest.NewTLSServer(nil)
	defer other.Close()
	trusted, foreign := caFile(t, server), filepath.Join(t.TempDir(), "other.crt")
	if err := os.WriteFile(foreign, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ ca, url, says string }{
		"html":        {says: "502: Bad Gateway. This is not the answer of a hub: check what runs at"},
		"redirect":    {says: "302: Found. This is not the answer of a hub"},
		"busy":        {says: "503: too many. Try again"},
		"hangs":       {says: "does not answer within the time"},
		"text":        {says: "cannot be read"},
		"certificate": {ca: "none", says: "is not trusted"},
		"authority":   {ca: foreign, says: "has no certificate in PEM"},
		"missing":     {ca: "/missing", says: "cannot read the certificate authorities"},
		"away":        {url: "https://127.0.0.1:1", says: "cannot reach hub 127.0.0.1:1"},
	} {
		t.Run(name, func(t *testing.T) {
			o := client.Options{URL: server.URL, CAFile: trusted, Cluster: name,
				Token: func(context.Context) (string, error) { return "secret-token", nil }}
			if test.ca == "none" {
				o.CAFile = ""
			} else if test.ca != "" {
				o.CAFile = test.ca
			}
			if test.url != "" {
				o.URL = test.url
			}
			c, err := client.New(o)
			if err != nil {
				t.Fatal(err)
			}
			ctx := t.Context()
			if name == "hangs" {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 500*time.Millisecond)
				defer cancel()
			}
			_, err = c.List(ctx, "", time.Minute) // longer than a slow machine needs for an answer
			if err == nil || !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(),
				"secret-token") {
				t.Errorf("want %q, got %v", test.says, err)
			}
		})
	}
	for _, url := range []string{"http://hub.example.com", "https://hub.example.com/path", "hub", "https://u:p@hub"} {
		if _, err := client.New(client.Options{URL: url}); err == nil {
			t.Errorf("%s is accepted", url)
		}
	}
}
