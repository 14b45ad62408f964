package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/fault"
)

// hanging is a host that takes connections, and says nothing.
type hanging struct {
	net.Listener
	taken chan struct{}
}

func hang(t *testing.T) *hanging {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &hanging{l, make(chan struct{}, 100)}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		var conns []net.Conn // kept, since one that is collected is closed
		for {
			c, err := l.Accept()
			if err != nil {
				for _, c := range conns {
					_ = c.Close()
				}
				return
			}
			conns = append(conns, c)
			h.taken <- struct{}{}
		}
	}()
	return h
}

func (h *hanging) url() string { return "http://" + h.Addr().String() }

// short are timeouts for hosts of which nothing good is expected.
var short = Timeouts{Answer: 500 * time.Millisecond, Stall: 200 * time.Millisecond}

func TestAHostThatHangsDelaysOnlyItsOwnSources(t *testing.T) {
	t.Parallel()
	broken, good := hang(t), serve(t, hello)
	p := &Policy{PerHost: 2, Timeouts: patient}
	p.Timeouts.Stall = short.Stall // the two that hang go on doing so while others come
	c := client(t, p, Options{})
	var asking sync.WaitGroup
	errs := make(chan error, 6)
	ask := func(n int) {
		for range n {
			asking.Go(func() {
				_, _, err := get(t, c, broken.url()+"/x?token=secret")
				errs <- err
			})
		}
	}
	ask(2)
	for range 2 {
		select {
		case <-broken.taken:
		case <-within(t).Done():
			t.Fatal("the requests did not reach the host")
		}
	}
	ask(4) // they find no slot, and are told so while the two still hang
	for range 4 {
		if f := faultOf(t, <-errs, broken.Addr().String(), "does not get on"); f.RetryAfter <= 0 {
			t.Errorf("no time to come back: %v", f)
		}
	}
	for range 10 {
		if _, content, err := get(t, c, good.URL); err != nil || content != "hello" {
			t.Fatalf("beside a broken host another answered %q, %v", content, err)
		}
	}
	_ = broken.Close()
	asking.Wait()
}

func TestAHostThatHungIsNotAskedAgainAtOnce(t *testing.T) {
	t.Parallel()
	broken := hang(t)
	p := &Policy{Timeouts: short, Clock: testclock.NewFakePassiveClock(noon)}
	c := client(t, p, Options{})
	_, _, err := get(t, c, broken.url()+"/x?token=secret")
	if f := faultOf(t, err, "does not answer"); strings.Contains(f.Error(), "secret") {
		t.Errorf("the error holds the query: %v", f)
	}
	requests := p.Stats().Requests
	_, _, err = get(t, c, broken.url())
	if f := faultOf(t, err, "does not answer"); f.RetryAfter <= 0 || p.Stats().Requests != requests {
		t.Errorf("a host that hung was asked again at once: %v", f)
	}
}

func TestASilentHostIsTriedByOneRequestAndThenTrusted(t *testing.T) {
	t.Parallel()
	var healed atomic.Bool
	release := make(chan struct{})
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if !healed.Load() {
			<-release
		}
		hello(w, r)
	})
	t.Cleanup(func() { close(release) })
	clock := testclock.NewFakePassiveClock(noon)
	p := &Policy{Timeouts: short, Clock: clock}
	c := client(t, p, Options{})
	waits := []time.Duration{minRest, 2 * minRest, 4 * minRest}
	for _, want := range waits {
		_, _, err := get(t, c, s.URL)
		mustFail(t, err, "does not answer in time")
		_, _, err = get(t, c, s.URL)
		if f := faultOf(t, err, "does not answer"); f.RetryAfter != want {
			t.Errorf("left alone for %s, want %s", f.RetryAfter, want)
		}
		clock.SetTime(clock.Now().Add(want))
	}
	healed.Store(true)
	p.Timeouts = patient
	p.host(route{host: strings.TrimPrefix(s.URL, "http://")}).timeouts = patient
	c = client(t, p, Options{Caller: "of another way to it"})
	for range 3 {
		if _, content, err := get(t, c, s.URL); err != nil || content != "hello" {
			t.Fatalf("a healed host answered %q, %v", content, err)
		}
	}
}

func TestARequestThatIsSlowByItselfDoesNotCloseTheHost(t *testing.T) {
	t.Parallel()
	h := newHost("host", 1, Timeouts{Stall: 1}, time.Now)
	began := time.Now()
	h.answered() // another request
	h.gaveUp(os.ErrDeadlineExceeded, began)
	if err := h.resting(); err != nil {
		t.Errorf("the host is closed for all: %v", err)
	}
	h.gaveUp(os.ErrDeadlineExceeded, time.Now())
	if h.resting() == nil {
		t.Error("a host that answered nobody since is asked again at once")
	}
}

