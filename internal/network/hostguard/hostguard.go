// Package hostguard is the circuit breaker for remote hosts. It keeps a host that is slow, does not answer or limits
// our rate from delaying requests to other hosts.
//
// A [Guard] limits the requests in flight to each host, pauses requests to a host that timed out, and rejects
// requests of a caller whose rate the host limits. Rejected requests fail immediately with a fault that holds the
// time of the next attempt.
//
// Requests belong to the owner of their context, [guard.OwnerOf]: the namespace whose object is worked on. A pause or a
// rate limit applies to the owner that it was caused by, since it may have chosen a path, a credential or a server name
// to which the host answers in this way. Only when requests of several owners time out, and no request is answered
// meanwhile, are the requests of all others paused, except one at a time.
package hostguard

import (
	"context"
	"maps"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const (
	// minPause is the first pause after a host timed out. Each further timeout in a row doubles it, up to maxPause.
	minPause = 10 * time.Second
	maxPause = 5 * time.Minute
	// maxRateLimit is the longest rate limit that a host can impose.
	maxRateLimit = time.Hour
	// forgetAfter is how long the state of an unused host is kept. It is longer than any pause and rate limit.
	forgetAfter = 2 * maxRateLimit
	// sweepInterval is the minimum time between two searches for unused hosts.
	sweepInterval = time.Minute
	maxHosts      = 10_000
	maxOwners     = 10_000 // for each host
	maxCallers    = 1_000  // callers with a rate limit, for each owner
	// severalOwners is the number of owners for which a host must fail before requests of others are paused.
	severalOwners = 3
	// defaultProbe is how long one request may test a host that fails for several owners, without a ProbeTimeout.
	defaultProbe = 15 * time.Second
)

// Options configure a [Guard].
type Options struct {
	// Clock is the real clock when nil.
	Clock clock.Clock
	// Concurrency is the maximum number of requests in flight to a host; unlimited when zero. One owner may have three
	// quarters of them, and one request also if others have all.
	Concurrency int
	// StallTimeout is how long a host at its maximum of requests may send nothing before further requests are rejected
	// instead of waiting for a slot.
	StallTimeout time.Duration
	// ProbeTimeout is how long, after a pause, a single request may test the host while others are rejected.
	// All requests are admitted after a pause when zero.
	ProbeTimeout time.Duration
	// Reason is the condition reason of faults; may be empty.
	Reason string
	// Hint is the hint of the fault for a host that does not answer.
	Hint string
}

// Route is a way to a host. State is kept for each route, since a failing proxy says nothing about the host.
type Route struct {
	Host  string // with the port, unless it is the default port
	Proxy string // host and port; empty for a direct connection
	// Scope separates requests that reach different servers behind the same host: those below a path, or with another
	// server name of TLS. Empty for requests of which only the host counts.
	Scope string
}

// Guard holds the state of all hosts. It is safe for concurrent use.
type Guard struct {
	options Options

	mu        sync.Mutex
	hosts     map[Route]*host
	lastSweep time.Time // of forget
}

// New returns a guard without any known host.
func New(o Options) *Guard {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &Guard{options: o, hosts: map[Route]*host{}}
}

// Admit waits for a free slot of the host and returns the admitted request, which the caller must release.
// The error is a fault if the host takes no requests now, and the cause of ctx if ctx ends first.
// A rate limit applies to the caller that it was imposed on, of the same owner.
func (g *Guard) Admit(ctx context.Context, route Route, caller string) (*Request, error) {
	return g.host(route).admit(ctx, guard.OwnerOf(ctx), caller)
}

// Len returns the number of routes whose state is kept.
func (g *Guard) Len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.hosts)
}

// InFlight returns the number of requests to the host that hold a slot.
func (g *Guard) InFlight(route Route) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if h := g.hosts[route]; h != nil {
		return h.slotsInUse()
	}
	return 0
}

func (g *Guard) host(route Route) *host {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.options.Clock.Now()
	h := g.hosts[route]
	if h == nil {
		g.forget(now)
		h = newHost(route.Host, g)
		g.hosts[route] = h
	}
	h.lastUsed = now
	return h
}

// forget removes hosts that were not used for long, and one more if there are too many.
func (g *Guard) forget(now time.Time) {
	if now.Sub(g.lastSweep) >= sweepInterval {
		g.lastSweep = now
		maps.DeleteFunc(g.hosts, func(_ Route, h *host) bool {
			return h.slotsInUse() == 0 && now.Sub(h.lastUsed) > forgetAfter
		})
	}
	if len(g.hosts) < maxHosts {
		return
	}
	for route, h := range g.hosts {
		if h.slotsInUse() == 0 {
			delete(g.hosts, route)
			return
		}
	}
}

func (g *Guard) fault(format string, args ...any) *fault.Fault {
	return fault.New(g.options.Reason, format, args...)
}

// RateLimited says that a host takes no more requests of ours until a time.
func RateLimited(reason, host string, now, until time.Time) *fault.Fault {
	return fault.New(reason, "host '%s' is rate limiting us until %s", host, until.UTC().Format(time.RFC3339)).
		WithHint("Requests resume then").After(until.Sub(now))
}

// ClusterHint says what to do about another cluster that does not answer. The messages of all objects that deploy to it
// contain it.
const ClusterHint = "Check the address of spec.kubeConfig, and that the controller can reach it"
