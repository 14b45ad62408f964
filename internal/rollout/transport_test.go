package rollout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/testenv/largekey"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// send sends a request to a cluster, and returns the error of the transport.
func send(t *testing.T, transports *Transports, url string) error {
	t.Helper()
	cfg, err := transports.configure(&rest.Config{Host: url})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/version", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := cfg.Transport.RoundTrip(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	return err
}

func TestRequestsToUnresponsiveClusterArePaused(t *testing.T) {
	const pause = 10 * time.Second // the first one of package hostguard
	var requests atomic.Int32
	var responsive atomic.Bool
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		requests.Add(1)
		if !responsive.Load() {
			<-release
		}
	}))
	defer server.Close()
	defer close(release)
	clock := testclock.NewFakeClock(time.Now())
	transports := NewTransports(&egress.Policy{}, clock)
	transports.FirstTimeout = 50 * time.Millisecond

	err := send(t, transports, server.URL)
	if f := fault.As(err); f == nil || f.RetryAfter != 0 ||
		f.Hint != "Check the address of spec.kubeConfig, and that the controller can reach it" {
		t.Fatalf("the first request: got %v, want a fault with a hint", err)
	}
	err = send(t, transports, server.URL)
	if f := fault.As(err); f == nil || f.RetryAfter != pause {
		t.Fatalf("the second request: got %v, want a fault to retry after %s", err, pause)
	}
	clock.Step(pause)
	err = send(t, transports, server.URL)
	if f := fault.As(err); f == nil || f.RetryAfter != 0 {
		t.Fatalf("after the pause: got %v, want a request", err)
	}
	clock.Step(pause)
	if f := fault.As(send(t, transports, server.URL)); f == nil || f.RetryAfter != pause {
		t.Errorf("got %v, want a second pause that is twice as long", f)
	}
	responsive.Store(true)
	transports.FirstTimeout, transports.ResponseTimeout = 3*time.Minute, 3*time.Minute
	clock.Step(2 * pause)
	for range 2 {
		if err := send(t, transports, server.URL); err != nil {
			t.Errorf("after the cluster recovered: %v", err)
		}
	}
	// The server may not have received the two that timed out.
	if n := requests.Load(); n > 4 {
		t.Errorf("%d requests were sent, want 4", n)
	}
}

// A cluster whose load balancer refuses or ends connections is probed once in a while, not by each pass.
func TestRequestsToUnreachableClusterArePaused(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var probes atomic.Int32
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			probes.Add(1)
			_ = c.Close()
		}
	}()
	clock := testclock.NewFakeClock(time.Now())
	transports := NewTransports(&egress.Policy{}, clock)
	address := "http://" + l.Addr().String()
	for pass := range 60 { // one each ten seconds
		err := send(t, transports, address)
		if f := fault.As(err); f == nil || !strings.Contains(f.Hint, "Check the address of spec.kubeConfig") {
			t.Fatalf("pass %d: got %v, want a fault with a hint", pass, err)
		}
		clock.Step(10 * time.Second)
	}
	_ = l.Close()
	<-done
	if n := probes.Load(); n > 10 { // a second connection for a probe that is repeated by net/http
		t.Errorf("%d connections in ten minutes", n)
	}
	clock.Step(time.Hour)
	if err := send(t, transports, address); err == nil || !strings.Contains(err.Error(), "cannot be reached: ") ||
		!strings.Contains(err.Error(), "connection refused") {
		t.Errorf("a host that refuses connections: %v", err)
	}
}

func TestCanceledRequestDoesNotPauseCluster(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/version" {
			<-r.Context().Done()
		}
	}))
	defer server.Close()
	transports := NewTransports(&egress.Policy{}, clock.RealClock{})
	cfg, err := transports.configure(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := cfg.Transport.RoundTrip(req); !errors.Is(err, context.Canceled) { //nolint:bodyclose // there is none
		t.Errorf("got error %v, want context.Canceled", err)
	}
	if err := send(t, transports, server.URL); err != nil {
		t.Errorf("the next request: %v", err)
	}
}

func TestLinkLocalClustersAreRejected(t *testing.T) {
	policy := &egress.Policy{RefuseLinkLocal: true}
	for _, url := range []string{"http://169.254.169.254", "http://[fe80::1]:80", "http://[64:ff9b::a9fe:a9fe]",
		"http://2852039166"} {
		err := send(t, NewTransports(policy, nil), url)
		if err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: got %v, want an immediate error", url, err)
		}
	}
}

