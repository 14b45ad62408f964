package hostguard

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"github.com/sluice-gitops/sluice/internal/guard"
)

const shared = "shared.example"

// of returns a request of a namespace to the shared host, nil if it is refused.
func of(t *testing.T, g *Guard, namespace string) *Request {
	t.Helper()
	r, err := g.Admit(guard.WithOwner(t.Context(), namespace), Route{Host: shared}, "")
	if err != nil {
		return nil
	}
	return r
}

// hostile is what a namespace can make a shared host do to its requests, by a path, a credential or a deadline.
var hostile = map[string]func(t *testing.T, g *Guard, clock *testclock.FakeClock){
	"path that hangs": func(t *testing.T, g *Guard, clock *testclock.FakeClock) {
		for range 10 {
			if r := of(t, g, "hostile"); r != nil {
				r.Await().TimedOut(t.Context())
				r.Release()
			}
			clock.Step(maxPause)
		}
		r := of(t, g, "hostile")
		r.Await().TimedOut(t.Context())
		r.Release()
	},
	"429 with Retry-After": func(t *testing.T, g *Guard, _ *testclock.FakeClock) {
		r := of(t, g, "hostile")
		r.Await().Answered()
		r.RateLimited(time.Hour)
		r.Release()
	},
	"hanging requests that are not released": func(t *testing.T, g *Guard, clock *testclock.FakeClock) {
		for range 6 {
			of(t, g, "hostile").Await()
		}
		clock.Step(time.Minute)
	},
	"two namespaces that hang": func(t *testing.T, g *Guard, _ *testclock.FakeClock) {
		for _, namespace := range []string{"hostile", "hostile-too"} {
			r := of(t, g, namespace)
			r.Await().TimedOut(t.Context())
			r.Release()
		}
	},
	"many namespaces that hang": func(t *testing.T, g *Guard, _ *testclock.FakeClock) {
		var all []*Request
		for n := range 20 {
			all = append(all, of(t, g, fmt.Sprintf("hostile%d", n)))
		}
		for _, r := range all {
			r.Await().TimedOut(t.Context())
			r.Release()
		}
	},
}

// TestOneNamespaceDoesNotPauseOthers has a namespace that makes a shared host fail for it, in several ways: requests of
// others are sent, and also those of the namespace after the pause.
func TestOneNamespaceDoesNotPauseOthers(t *testing.T) {
	for name, attack := range hostile {
		t.Run(name, func(t *testing.T) {
			g, clock := newGuard(Options{Concurrency: 8, StallTimeout: 5 * time.Second, ProbeTimeout: 30 * time.Second})
			attack(t, g, clock)
			for range 3 {
				r := of(t, g, "victim")
				if r == nil {
					t.Fatal("a request of another namespace is refused")
				}
				r.Await().Answered()
				r.Release()
			}
		})
	}
}

// TestCallersDeadlineIsNotTheHostsFault has requests that end by the deadline of their caller.
func TestCallersDeadlineIsNotTheHostsFault(t *testing.T) {
	g, _ := newGuard(Options{})
	passed, cancelPassed := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancelPassed()
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, ctx := range map[string]context.Context{"deadline": passed, "canceled": canceled} {
		r := of(t, g, "a")
		r.Await().TimedOut(ctx)
		r.Release()
		if r = of(t, g, "a"); r == nil {
			t.Fatalf("%s: the next request is refused", name)
		}
		r.Release()
	}
	r := of(t, g, "a")
	r.Await().TimedOut(t.Context())
	r.Release()
	if of(t, g, "a") != nil {
		t.Error("a host that does not answer in the time that it is given is not paused")
	}
}

// TestHostThatFailsForSeveralIsTestedByOne has a host that answers no request: others do not all wait for it, and
// once it answers, no request is refused.
func TestHostThatFailsForSeveralIsTestedByOne(t *testing.T) {
	g, clock := newGuard(Options{ProbeTimeout: 30 * time.Second})
	for n := range severalOwners {
		r := of(t, g, fmt.Sprint(n))
		r.Await().TimedOut(t.Context())
		r.Release()
	}
	probe := of(t, g, "first")
	if probe == nil {
		t.Fatal("no request tests the host")
	}
	if of(t, g, "second") != nil {
		t.Error("a second request waits for a host that does not answer")
	}
	probe.Await().TimedOut(t.Context())
	probe.Release()
	probe = of(t, g, "second")
	if probe == nil {
		t.Fatal("no request tests the host after a test failed")
	}
	clock.Step(31 * time.Second)
	if again := of(t, g, "third"); again == nil {
		t.Error("a test that does not end keeps others from testing")
	}
	probe.Await().Answered()
	for n := range 10 {
		if of(t, g, fmt.Sprint("other", n)) == nil {
			t.Error("a request is refused after the host answered")
		}
	}
}

func TestOwnersShareSlots(t *testing.T) {
	g, _ := newGuard(Options{Concurrency: 8, StallTimeout: time.Hour})
	for range 6 {
		of(t, g, "a")
	}
	ctx, cancel := context.WithCancel(guard.WithOwner(t.Context(), "a"))
	cancel()
	if _, err := g.Admit(ctx, Route{Host: shared}, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("an owner has all slots: %v", err)
	}
	for n := range 20 {
		if of(t, g, fmt.Sprint(n)) == nil {
			t.Errorf("owner %d has no slot", n)
		}
	}
	if n := g.InFlight(Route{Host: shared}); n != 26 {
		t.Errorf("%d requests in flight", n)
	}
}

func TestScopesAreSeparate(t *testing.T) {
	g, _ := newGuard(Options{})
	hangs := Route{Host: shared, Scope: "api/v1/namespaces/a/services/b/proxy"}
	for range 5 {
		if r, err := g.Admit(t.Context(), hangs, ""); err == nil {
			r.Await().TimedOut(t.Context())
		}
	}
	if r, err := g.Admit(t.Context(), Route{Host: shared}, ""); err != nil || r == nil {
		t.Errorf("a path of the host pauses all of it: %v", err)
	}
}
