package hostguard

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"github.com/sluice-gitops/sluice/internal/text/fault"
)

var (
	noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	slow = Route{Host: "slow.example"}
)

func newGuard(o Options) (*Guard, *testclock.FakeClock) {
	clock := testclock.NewFakeClock(noon)
	o.Clock = clock
	return New(o), clock
}

func admit(t *testing.T, g *Guard, route Route) *Request {
	t.Helper()
	r, err := g.Admit(t.Context(), route, "caller")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// timeOut sends a request that times out.
func timeOut(t *testing.T, g *Guard, route Route) {
	t.Helper()
	r := admit(t, g, route)
	r.Await().TimedOut(t.Context())
	r.Release()
}

// rejected returns the fault of a rejected request, nil if it was admitted.
func rejected(t *testing.T, g *Guard, route Route, caller string) *fault.Fault {
	t.Helper()
	r, err := g.Admit(t.Context(), route, caller)
	if err == nil {
		r.Release()
		return nil
	}
	f := fault.As(err)
	if f == nil {
		t.Fatalf("the error is not a fault: %v", err)
	}
	return f
}

func TestTimeoutsPauseHostForDoubledTime(t *testing.T) {
	g, clock := newGuard(Options{ProbeTimeout: time.Minute, Reason: "Unreachable", Hint: "Check the network"})
	for _, pause := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second,
		160 * time.Second, 5 * time.Minute, 5 * time.Minute} {
		timeOut(t, g, slow)
		f := rejected(t, g, slow, "")
		if f == nil || f.RetryAfter != pause || f.Reason != "Unreachable" ||
			f.Error() != "host 'slow.example' does not answer; requests to it are paused. Check the network" {
			t.Errorf("got fault %+v, want a pause of %s", f, pause)
		}
		for _, other := range []Route{{Host: "other.example"}, {Host: slow.Host, Proxy: "proxy.example"}} {
			if f := rejected(t, g, other, ""); f != nil {
				t.Errorf("%v is paused as well: %v", other, f)
			}
		}
		clock.Step(pause)
	}
	r := admit(t, g, slow)
	r.Await().Answered()
	r.Release()
	timeOut(t, g, slow)
	if f := rejected(t, g, slow, ""); f == nil || f.RetryAfter != minPause {
		t.Errorf("an answer did not reset the pause: %v", f)
	}
}

func TestOneRequestProbesHostAfterPause(t *testing.T) {
	g, clock := newGuard(Options{ProbeTimeout: time.Minute})
	timeOut(t, g, slow)
	clock.Step(minPause)
	probe := admit(t, g, slow)
	if f := rejected(t, g, slow, ""); f == nil || f.RetryAfter != time.Minute {
		t.Errorf("a second request was admitted during the probe: %v", f)
	}
	probe.Await().Ended() // such as canceled
	probe.Release()
	second := admit(t, g, slow)
	probe.Release() // has no effect on the second probe
	if rejected(t, g, slow, "") == nil {
		t.Error("the release of an old probe ended the current one")
	}
	second.Await().Answered()
	for range 3 {
		if f := rejected(t, g, slow, ""); f != nil {
			t.Errorf("the host is paused after an answer: %v", f)
		}
	}
}

func TestNoProbeAdmitsAllRequestsAfterPause(t *testing.T) {
	g, clock := newGuard(Options{})
	timeOut(t, g, slow)
	clock.Step(minPause)
	for range 3 {
		admit(t, g, slow)
	}
}

func TestTimeoutsInFlightTogetherCountOnce(t *testing.T) {
	g, clock := newGuard(Options{})
	var waits []Wait
	for range 8 {
		waits = append(waits, admit(t, g, slow).Await())
	}
	for _, w := range waits {
		w.TimedOut(t.Context())
	}
	if f := rejected(t, g, slow, ""); f == nil || f.RetryAfter != minPause {
		t.Errorf("got %v, want a pause of %s", f, minPause)
	}
	clock.Step(minPause)
	timeOut(t, g, slow)
	if f := rejected(t, g, slow, ""); f == nil || f.RetryAfter != 2*minPause {
		t.Errorf("got %v, want a pause of %s", f, 2*minPause)
	}
}

func TestSlowRequestDoesNotPauseHostThatServesOthers(t *testing.T) {
	for name, other := range map[string]func(*Request){
		"answer":   func(r *Request) { r.Await().Answered() },
		"progress": func(r *Request) { r.Progress() },
	} {
		g, _ := newGuard(Options{})
		wait := admit(t, g, slow).Await()
		other(admit(t, g, slow))
		wait.TimedOut(t.Context())
		if f := rejected(t, g, slow, ""); f != nil {
			t.Errorf("%s: the host is paused: %v", name, f)
		}
		timeOut(t, g, slow)
		if rejected(t, g, slow, "") == nil {
			t.Errorf("%s: the host is not paused although it sent nothing since", name)
		}
	}
}

func TestHostHasAnswered(t *testing.T) {
	g, clock := newGuard(Options{})
	check := func(want bool) {
		t.Helper()
		if got := admit(t, g, slow).HostHasAnswered(); got != want {
			t.Errorf("HostHasAnswered is %t, want %t", got, want)
		}
	}
	check(false)
	admit(t, g, slow).Await().Answered()
	check(true)
	timeOut(t, g, slow)
	clock.Step(minPause)
	check(false)
}

