// Package egress is the one way out: every HTTP request that a source makes to a remote goes through its
// [Policy], which keeps hosts apart, so that one that is broken, slow or tired of us never delays the sources
// of another; which bounds what a remote can make us wait for; and which never carries a credential to where
// it was not meant for.
//
// Errors are faults, most without a reason: the kind that asked gives its own. None holds a credential, or
// more of a URL than its host.
package egress

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"net/http"
	"net/url"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/fault"
)

// DefaultPerHost is how many requests a host has in flight at once by default.
const DefaultPerHost = 8

// Policy is what outgoing requests share, one a process. Its zero value serves.
type Policy struct {
	// PerHost bounds the requests that a host has in flight, the reading of the answer included;
	// DefaultPerHost when zero.
	PerHost int
	// RefuseLinkLocal refuses connections to link-local addresses, where clouds keep the metadata of their machines.
	RefuseLinkLocal bool
	// RefuseLoopback refuses connections to the process's own host, and in a pod to its neighbours in it.
	RefuseLoopback bool
	// Timeouts bound each step of a request; the documented defaults where zero.
	Timeouts Timeouts
	// Clock tells the time that a host's wishes refer to; the real one when nil.
	Clock clock.PassiveClock

	mu         sync.Mutex
	transports map[[sha256.Size]byte]*transport
	hosts      map[string]*host
	counts     counts
}

// Timeouts bound each step of a request. The request's context bounds them all.
type Timeouts struct {
	Connect time.Duration // to connect, and as much again for TLS: 15s
	Answer  time.Duration // from the request to the end of the answer's header: 30s
	Idle    time.Duration // in which a body that is read must bring its next bytes: 30s
	// of reading in which a body must bring 30 bytes, less than git's keep-alives of 5 bytes each 5 seconds: 1m
	Drip time.Duration
	// without a byte of a host whose requests are all in flight, after which others no longer queue: 5s
	Stall time.Duration
}

func (t Timeouts) orDefault() Timeouts {
	return Timeouts{
		Connect: cmp.Or(t.Connect, 15*time.Second), Answer: cmp.Or(t.Answer, 30*time.Second),
		Idle: cmp.Or(t.Idle, 30*time.Second), Drip: cmp.Or(t.Drip, time.Minute), Stall: cmp.Or(t.Stall, 5*time.Second),
	}
}

// Options are what tells the connections of sources apart. Sources with equal options share them, with
// different ones nothing.
type Options struct {
	TLS   auth.TLS
	Proxy *url.URL // that of the environment when nil
	// Caller tells apart who asks, such as the name and version of the Secret with the credentials: what a
	// host says to one caller is not held against another. When empty, the Authorization header of each
	// request tells.
	Caller string
}

// key digests the options. Each part goes in with its length, so that no two options meet in one.
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

// Transport returns the way out for the options. Its redirects are bounded whichever client follows them. The
// error is a fault.
func (p *Policy) Transport(o Options) (http.RoundTripper, error) {
	key := o.key()
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.transports[key]; t != nil {
		t.used = p.now()
		return t, nil
	}
	t, err := newTransport(p, o)
	if err != nil {
		return nil, err
	}
	p.forgetTransports()
	if p.transports == nil {
		p.transports = map[[sha256.Size]byte]*transport{}
	}
	p.transports[key] = t
	return t, nil
}

// keepTransport is how long a transport is kept that nobody asks for; whoever has it may go on using it.
const keepTransport = 10 * time.Minute

func (p *Policy) forgetTransports() {
	for key, t := range p.transports {
		if p.now().Sub(t.used) > keepTransport {
			t.base.CloseIdleConnections()
			delete(p.transports, key)
		}
	}
}

// CloseIdleConnections closes the connections that no request uses now.
func (p *Policy) CloseIdleConnections() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.transports {
		t.base.CloseIdleConnections()
	}
}

// host returns the state of a host as it is reached on a route.
func (p *Policy) host(route route) *host {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.hosts[route.key()]
	if h == nil {
		p.forgetHosts()
		if p.hosts == nil {
			p.hosts = map[string]*host{}
		}
		h = newHost(route.host, cmp.Or(p.PerHost, DefaultPerHost), p.Timeouts.orDefault(), p.now)
		p.hosts[route.key()] = h
	}
	h.used = p.now()
	return h
}

// keepHost is longer than a host may ask to wait.
const keepHost = 2 * maxWait

func (p *Policy) forgetHosts() {
	for key, h := range p.hosts {
		if p.now().Sub(h.used) > keepHost && h.idle() {
			delete(p.hosts, key)
		}
	}
}

func (p *Policy) now() time.Time {
	if p.Clock == nil {
		return time.Now()
	}
	return p.Clock.Now()
}

// failed makes the fault of a request.
func failed(format string, args ...any) *fault.Fault { return fault.New("", format, args...) }
