package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/network/hostguard"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// silentHost accepts connections and sends nothing.
type silentHost struct {
	net.Listener
	accepted chan struct{}
}

func newSilentHost(t *testing.T) *silentHost {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &silentHost{l, make(chan struct{}, 100)}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		var conns []net.Conn // a connection that is garbage collected is closed
		for {
			c, err := l.Accept()
			if err != nil {
				for _, c := range conns {
					_ = c.Close()
				}
				return
			}
			conns = append(conns, c)
			h.accepted <- struct{}{}
		}
	}()
	return h
}

func (h *silentHost) url() string { return "http://" + h.Addr().String() }

// shortTimeouts are for hosts that accept connections and are expected to time out.
var shortTimeouts = Timeouts{Connect: maxTestWait, Answer: 500 * time.Millisecond, Stall: 200 * time.Millisecond}

// routeTo returns the direct route to a test server.
func routeTo(s *httptest.Server) hostguard.Route {
	return hostguard.Route{Host: s.Listener.Addr().String()}
}

func TestStalledHostDoesNotDelayOtherHosts(t *testing.T) {
	t.Parallel()
	broken, good := newSilentHost(t), serve(t, hello)
	p := &Policy{PerHost: 2, Timeouts: longTimeouts}
	p.Timeouts.Stall = shortTimeouts.Stall // two requests continue to wait while others are rejected
	c := client(t, p, Options{})
	var requests sync.WaitGroup
	errs := make(chan error, 6)
	send := func(n int) {
		for range n {
			requests.Go(func() {
				_, _, err := get(t, c, broken.url()+"/x?token=secret")
				errs <- err
			})
		}
	}
	send(2)
	for range 2 {
		select {
		case <-broken.accepted:
		case <-within(t).Done():
			t.Fatal("the host did not receive the requests")
		}
	}
	send(4) // no slot is free
	for range 4 {
		if f := faultOf(t, <-errs, broken.Addr().String(), "stalled with 2 requests in flight. Further requests "+
			"are sent once it answers"); f.RetryAfter <= 0 {
			t.Errorf("RetryAfter is not set: %v", f)
		}
	}
	for range 10 {
		if _, content, err := get(t, c, good.URL); err != nil || content != "hello" {
			t.Fatalf("the other host: got %q, %v", content, err)
		}
	}
	_ = broken.Close()
	requests.Wait()
}

func TestTimedOutHostIsPaused(t *testing.T) {
	t.Parallel()
	broken := newSilentHost(t)
	p := &Policy{Timeouts: shortTimeouts, Clock: testclock.NewFakeClock(noon)}
	c := client(t, p, Options{})
	_, _, err := get(t, c, broken.url()+"/x?token=secret")
	if f := faultOf(t, err, "does not answer. Check the server, and the network path to it"); strings.Contains(
		f.Error(), "secret") {
		t.Errorf("the error contains the query: %v", f)
	}
	requests := p.Stats().Requests
	_, _, err = get(t, c, broken.url())
	if f := faultOf(t, err, "does not answer; requests to it are paused. Check the host, and the network path to "+
		"it"); f.RetryAfter <= 0 || p.Stats().Requests != requests {
		t.Errorf("the host got a request during the pause: %v", f)
	}
}

func TestPauseEndsWithAnswer(t *testing.T) {
	t.Parallel()
	var recovered atomic.Bool
	release := make(chan struct{})
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if !recovered.Load() {
			<-release
		}
		hello(w, r)
	})
	t.Cleanup(func() { close(release) })
	clock := testclock.NewFakeClock(noon)
	p := &Policy{Timeouts: shortTimeouts, Clock: clock}
	c := client(t, p, Options{})
	for _, want := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second} {
		_, _, err := get(t, c, s.URL)
		mustFail(t, err, "timed out: the host does not answer. Check the server, and the network path to "+
			"it", "does not answer")
		_, _, err = get(t, c, s.URL)
		if f := faultOf(t, err, "does not answer"); f.RetryAfter != want {
			t.Errorf("the pause is %s, want %s", f.RetryAfter, want)
		}
		clock.Step(want)
	}
	recovered.Store(true)
	p.Timeouts = longTimeouts
	c = client(t, p, Options{Caller: "with the new timeouts"})
	for range 3 {
		if _, content, err := get(t, c, s.URL); err != nil || content != "hello" {
			t.Fatalf("after the recovery: got %q, %v", content, err)
		}
	}
}