func TestRateLimitAppliesToHostAndCaller(t *testing.T) {
	g, clock := newGuard(Options{})
	r, err := g.Admit(t.Context(), slow, "busy")
	if err != nil {
		t.Fatal(err)
	}
	r.RateLimited(time.Minute)
	r.RateLimited(time.Second) // does not shorten it
	r.RateLimited(0)
	clock.Step(20 * time.Second)
	f := rejected(t, g, slow, "busy")
	if f == nil || f.RetryAfter != 40*time.Second || !strings.Contains(f.Error(),
		"until 2026-11-21T12:01:00Z. Requests resume then") {
		t.Errorf("got fault %+v", f)
	}
	if f := rejected(t, g, slow, "other"); f != nil {
		t.Errorf("another caller is limited: %v", f)
	}
	if f := rejected(t, g, Route{Host: "other.example"}, "busy"); f != nil {
		t.Errorf("another host is limited: %v", f)
	}
	clock.Step(40 * time.Second)
	if f := rejected(t, g, slow, "busy"); f != nil {
		t.Errorf("limited after the end: %v", f)
	}
	r.RateLimited(48 * time.Hour)
	if f := rejected(t, g, slow, "busy"); f == nil || f.RetryAfter != maxRateLimit {
		t.Errorf("the limit is not cut: %v", f)
	}
}

func TestConcurrencyIsLimited(t *testing.T) {
	g, _ := newGuard(Options{Concurrency: 2, StallTimeout: time.Second})
	admit(t, g, slow)
	last := admit(t, g, slow)
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("no longer needed")
	cancel(reason)
	if _, err := g.Admit(ctx, slow, ""); !errors.Is(err, reason) {
		t.Errorf("a third request: got %v, want the cause of the context", err)
	}
	last.Release()
	last.Release() // frees one slot only
	admit(t, g, slow)
	if n := g.InFlight(slow); n != 2 {
		t.Errorf("%d requests are in flight", n)
	}
	if _, err := g.Admit(ctx, slow, ""); err == nil {
		t.Error("two releases of one request freed two slots")
	}
}

// admitAsync admits a request in the background, and returns once it waits for a slot.
func admitAsync(t *testing.T, g *Guard, clock *testclock.FakeClock) <-chan error {
	t.Helper()
	result := make(chan error, 1)
	go func() {
		_, err := g.Admit(t.Context(), slow, "caller")
		result <- err
	}()
	waitForTimer(clock)
	return result
}

func waitForTimer(clock *testclock.FakeClock) {
	for !clock.HasWaiters() {
		runtime.Gosched()
	}
}

func TestStalledHostRejectsWaitingRequests(t *testing.T) {
	g, clock := newGuard(Options{Concurrency: 1, StallTimeout: 5 * time.Second, ProbeTimeout: 30 * time.Second})
	first := admit(t, g, slow)
	first.Await()
	queued := admitAsync(t, g, clock)
	clock.Step(3 * time.Second)
	first.Progress()
	clock.Step(3 * time.Second) // the timer fires, but the host sent data 3s ago
	waitForTimer(clock)
	select {
	case err := <-queued:
		t.Fatalf("the request did not wait although the host makes progress: %v", err)
	default:
	}
	clock.Step(2 * time.Second)
	f := fault.As(<-queued)
	if f == nil || f.RetryAfter != 30*time.Second ||
		!strings.Contains(f.Error(), "host 'slow.example' stalled with 1 requests in flight. Further requests "+
			"are sent once it answers") {
		t.Errorf("got %v", f)
	}
	if f := rejected(t, g, slow, ""); f == nil {
		t.Error("a further request waits")
	}
}

func TestSlowReaderDoesNotStallHost(t *testing.T) {
	g, clock := newGuard(Options{Concurrency: 1, StallTimeout: 5 * time.Second})
	first := admit(t, g, slow)
	first.Await().Answered() // the body is not read
	queued := admitAsync(t, g, clock)
	for range 10 {
		clock.Step(5 * time.Second)
		waitForTimer(clock)
	}
	first.Release()
	if err := <-queued; err != nil {
		t.Error(err)
	}
}

func TestRateLimitRejectsWaitingRequests(t *testing.T) {
	g, clock := newGuard(Options{Concurrency: 1, StallTimeout: 5 * time.Second})
	first := admit(t, g, slow)
	queued := admitAsync(t, g, clock)
	first.RateLimited(time.Minute)
	first.Release()
	if f := fault.As(<-queued); f == nil || f.RetryAfter != time.Minute {
		t.Errorf("got %v", f)
	}
	if n := g.InFlight(slow); n != 0 {
		t.Errorf("the rejected request holds a slot: %d in flight", n)
	}
}

func TestUnusedHostsAreForgotten(t *testing.T) {
	g, clock := newGuard(Options{Concurrency: 1, StallTimeout: time.Second})
	busy := admit(t, g, Route{Host: "busy.example"})
	admit(t, g, slow).Release()
	clock.Step(forgetAfter + time.Second)
	admit(t, g, Route{Host: "new.example"}).Release()
	if n := g.Len(); n != 2 {
		t.Errorf("%d hosts are kept, want the new one and the one in use", n)
	}
	busy.Release()
	for i := range maxHosts + 10 {
		admit(t, g, Route{Host: fmt.Sprint(i)}).Release()
	}
	if n := g.Len(); n > maxHosts {
		t.Errorf("%d hosts are kept", n)
	}
}
