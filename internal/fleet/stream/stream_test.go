package stream

import (
	"bufio"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/sluice-gitops/sluice/internal/fleet"
	"github.com/sluice-gitops/sluice/internal/fleet/client"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/network/listen"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// site is a hub with TLS. The bearer token of a cluster is its name.
type site struct {
	*testing.T
	*Hub
	server *httptest.Server
	known  sync.Map
}

func newSite(t *testing.T, edit ...func(*Hub)) *site {
	s := &site{T: t}
	s.Hub = &Hub{Log: logr.Discard(), LoginHosts: []string{"idp.example.com"}, IsKnown: func(name string) bool {
		_, gone := s.known.Load("not " + name)
		return !gone
	}}
	for _, f := range edit {
		f(s.Hub)
	}
	mux := http.NewServeMux()
	mux.HandleFunc(fleet.StreamPath, func(w http.ResponseWriter, r *http.Request) {
		s.Accept(w, r, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	})
	mux.HandleFunc(fleet.ClustersPath+"/{name}/ui/{path...}", func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("name")
		http.StripPrefix(Prefix(name), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.Forward(w, r, name)
		})).ServeHTTP(w, r)
	})
	s.server = httptest.NewUnstartedServer(nil)
	s.server.Config = listen.Server(guard.Handler("request to the hub", mux))
	s.server.StartTLS()
	t.Cleanup(func() { s.server.CloseClientConnections(); s.server.Close() })
	return s
}

func (s *site) url() *url.URL {
	u, _ := url.Parse(s.server.URL)
	return u
}

func tokenOf(name string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return name, nil }
}

// as returns the client of a cluster.
func (s *site) as(name string) *client.Client {
	s.Helper()
	file := filepath.Join(s.TempDir(), "ca.pem")
	raw := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.server.Certificate().Raw})
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		s.Fatal(err)
	}
	c, err := client.New(client.Options{URL: s.server.URL, CAFile: file, Token: tokenOf(name), Cluster: name})
	if err != nil {
		s.Fatal(err)
	}
	return c
}

// cluster runs the side of a cluster until the test ends, or the returned function is called.
func (s *site) cluster(name string, h http.HandlerFunc) (stop func()) {
	ctx, cancel := context.WithCancel(s.Context())
	c := &Cluster{Client: s.as(name), Handler: h, Log: logr.Discard(), spread: 50 * time.Millisecond}
	var ended guard.WaitGroup
	ended.Go("a cluster", func() { c.Run(ctx) })
	stop = func() { cancel(); ended.Wait() }
	s.Cleanup(stop)
	return stop
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	testenv.Eventually(t, what, func() error {
		if !f() {
			return errors.New("this did not come true")
		}
		return nil
	})
}

func (s *site) linked(name string) {
	s.Helper()
	eventually(s.T, name+" has a stream", func() bool { return s.IsLinked(name) })
}

type reply struct {
	status int
	header http.Header
	body   string
}

func (s *site) do(cluster, method, path, body string, edit ...func(*http.Request)) reply {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), method, s.server.URL+Prefix(cluster)+path,
		strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	for _, f := range edit {
		f(r)
	}
	resp, err := s.server.Client().Transport.RoundTrip(r)
	if err != nil {
		return reply{body: err.Error()}
	}
	raw, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	return reply{resp.StatusCode, resp.Header, string(raw)}
}

func sendJSON(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, text)
}