func TestRateLimitAppliesToHostAndCaller(t *testing.T) {
	t.Parallel()
	var limited atomic.Bool
	var received atomic.Int64
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		received.Add(1)
		if limited.Load() && r.Header.Get("Authorization") == "Bearer busy" {
			w.Header().Set("Retry-After", "60")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		hello(w, r)
	})
	clock := testclock.NewFakeClock(noon)
	p := &Policy{Clock: clock}
	busy, other, elsewhere := client(t, p, Options{}), client(t, p, Options{Caller: "other"}), serve(t, hello)
	limited.Store(true)
	if status, _, err := get(t, busy, s.URL, "Authorization", "Bearer busy"); err != nil ||
		status != http.StatusTooManyRequests {
		t.Fatalf("the first request: %d, %v", status, err)
	}
	clock.SetTime(noon.Add(20 * time.Second))
	before := received.Load()
	_, _, err := get(t, busy, s.URL+"/other", "Authorization", "Bearer busy")
	if f := faultOf(t, err, "2026-11-21T12:01:00Z. Requests resume then"); f.RetryAfter != 40*time.Second ||
		received.Load() != before {
		t.Errorf("RetryAfter is %s, the host got %d requests", f.RetryAfter, received.Load()-before)
	}
	if wrapped := fault.New("OCIPullFailed", "cannot pull").Because(err); wrapped.RetryAfter != 40*time.Second {
		t.Errorf("RetryAfter of the wrapping fault is %s", wrapped.RetryAfter)
	}
	for name, try := range map[string]func() (int, string, error){
		"another caller by header": func() (int, string, error) {
			return get(t, busy, s.URL, "Authorization", "Bearer idle")
		},
		"another caller by option": func() (int, string, error) { return get(t, other, s.URL) },
		"another host": func() (int, string, error) {
			return get(t, busy, elsewhere.URL, "Authorization", "Bearer busy")
		},
	} {
		if status, _, err := try(); err != nil || status != http.StatusOK {
			t.Errorf("%s: %d, %v", name, status, err)
		}
	}
	limited.Store(false)
	clock.SetTime(noon.Add(time.Minute))
	if status, _, err := get(t, busy, s.URL, "Authorization", "Bearer busy"); err != nil || status != http.StatusOK {
		t.Errorf("after the rate limit: %d, %v", status, err)
	}
}

func TestRequestsInFlightAreLimited(t *testing.T) {
	t.Parallel()
	var now, most atomic.Int64
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		hello(w, r)
	})
	c := client(t, &Policy{PerHost: 3, Timeouts: longTimeouts}, Options{})
	var requests sync.WaitGroup
	for range 40 {
		requests.Go(func() {
			if _, content, err := get(t, c, s.URL); err != nil || content != "hello" {
				t.Errorf("got %q, %v", content, err)
			}
		})
	}
	requests.Wait()
	if most.Load() > 3 {
		t.Errorf("%d requests were in flight", most.Load())
	}
}

func TestSlotIsReleasedWithBodyOrContext(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", 1<<20))
	})
	p := &Policy{PerHost: 1, Timeouts: longTimeouts}
	c := client(t, p, Options{})
	inFlight := func() int { return p.Guard().InFlight(routeTo(s)) }
	for name, finish := range map[string]func(*http.Response, func()){
		"closed early":  func(r *http.Response, _ func()) { _ = r.Body.Close() },
		"closed twice":  func(r *http.Response, _ func()) { _ = r.Body.Close(); _ = r.Body.Close() },
		"read to end":   func(r *http.Response, _ func()) { _, _ = io.Copy(io.Discard, r.Body) },
		"context ended": func(_ *http.Response, cancel func()) { cancel() },
	} {
		ctx, cancel := context.WithCancel(within(t))
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if inFlight() != 1 {
			t.Errorf("%s: the slot is released too early", name)
		}
		finish(resp, cancel)
		for end := time.Now().Add(maxTestWait); inFlight() > 0 && time.Now().Before(end); {
			<-time.After(time.Millisecond)
		}
		if inFlight() > 0 {
			t.Errorf("%s: the slot is not released", name)
		}
		_ = resp.Body.Close()
		cancel()
	}
}

