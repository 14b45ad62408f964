package kustomization

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/fault"
)

// Reach makes ways to other clusters. A cluster that does not answer fails at once for a while, so that it
// never holds up the workers that others need.
type Reach struct {
	Dialer   *net.Dialer
	Clock    clock.PassiveClock
	Stranger time.Duration // that a host which has not answered yet may take for the header of an answer
	Known    time.Duration // that one which has may take; an API server gives up a request by itself after a minute
	// requests per second to a cluster, under an identity; Burst is how many there may be at once
	QPS   float32
	Burst int

	mu    sync.Mutex
	hosts map[string]*host
}

// host is what is known of a host.
type host struct {
	answered bool      // since it was last silent
	silent   int       // how often in a row it did not answer
	closed   time.Time // until when nothing is asked of it
}

const (
	connectTimeout = 10 * time.Second // of a connection, and of its TLS
	pingAfter      = 30 * time.Second // without a sign of life on a connection that a watch is on
	idleTimeout    = 90 * time.Second
	firstPause     = 10 * time.Second // after a host did not answer; it doubles
	maxPause       = 5 * time.Minute
)

// NewReach returns one with the time-outs of production.
func NewReach(dialer *net.Dialer) *Reach {
	return &Reach{Dialer: dialer, Clock: clock.RealClock{}, Stranger: 15 * time.Second, Known: 70 * time.Second}
}

// by returns the configuration with a connection of ours. One that runs a program, which may bring
// certificates, keeps that of the library.
func (r *Reach) by(cfg *rest.Config) (*rest.Config, error) {
	out := rest.CopyConfig(cfg)
	out.QPS, out.Burst, out.UserAgent, out.WarningHandler = r.QPS, r.Burst, "sluice", rest.NoWarnings{}
	if cfg.ExecProvider != nil {
		out.Dial = r.Dialer.DialContext
		return out, nil
	}
	tls, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, err
	}
	proxy := http.ProxyFromEnvironment
	if cfg.Proxy != nil {
		proxy = cfg.Proxy
	}
	base := &http.Transport{
		Proxy: proxy, DialContext: r.Dialer.DialContext, TLSClientConfig: tls, TLSHandshakeTimeout: connectTimeout,
		ResponseHeaderTimeout: r.Known, MaxIdleConnsPerHost: 8, IdleConnTimeout: idleTimeout, ForceAttemptHTTP2: true,
		HTTP2: &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: connectTimeout},
	}
	out.TLSClientConfig, out.Proxy, out.Dial = rest.TLSClientConfig{}, nil, nil
	out.Transport = &guarded{base: base, reach: r, direct: cfg.Proxy == nil}
	return out, nil
}

// guarded is a connection to a host.
type guarded struct {
	base   *http.Transport
	reach  *Reach
	direct bool // what is known by way of a proxy that a tenant names says nothing of the host
}

// CloseIdleConnections is how whoever is done with the way lets go of it.
func (g *guarded) CloseIdleConnections() { g.base.CloseIdleConnections() }

// RoundTrip implements [http.RoundTripper].
func (g *guarded) RoundTrip(req *http.Request) (*http.Response, error) {
	patience, err := g.reach.admit(req.URL.Host)
	if err != nil && g.direct {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	timer := time.AfterFunc(patience, func() { cancel(errSilent) })
	resp, err := g.base.RoundTrip(req.WithContext(ctx)) //nolint:bodyclose // the caller closes it
	timer.Stop()
	if err == nil {
		g.heard(req, true)
		resp.Body = &body{resp.Body, cancel}
		return resp, nil
	}
	cancel(nil)
	if req.Context().Err() != nil || !errors.Is(context.Cause(ctx), errSilent) && !isTimeout(err) {
		return nil, err
	}
	g.heard(req, false)
	return nil, unanswered("%s does not answer", req.URL.Host)
}

func (g *guarded) heard(req *http.Request, answered bool) {
	if g.direct {
		g.reach.heard(req.URL.Host, answered)
	}
}

func unanswered(format, name string) *fault.Fault {
	return fault.New(meta.ReconciliationFailedReason, format, name).
		WithHint("Check the address of spec.kubeConfig, and that the controller's network reaches it")
}

// body ends the context of a request with the body of its answer.
type body struct {
	io.ReadCloser
	end context.CancelCauseFunc
}

// Close implements [io.Closer].
func (b *body) Close() error {
	defer b.end(nil)
	return b.ReadCloser.Close()
}

var errSilent = errors.New("no answer in time")

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// admit returns how long a request may wait for its answer, or why it is not sent.
func (r *Reach) admit(name string) (time.Duration, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.hosts[name]
	if h == nil {
		return r.Stranger, nil
	}
	if left := h.closed.Sub(r.Clock.Now()); left > 0 {
		return r.Stranger, unanswered("%s did not answer, and is left alone for a while", name).After(left)
	}
	if h.answered {
		return r.Known, nil
	}
	return r.Stranger, nil
}

// heard takes in whether a host answered.
func (r *Reach) heard(name string, answered bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hosts == nil {
		r.hosts = map[string]*host{}
	}
	h := r.hosts[name]
	if h == nil {
		r.forgetSome()
		h = &host{}
		r.hosts[name] = h
	}
	if h.answered = answered; answered {
		h.silent = 0
		return
	}
	now := r.Clock.Now()
	if now.Before(h.closed) {
		return // others found out at the same time
	}
	h.closed = now.Add(min(firstPause<<min(h.silent, 8), maxPause))
	h.silent++
}

// maxHosts bounds what is remembered.
const maxHosts = 10_000

func (r *Reach) forgetSome() {
	if len(r.hosts) >= maxHosts {
		r.hosts = map[string]*host{}
	}
}
