// Package egress carries out all HTTP requests to remote hosts. Its [Policy] keeps a host that is slow, broken or rate
// limiting us from delaying requests to other hosts, bounds the time and the data of each answer, and never sends a
// credential to a host that it was not meant for.
//
// Errors are faults, most without a reason: the controller of the object adds its own. No error contains a
// credential, or more of a URL than its host.
package egress

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/network/hostguard"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// DefaultPerHost is the default maximum number of requests in flight to a host.
const DefaultPerHost = 8

// Policy holds what outgoing requests of a process share. Its zero value is ready to use. Fields must not change
// after the first request.
type Policy struct {
	// PerHost is the maximum number of requests in flight to a host, including those whose answer is being read;
	// DefaultPerHost when zero.
	PerHost int
	// RefuseLinkLocal rejects connections to link-local addresses, where clouds serve instance metadata.
	RefuseLinkLocal bool
	// RefuseLoopback rejects connections to the process's own host and, in a pod, to its other containers.
	RefuseLoopback bool
	// Closed are further networks that connections are refused to.
	Closed []netip.Prefix
	// HidePrivate says that what servers at private addresses answer must not be quoted, see [MayQuote].
	HidePrivate bool
	// Timeouts bound the steps of a request; a zero field has the documented default.
	Timeouts Timeouts
	// Clock is the clock for pauses and rate limits; the real one when nil.
	Clock clock.Clock

	mu         sync.Mutex
	transports map[[sha256.Size]byte]*transport
	guard      *hostguard.Guard
	counts     counts
}

// Timeouts bound the steps of a request. The request's context bounds all of them.
type Timeouts struct {
	Connect time.Duration // for the connection, and again for the TLS handshake: 15s
	Answer  time.Duration // from the end of the request to the end of the answer's header: 30s
	Idle    time.Duration // for the next bytes of a body that is being read: 30s
	// Drip is the time, spent in reading, in which a body must deliver 30 bytes: 1m. Git's keep-alives of 5 bytes
	// every 5 seconds satisfy it.
	Drip time.Duration
	// Stall is how long a host with the maximum of requests in flight may send nothing before further requests
	// fail instead of waiting: 5s.
	Stall time.Duration
}

func (t Timeouts) orDefault() Timeouts {
	return Timeouts{
		Connect: cmp.Or(t.Connect, 15*time.Second), Answer: cmp.Or(t.Answer, 30*time.Second),
		Idle: cmp.Or(t.Idle, 30*time.Second), Drip: cmp.Or(t.Drip, time.Minute), Stall: cmp.Or(t.Stall, 5*time.Second),
	}
}

// Options select a transport. Sources with equal options share connections; sources with different options do not.
type Options struct {
	TLS   auth.TLS
	Proxy *url.URL // the proxy of the environment when nil
	// Caller identifies the client for rate limits, such as the name and version of the Secret with the credentials.
	// A rate limit of one caller does not apply to others. When empty, the Authorization header of each request
	// identifies the caller.
	Caller string
}

// key returns a digest of the options. Each part is prefixed with its length, so that different options have
// different keys.
func (o Options) key() [sha256.Size]byte {
	proxy := ""
	if o.Proxy != nil {
		proxy = o.Proxy.String()
	}
	h := sha256.New()
	for _, part := range [][]byte{o.TLS.CA, o.TLS.Cert, o.TLS.Key, []byte(proxy), []byte(o.Caller)} {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		h.Write(part)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// Transport returns the transport for the options. It limits redirects, whichever client follows them. The error is a
// fault.
func (p *Policy) Transport(o Options) (http.RoundTripper, error) {
	key := o.key()
	guard := p.Guard()
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.transports[key]; t != nil {
		t.lastUsed = p.now()
		return t, nil
	}
	t, err := newTransport(p, guard, o)
	if err != nil {
		return nil, err
	}
	p.removeUnusedTransports()
	if p.transports == nil {
		p.transports = map[[sha256.Size]byte]*transport{}
	}
	p.transports[key] = t
	return t, nil
}

// transportTTL is how long an unused transport is kept. Callers that still hold it may continue to use it.
const transportTTL = 10 * time.Minute

func (p *Policy) removeUnusedTransports() {
	for key, t := range p.transports {
		if p.now().Sub(t.lastUsed) > transportTTL {
			t.base.CloseIdleConnections()
			delete(p.transports, key)
		}
	}
}

// CloseIdleConnections closes the connections that no request uses.
func (p *Policy) CloseIdleConnections() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.transports {
		t.base.CloseIdleConnections()
	}
}

// Guard returns the policy's circuit breaker, for requests that the policy does not carry out.
func (p *Policy) Guard() *hostguard.Guard {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.guard == nil {
		timeouts := p.Timeouts.orDefault()
		p.guard = hostguard.New(hostguard.Options{Clock: p.Clock, Concurrency: cmp.Or(p.PerHost, DefaultPerHost),
			StallTimeout: timeouts.Stall, ProbeTimeout: timeouts.Answer,
			Hint: "Check the host, and the network path to it"})
	}
	return p.guard
}

func (p *Policy) now() time.Time {
	if p.Clock == nil {
		return time.Now()
	}
	return p.Clock.Now()
}

// failed returns the fault of a failed request.
func failed(format string, args ...any) *fault.Fault { return fault.New("", format, args...) }