// TestProxyOfAKubeConfigReachesNoLinkLocalAddress has a kubeconfig whose proxy would connect to any address.
func TestProxyOfAKubeConfigReachesNoLinkLocalAddress(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer server.Close()
	proxy, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	transports := NewTransports(&egress.Policy{RefuseLinkLocal: true}, nil)
	for _, host := range []string{"http://169.254.169.254", "https://169.254.169.254", "http://0xa9fea9fe",
		"http://[fd00:ec2::254]"} {
		cfg, err := transports.configure(&rest.Config{Host: host, Proxy: http.ProxyURL(proxy)})
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, host+"/version", nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := cfg.Transport.RoundTrip(req); err == nil {
			_ = resp.Body.Close()
			t.Errorf("%s: the proxy answered", host)
		} else if !egress.IsRefused(err) {
			t.Errorf("%s: got %v", host, err)
		}
	}
	if asked.Load() != 0 {
		t.Errorf("the proxy got %d requests", asked.Load())
	}
}

func TestAnswersOfClustersAreBounded(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("{},", 1<<16))
	}))
	defer server.Close()
	cfg, err := NewTransports(&egress.Policy{}, nil).configure(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	get := func(query string) error {
		ctx := guard.WithBudget(t.Context(), guard.NewBudget(8<<20))
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/api/v1/pods?"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := cfg.Transport.RoundTrip(req)
		if err != nil {
			return err
		}
		_, err = io.ReadAll(resp.Body)
		return errors.Join(err, resp.Body.Close())
	}
	if err := get(""); !guard.IsAnswerTooLarge(err) {
		t.Errorf("the error of a list is %v", err)
	}
	if err := get("watch=true&resourceVersion=1"); err != nil {
		t.Errorf("the error of a watch is %v", err)
	}
	if err := get("watch=true&sendInitialEvents=true"); !errors.Is(err, guard.ErrInitialList) {
		t.Errorf("the error of a watch that begins with a list is %v", err)
	}
}

// TestPrivateServersThatAreNoClustersAreNotQuoted names a server of the cluster in a kubeconfig: client-go quotes
// answers in text, also those without a type.
func TestPrivateServersThatAreNoClustersAreNotQuoted(t *testing.T) {
	for _, contentType := range []string{"text/plain", "text/html", ""} {
		for _, status := range []int{http.StatusForbidden, http.StatusNotFound, http.StatusInternalServerError} {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Content-Type"] = []string{contentType}
				w.WriteHeader(status)
				_, _ = io.WriteString(w, "internal")
			}))
			t.Cleanup(server.Close)
			cfg, err := NewTransports(&egress.Policy{HidePrivate: true}, nil).configure(&rest.Config{Host: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			client, err := kubernetes.NewForConfig(cfg)
			if err != nil {
				t.Fatal(err)
			}
			_, err = client.CoreV1().ConfigMaps("apps").Get(t.Context(), "app", metav1.GetOptions{})
			if err == nil || strings.Contains(fmt.Sprintf("%v %#v", err, err), "internal") {
				t.Errorf("%q, status %d: %v", contentType, status, err)
			}
		}
	}
}

// TestAnswersOfClustersEndInTime has a cluster that begins an answer and does not end it: its memory would be held as
// long. A watch has no end.
func TestAnswersOfClustersEndInTime(t *testing.T) {
	more := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "{")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-more:
			_, _ = io.WriteString(w, "}")
		case <-r.Context().Done():
		}
	}))
	defer server.Close()
	transports := NewTransports(&egress.Policy{}, nil)
	transports.AnswerTimeout = 50 * time.Millisecond
	cfg, err := transports.configure(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	begin := func(query string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/api/v1/pods?"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := cfg.Transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp
	}
	watch, list := begin("watch=true"), begin("")
	_, err = io.ReadAll(list.Body)
	const want = "did not end its answer in time. " + unreachableHint
	if f := fault.As(err); f == nil || !strings.HasSuffix(f.Error(), want) {
		t.Errorf("the error of a list is %v", err)
	}
	close(more)
	if content, err := io.ReadAll(watch.Body); err != nil || string(content) != "{}" {
		t.Errorf("the watch ended with %q, %v", content, err)
	}
}

func TestLargeKeysOfAKubeConfigAreRefused(t *testing.T) {
	_, authority := largekey.Certificate(t)
	for name, files := range map[string]rest.TLSClientConfig{"an authority": {CAData: authority},
		"a key": {CertData: authority, KeyData: largekey.File(t)}} {
		cfg := &rest.Config{Host: "https://x", TLSClientConfig: files}
		_, err := NewTransports(&egress.Policy{}, nil).configure(cfg)
		if err == nil || !strings.Contains(err.Error(), "the RSA key has 16640 bits; the maximum is 16384") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