func TestRequestsReachTheCluster(t *testing.T) {
	s := newSite(t)
	var seen *http.Request
	s.cluster("edge-7", func(w http.ResponseWriter, r *http.Request) {
		seen = r
		raw, _ := io.ReadAll(r.Body)
		sendJSON(w, fmt.Sprintf("%s %s %q", r.Method, r.URL, raw))
	})
	s.linked("edge-7")
	path := "/api/v1/objects/Gate/a%2Fb/c/approve?x=1"
	got := s.do("edge-7", http.MethodPost, path, `{"a":1}`, func(r *http.Request) {
		r.Host = "hub.example.com"
		for name, value := range map[string]string{"Authorization": "Bearer mine", "X-Sluice-Csrf": "c",
			"Origin": "https://hub.example.com", "X-Forwarded-Access-Token": "of a proxy", "X-Other": "x"} {
			r.Header.Set(name, value)
		}
		r.Header.Set("Cookie", "__Host-sluice-session=hub; __Host-sluice-hub-session=hub; "+
			"__Host-sluice-hub-token=hub; sluice-hub-login=hub; __Secure-sluice-at.edge-7.sluice-session=own; "+
			"sluice-at.edge-7.sluice-login=l; __Secure-sluice-at.edge-8.sluice-session=other; sluice-at.edge-7.x=y; "+
			"z=1")
	})
	if want := `POST /api/v1/objects/Gate/a%2Fb/c/approve?x=1 "{\"a\":1}"`; got.status != 200 || got.body != want {
		t.Errorf("%d %s, want %s", got.status, got.body, want)
	}
	if seen.Host != "hub.example.com" || seen.Header.Get("Authorization") != "Bearer mine" ||
		seen.Header.Get("X-Sluice-Csrf") != "c" || seen.Header.Get("Origin") != "https://hub.example.com" {
		t.Errorf("the cluster got %s %v", seen.Host, seen.Header)
	}
	if c := seen.Header.Get("Cookie"); c != "__Host-sluice-session=own; sluice-login=l" {
		t.Errorf("the cluster got the cookies %q", c)
	}
	for _, name := range []string{"X-Forwarded-Access-Token", "X-Other", "X-Forwarded-For"} {
		if seen.Header.Get(name) != "" {
			t.Errorf("the cluster got %s", name)
		}
	}
	if r := s.do("edge-7", http.MethodGet, "/", ""); r.status != http.StatusNotFound ||
		!strings.Contains(r.body, "Open /clusters/edge-7/") {
		t.Errorf("the first page: %d %s", r.status, r.body)
	}
	if r := s.do("edge-7", http.MethodGet, "/api/v1/me", "", func(r *http.Request) {
		r.Header.Set("Authorization", "Basic aHViOnNlY3JldA==")
	}); r.status != 200 || seen.Header.Get("Authorization") != "" {
		t.Errorf("the cluster got the password of a proxy: %v", seen.Header)
	}
	if r := s.do("edge-7", http.MethodPost, "/api/v1/x", strings.Repeat("x", maxBody+1)); r.status !=
		http.StatusRequestEntityTooLarge {
		t.Errorf("a large body: %d %s", r.status, r.body)
	}
}

func TestEventsArriveAtOnce(t *testing.T) {
	s := newSite(t)
	next, gone := make(chan string), make(chan struct{})
	s.cluster("edge-7", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for {
			select {
			case text := <-next:
				_, _ = fmt.Fprintf(w, "data: %s\n\n", text)
				_ = http.NewResponseController(w).Flush()
			case <-r.Context().Done():
				close(gone)
				return
			}
		}
	})
	s.linked("edge-7")
	ctx, cancel := context.WithCancel(t.Context())
	r, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.server.URL+Prefix("edge-7")+"/api/v1/stream", nil)
	guard.Go("the first event", func() { next <- "0" })
	resp, err := s.server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewReader(resp.Body)
	for i := range 3 {
		if i > 0 {
			next <- fmt.Sprint(i)
		}
		for _, want := range []string{fmt.Sprintf("data: %d\n", i), "\n"} {
			if got, err := lines.ReadString('\n'); got != want || err != nil {
				t.Fatalf("%q %v, want %q", got, err, want)
			}
		}
	}
	cancel()
	select {
	case <-gone:
	case <-time.After(5 * time.Minute):
		t.Error("the cluster does not see that the user is gone")
	}
}