func TestSlowReaderDoesNotStallHost(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", 1<<20)) })
	p := &Policy{PerHost: 1, Timeouts: longTimeouts}
	p.Timeouts.Stall = 20 * time.Millisecond
	c := client(t, p, Options{})
	slow, err := c.Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	second := make(chan error, 1)
	go func() {
		_, _, err := get(t, c, s.URL)
		second <- err
	}()
	select {
	case err := <-second:
		t.Fatalf("the second request did not wait for a slot: %v", err)
	case <-time.After(200 * time.Millisecond): // ten times Timeouts.Stall
	}
	_ = slow.Body.Close()
	if err := <-second; err != nil {
		t.Error(err)
	}
}

func TestContextEndsWaitForSlot(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	arrived := make(chan struct{}, 1)
	s := serve(t, func(http.ResponseWriter, *http.Request) { arrived <- struct{}{}; <-release })
	c := client(t, &Policy{PerHost: 1, Timeouts: longTimeouts}, Options{})
	var first sync.WaitGroup
	first.Go(func() { _, _, _ = get(t, c, s.URL) })
	<-arrived
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the error of the context", err)
	}
	close(release)
	first.Wait()
}

func TestEqualOptionsShareConnections(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t)
	s := serveTLS(t, ours, time.Time{}, &tls.Config{}, hello)
	p := &Policy{Timeouts: longTimeouts}
	send := func(o Options) {
		t.Helper()
		o.TLS.CA = ours.pem
		if _, _, err := get(t, client(t, p, o), s.URL); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 { // sources with equal options
		send(Options{})
	}
	if got := p.Stats(); got.Connections != 1 || got.Requests != 100 || got.BytesReceived < 500 || got.BytesSent < 100 {
		t.Errorf("100 sources of one host: %+v", got)
	}
	_, mine := ours.issue(t, "mine", time.Time{})
	_, yours := ours.issue(t, "yours", time.Time{})
	for i, o := range []Options{{Caller: "a"}, {Caller: "b"}, {TLS: mine}, {TLS: yours}} {
		send(o)
		if got, want := p.Stats().Connections, int64(i+2); got != want {
			t.Errorf("%d connections, want %d", got, want)
		}
	}
}

func TestDifferentOptionsHaveDifferentKeys(t *testing.T) {
	t.Parallel()
	proxy := func(raw string) *url.URL {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	seen := map[[32]byte]int{}
	for i, o := range []Options{{}, {TLS: auth.TLS{CA: []byte("ab")}},
		{TLS: auth.TLS{CA: []byte("a"), Cert: []byte("b")}}, {TLS: auth.TLS{Cert: []byte("ab")}},
		{TLS: auth.TLS{Key: []byte("ab")}}, {Caller: "ab"}, {Proxy: proxy("http://ab")},
		{Proxy: proxy("http://u:p@ab")}, {Proxy: proxy("http://u:q@ab")}} {
		if j, ok := seen[o.key()]; ok {
			t.Errorf("options %d and %d have the same key", i, j)
		}
		seen[o.key()] = i
	}
}

func TestUnusedStateIsRemoved(t *testing.T) {
	t.Parallel()
	clock := testclock.NewFakeClock(noon)
	p := &Policy{Clock: clock}
	s := serve(t, hello)
	for _, caller := range []string{"a", "b", "c"} {
		if _, _, err := get(t, client(t, p, Options{Caller: caller}), s.URL); err != nil {
			t.Fatal(err)
		}
	}
	clock.Step(3 * time.Hour)
	if _, _, err := get(t, client(t, p, Options{Caller: "d"}), serve(t, hello).URL); err != nil {
		t.Fatal(err)
	}
	if len(p.transports) != 1 || p.Guard().Len() != 1 {
		t.Errorf("%d transports and %d hosts are kept, want 1 of each", len(p.transports), p.Guard().Len())
	}
}