func TestRetryAfterIsKeptPerHostAndCaller(t *testing.T) {
	t.Parallel()
	var limited atomic.Bool
	var asked atomic.Int64
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if limited.Load() && r.Header.Get("Authorization") == "Bearer busy" {
			w.Header().Set("Retry-After", "60")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		hello(w, r)
	})
	clock := testclock.NewFakePassiveClock(noon)
	p := &Policy{Clock: clock}
	busy, other, elsewhere := client(t, p, Options{}), client(t, p, Options{Caller: "other"}), serve(t, hello)
	limited.Store(true)
	if status, _, err := get(t, busy, s.URL, "Authorization", "Bearer busy"); err != nil ||
		status != http.StatusTooManyRequests {
		t.Fatalf("the refusal itself: %d, %v", status, err)
	}
	clock.SetTime(noon.Add(20 * time.Second))
	before := asked.Load()
	_, _, err := get(t, busy, s.URL+"/other", "Authorization", "Bearer busy")
	if f := faultOf(t, err, "2026-11-21T12:01:00Z"); f.RetryAfter != 40*time.Second || asked.Load() != before {
		t.Errorf("the fault says %s, the host was asked %d times", f.RetryAfter, asked.Load()-before)
	}
	if wrapped := fault.New("OCIPullFailed", "cannot pull").Because(err); wrapped.RetryAfter != 40*time.Second {
		t.Errorf("the kind's fault says %s", wrapped.RetryAfter)
	}
	for name, try := range map[string]func() (int, string, error){
		"another caller by header": func() (int, string,
			error) {
			return get(t, busy, s.URL, "Authorization", "Bearer calm")
		},
		"another caller by option": func() (int, string, error) { return get(t, other, s.URL) },
		"another host": func() (int, string,
			error) {
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
		t.Errorf("after the wait: %d, %v", status, err)
	}
}

func TestTheNumberOfRequestsInFlightIsBounded(t *testing.T) {
	t.Parallel()
	var now, most atomic.Int64
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		hello(w, r)
	})
	c := client(t, &Policy{PerHost: 3, Timeouts: patient}, Options{})
	var asking sync.WaitGroup
	for range 40 {
		asking.Go(func() {
			if _, content, err := get(t, c, s.URL); err != nil || content != "hello" {
				t.Errorf("answered %q, %v", content, err)
			}
		})
	}
	asking.Wait()
	if most.Load() > 3 {
		t.Errorf("%d requests were in flight", most.Load())
	}
}

func TestASlotIsHeldUntilTheBodyIsDoneOrTheContextEnds(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", 1<<20))
	})
	p := &Policy{PerHost: 1, Timeouts: patient}
	c := client(t, p, Options{})
	h := p.host(route{host: strings.TrimPrefix(s.URL, "http://")})
	for name, finish := range map[string]func(*http.Response, func()){
		"closed early":  func(r *http.Response, _ func()) { _ = r.Body.Close() },
		"closed twice":  func(r *http.Response, _ func()) { _ = r.Body.Close(); _ = r.Body.Close() },
		"read whole":    func(r *http.Response, _ func()) { _, _ = io.Copy(io.Discard, r.Body) },
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
		if h.idle() {
			t.Errorf("%s: the slot is free before", name)
		}
		finish(resp, cancel)
		for end := time.Now().Add(patience); !h.idle() && time.Now().Before(end); {
			<-time.After(time.Millisecond)
		}
		if !h.idle() {
			t.Errorf("%s: the slot is held", name)
		}
		_ = resp.Body.Close()
		cancel()
	}
}

func TestASlowReaderIsNotTheHostsFault(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", 1<<20)) })
	c := client(t, &Policy{PerHost: 1, Timeouts: Timeouts{Stall: 20 * time.Millisecond}}, Options{})
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
		t.Fatalf("the second request did not queue while the first was not read: %v", err)
	case <-time.After(200 * time.Millisecond): // ten times as long as a host may be silent
	}
	_ = slow.Body.Close()
	if err := <-second; err != nil {
		t.Error(err)
	}
}

func TestTheContextEndsTheQueue(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	arrived := make(chan struct{}, 1)
	s := serve(t, func(http.ResponseWriter, *http.Request) { arrived <- struct{}{}; <-release })
	c := client(t, &Policy{PerHost: 1, Timeouts: patient}, Options{})
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
		t.Errorf("the end of the context is told as %v", err)
	}
	close(release)
	first.Wait()
}

func TestConnectionsAreSharedByEqualOptionsOnly(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t)
	s := serveTLS(t, ours, time.Time{}, &tls.Config{}, hello)
	p := &Policy{Timeouts: patient}
	ask := func(o Options) {
		t.Helper()
		o.TLS.CA = ours.pem
		if _, _, err := get(t, client(t, p, o), s.URL); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 { // as many sources, each with options of its own that say the same
		ask(Options{})
	}
	if got := p.Stats(); got.Connections != 1 || got.Requests != 100 || got.BytesReceived < 500 || got.BytesSent < 100 {
		t.Errorf("100 sources of one host made %+v", got)
	}
	_, mine := ours.issue(t, "mine", time.Time{})
	_, yours := ours.issue(t, "yours", time.Time{})
	for i, o := range []Options{{Caller: "a"}, {Caller: "b"}, {TLS: mine}, {TLS: yours}} {
		ask(o)
		if got, want := p.Stats().Connections, int64(i+2); got != want {
			t.Errorf("with options of its own the source shares a connection: %d, want %d", got, want)
		}
	}
}

func TestOptionsThatDifferHaveDifferentKeys(t *testing.T) {
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
			t.Errorf("options %d and %d are told to be the same", i, j)
		}
		seen[o.key()] = i
	}
}

func TestWhatIsNotUsedIsForgotten(t *testing.T) {
	t.Parallel()
	clock := testclock.NewFakePassiveClock(noon)
	p := &Policy{Clock: clock}
	s := serve(t, hello)
	for _, caller := range []string{"a", "b", "c"} {
		if _, _, err := get(t, client(t, p, Options{Caller: caller}), s.URL); err != nil {
			t.Fatal(err)
		}
	}
	clock.SetTime(noon.Add(3 * time.Hour))
	if _, _, err := get(t, client(t, p, Options{Caller: "d"}), serve(t, hello).URL); err != nil {
		t.Fatal(err)
	}
	if len(p.transports) != 1 || len(p.hosts) != 1 {
		t.Errorf("%d transports and %d hosts are kept", len(p.transports), len(p.hosts))
	}
}
