package rollout

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/limits/keysize"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/network/hostguard"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const (
	connectTimeout  = 10 * time.Second // for a connection, and for its TLS handshake
	pingInterval    = 30 * time.Second // without data on a connection with a watch
	idleConnTimeout = 90 * time.Second
	unreachableHint = hostguard.ClusterHint
)

// Transports makes the HTTP transports to the API servers of other clusters. Requests to a server that timed out or
// cannot be reached fail immediately for a while, so that they do not occupy the workers that other clusters need.
type Transports struct {
	Egress *egress.Policy // which addresses are allowed
	Guard  *hostguard.Guard
	// FirstTimeout is the maximum time to the response header from a server that has not answered yet.
	FirstTimeout time.Duration
	// ResponseTimeout is the maximum time to the response header from other servers. An API server itself ends requests
	// after a minute.
	ResponseTimeout time.Duration
	// AnswerTimeout is the maximum time from the response header to the end of an answer that is not a watch. Answers
	// hold memory meanwhile.
	AnswerTimeout time.Duration
	// QPS is the maximum rate of requests to a cluster with one identity, Burst the maximum number at once.
	QPS   float32
	Burst int
	// Wrap wraps the transport of all requests; may be nil.
	Wrap func(http.RoundTripper) http.RoundTripper
}

// NewTransports returns transports with the default timeouts. clock is the real clock when nil.
func NewTransports(policy *egress.Policy, clock clock.Clock) *Transports {
	return &Transports{
		Egress:       policy,
		Guard:        hostguard.New(hostguard.Options{Clock: clock, Reason: reason, Hint: unreachableHint}),
		FirstTimeout: 15 * time.Second, ResponseTimeout: 70 * time.Second, AnswerTimeout: 70 * time.Second,
	}
}

// reason is the condition reason of a cluster that does not answer.
const reason = meta.ReconciliationFailedReason

// configure returns the configuration with our transport. A configuration that runs a program, which may provide
// certificates, keeps the transport of client-go.
func (t *Transports) configure(cfg *rest.Config) (*rest.Config, error) {
	if err := keysize.CheckTLS(cfg.CAData, cfg.CertData, cfg.KeyData); err != nil {
		return nil, err
	}
	out := rest.CopyConfig(cfg)
	out.QPS, out.Burst, out.UserAgent, out.WarningHandler = t.QPS, t.Burst, "sluice", rest.NoWarnings{}
	if cfg.ExecProvider != nil {
		out.Dial = t.Egress.Dialer().DialContext
		out.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return t.wrap(&limitedTransport{next, t.Egress})
		})
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
		Proxy: proxy, DialContext: t.Egress.Dialer().DialContext, TLSClientConfig: tls,
		TLSHandshakeTimeout: connectTimeout, ResponseHeaderTimeout: t.ResponseTimeout,
		MaxIdleConnsPerHost: 8, IdleConnTimeout: idleConnTimeout, ForceAttemptHTTP2: true,
		HTTP2: &http.HTTP2Config{SendPingTimeout: pingInterval, PingTimeout: connectTimeout},
	}
	out.TLSClientConfig, out.Proxy, out.Dial = rest.TLSClientConfig{}, nil, nil
	out.Transport = t.wrap(&limitedTransport{&guardedTransport{base: base, transports: t, proxy: proxy,
		scope: scopeOf(cfg)},
		t.Egress})
	return out, nil
}

func (t *Transports) wrap(next http.RoundTripper) http.RoundTripper {
	if t.Wrap == nil {
		return next
	}
	return t.Wrap(next)
}

// limitedTransport bounds the memory for answers, and checks the address, as a tenant may choose the server. With a
// proxy, the dialer does not see the address.
type limitedTransport struct {
	http.RoundTripper
	egress *egress.Policy
}

// RoundTrip implements [http.RoundTripper].
func (l *limitedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if guard.IsInitialList(req.URL) {
		return nil, guard.ErrInitialList
	}
	if err := l.egress.CheckHost(req.URL.Hostname()); err != nil {
		return nil, err
	}
	resp, err := l.egress.WithoutText(l.RoundTripper).RoundTrip(req) //nolint:bodyclose // the caller closes it
	if err == nil {
		guard.LimitAnswer(req, resp)
	}
	return resp, err
}