func TestWithoutStream(t *testing.T) {
	s := newSite(t)
	if r := s.do("edge-7", http.MethodGet, "/api/v1/me", ""); r.status != http.StatusServiceUnavailable ||
		!strings.Contains(r.body, "cluster 'edge-7' has no stream to the hub, so only its summary can be shown") ||
		!strings.Contains(r.body,
			"See its controller's log for 'stream to the hub'. A new stream can take 30 seconds") {
		t.Errorf("%d %s", r.status, r.body)
	}
	resp, err := s.server.Client().Post(s.server.URL+fleet.StreamPath, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusUpgradeRequired || !strings.Contains(string(raw),
		"A proxy before the hub must use HTTP/1.1 and pass on the header Upgrade") {
		t.Errorf("a request without Upgrade: %d %s", resp.StatusCode, raw)
	}
}

func TestClusterConnectsAgain(t *testing.T) {
	s := newSite(t)
	stop := s.cluster("edge-7", func(w http.ResponseWriter, _ *http.Request) { sendJSON(w, `"first"`) })
	s.linked("edge-7")
	first := s.link("edge-7")
	_ = first.conn.Close() // as when a replica of the hub is replaced
	eventually(t, "the cluster has another stream", func() bool {
		l := s.link("edge-7")
		return l != nil && l != first
	})
	if r := s.do("edge-7", http.MethodGet, "/api/v1/me", ""); r.body != `"first"` {
		t.Errorf("after it connected again: %s", r.body)
	}
	stop()
	eventually(t, "the stream is gone", func() bool { return !s.IsLinked("edge-7") })
}

// TestClustersDoNotComeAtOnce counts how many of 1,000 clusters come back in a second after a hub was away. On average,
// it is 33 of them.
func TestClustersDoNotComeAtOnce(t *testing.T) {
	for _, away := range []time.Duration{0, time.Second, 10 * time.Second, 40 * time.Second, time.Hour} {
		perSecond, most, last := map[time.Duration]int{}, 0, time.Duration(0)
		for range 1000 {
			at := time.Duration(0)
			for failures := 0; failures == 0 || at < away; failures++ {
				at += pause(failures, spread)
			}
			second := (at - away).Truncate(time.Second)
			perSecond[second]++
			most, last = max(most, perSecond[second]), max(last, at-away)
		}
		if most > 66 || last > spread || len(perSecond) < 30 {
			t.Errorf("away for %s: %d come in a second, in %d different seconds, the last one after %s", away, most,
				len(perSecond), last)
		}
	}
}

// TestManyStreamsOfOneCluster opens many streams of a cluster, which may keep one.
func TestManyStreamsOfOneCluster(t *testing.T) {
	s := newSite(t)
	s.cluster("edge-7", func(w http.ResponseWriter, _ *http.Request) { sendJSON(w, `{}`) })
	s.linked("edge-7")
	c := &Cluster{Client: s.as("evil")}
	var mu sync.Mutex
	var opened []net.Conn
	refused, began := 0, time.Now()
	var all guard.WaitGroup
	for range 20 {
		all.Go("a hostile cluster", func() {
			for range 10 {
				conn, err := c.open(t.Context())
				mu.Lock()
				if err == nil {
					opened = append(opened, conn)
				} else if strings.Contains(err.Error(), "If two processes report as this cluster, give each a name of "+
					"its own") {
					refused++
				} else {
					t.Error(err)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	took := time.Since(began)
	t.Logf("%d opened, %d refused in %s", len(opened), refused, took)
	if len(opened) > 100+20*int(took/minAge) {
		t.Errorf("%d streams were opened in %s, %d refused", len(opened), took, refused)
	}
	if r := s.do("edge-7", http.MethodGet, "/api/v1/me", ""); r.status != http.StatusOK {
		t.Errorf("another cluster: %d %s", r.status, r.body)
	}
	for _, conn := range opened {
		_ = conn.Close()
	}
}

func TestRequestsAreBounded(t *testing.T) {
	s := newSite(t)
	entered, release := make(chan struct{}, maxRequests), make(chan struct{})
	for _, name := range []string{"edge-7", "edge-8"} {
		s.cluster(name, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/api/v1/slow" {
				entered <- struct{}{}
				<-release
			}
			sendJSON(w, `{}`)
		})
		s.linked(name)
	}
	var all guard.WaitGroup
	for range maxRequests {
		all.Go("a slow request", func() {
			if r := s.do("edge-7", http.MethodGet, "/api/v1/slow", ""); r.status != http.StatusOK {
				t.Errorf("a slow request: %d %s", r.status, r.body)
			}
		})
	}
	for range maxRequests {
		<-entered
	}
	if r := s.do("edge-7", http.MethodGet, "/api/v1/me", ""); r.status != http.StatusServiceUnavailable ||
		!strings.Contains(r.body, "Close pages that show clusters, and try again") {
		t.Errorf("one request too many: %d %s", r.status, r.body)
	}
	if r := s.do("edge-8", http.MethodGet, "/api/v1/me", ""); r.status != http.StatusOK {
		t.Errorf("another cluster: %d %s", r.status, r.body)
	}
	close(release)
	all.Wait()
}

func TestRefusalsSayWhatToDo(t *testing.T) {
	for name, test := range map[string]struct {
		status int
		body   string
		want   string
	}{
		"a hub": {401, `{"error":"the token has expired"}`,
			"the hub answers 401: the token has expired"},
		"a proxy": {502, `<html>`, "502: Bad Gateway. A proxy before the hub must pass on the header Upgrade"},
		"not a hub": {200, `{}`, "200: OK. A proxy before the hub must pass on the header Upgrade, and the address " +
			"must be that of a hub"},
		"a hub that ends": {0, "", "cannot reach hub 127.0.0.1"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if test.status == 0 {
				panic(http.ErrAbortHandler)
			}
			w.WriteHeader(test.status)
			_, _ = io.WriteString(w, test.body)
		}))
		hub, err := client.New(client.Options{URL: server.URL, Token: tokenOf("edge-7")})
		if err != nil {
			t.Fatal(err)
		}
		c := &Cluster{Client: hub}
		if _, err := c.open(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
		server.Close()
	}
	other := newSite(t).as("edge-7")
	other.CAFile = "" // the hub has another certificate
	if _, err := (&Cluster{Client: other}).open(t.Context()); err == nil || !strings.Contains(err.Error(),
		"is not trusted") || !strings.Contains(err.Error(), "Set the file with its certificate authority") {
		t.Errorf("another certificate: %v", err)
	}
	hub, err := client.New(client.Options{URL: "https://hub.example.com",
		Token: func(context.Context) (string, error) { return "", errors.New("no rights") }})
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{Client: hub}
	if _, err := c.open(t.Context()); err == nil || !strings.Contains(err.Error(), "no rights") {
		t.Errorf("without a token: %v", err)
	}
}