// WrappedRoundTripper returns the transport that sends the requests.
func (l *limitedTransport) WrappedRoundTripper() http.RoundTripper { return l.RoundTripper }

// guardedTransport sends requests that the host guard admits.
type guardedTransport struct {
	base       *http.Transport
	transports *Transports
	proxy      func(*http.Request) (*url.URL, error)
	scope      string // see [hostguard.Route]
}

// scopeOf returns what of a configuration, besides the host, decides which server answers: a path, such as that of a
// Service behind the proxy of an API server, and the server name of TLS.
func scopeOf(cfg *rest.Config) string {
	path := cfg.APIPath
	if u, _, err := rest.DefaultServerUrlFor(cfg); err == nil {
		path = u.Path
	}
	return strings.Trim(path, "/") + "\x00" + cfg.ServerName
}

// CloseIdleConnections closes the connections that are not in use.
func (g *guardedTransport) CloseIdleConnections() { g.base.CloseIdleConnections() }

// RoundTrip implements [http.RoundTripper].
func (g *guardedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	route := hostguard.Route{Host: req.URL.Host, Scope: g.scope}
	if u, err := g.proxy(req); err == nil && u != nil {
		route.Proxy = u.Host
	}
	admitted, err := g.transports.Guard.Admit(req.Context(), route, "")
	if err != nil {
		return nil, err
	}
	defer admitted.Release()
	timeout := g.transports.FirstTimeout
	if admitted.HostHasAnswered() {
		timeout = g.transports.ResponseTimeout
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	timer := guard.AfterFunc("ending a request", timeout, func() { cancel(errTimeout) })
	wait := admitted.Await()
	resp, err := g.base.RoundTrip(req.WithContext(ctx)) //nolint:bodyclose // the caller closes it
	timer.Stop()
	if err == nil {
		wait.Answered()
		resp.Body = g.body(ctx, cancel, req.URL, resp.Body)
		return resp, nil
	}
	timedOut := errors.Is(context.Cause(ctx), errTimeout) || isTimeout(err)
	cancel(nil)
	switch {
	case req.Context().Err() != nil:
	case timedOut:
		wait.TimedOut(req.Context())
		return nil, fault.New(reason, "host '%s' does not answer", req.URL.Host).WithHint(unreachableHint)
	case isUnreachable(err):
		wait.TimedOut(req.Context()) // it costs no time, but client-go repeats the request many times in each pass
		return nil, fault.New(reason, "host '%s' cannot be reached", req.URL.Host).Because(err).
			WithHint(unreachableHint)
	}
	wait.Ended()
	return nil, err
}

// body is that of a response. It fails if an answer does not end in time, and ends the context of the request when it
// is closed.
type body struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer // nil for a watch
	host   string
}

func (g *guardedTransport) body(ctx context.Context, cancel context.CancelCauseFunc, of *url.URL,
	from io.ReadCloser) io.ReadCloser {
	b := &body{ReadCloser: from, ctx: ctx, cancel: cancel, host: of.Host}
	if !guard.IsWatch(of) {
		b.timer = guard.AfterFunc("ending an answer", g.transports.AnswerTimeout, func() { cancel(errTimeout) })
	}
	return b
}

// Read implements [io.Reader].
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) && errors.Is(context.Cause(b.ctx), errTimeout) {
		err = fault.New(reason, "host '%s' did not end its answer in time", b.host).WithHint(unreachableHint)
	}
	return n, err
}

// Close implements [io.Closer].
func (b *body) Close() error {
	if b.timer != nil {
		b.timer.Stop()
	}
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}

var errTimeout = errors.New("no response in time")

// closedIdle is how an error of net/http ends if the server closed a connection before the request was sent on it.
const closedIdle = "server closed idle connection"

// isUnreachable reports whether no server answered at the address: its name is not known, or it refuses or ends
// connections, as the load balancer of a cluster without a control plane does.
func isUnreachable(err error) bool {
	var name *net.DNSError
	return errors.As(err, &name) || strings.HasSuffix(err.Error(), closedIdle) ||
		slices.ContainsFunc([]error{syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EHOSTUNREACH,
			syscall.ENETUNREACH, io.EOF, io.ErrUnexpectedEOF}, func(kind error) bool { return errors.Is(err, kind) })
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
