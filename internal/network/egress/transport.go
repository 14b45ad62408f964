package egress

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/network/hostguard"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// maxHeader is the maximum size, in bytes, of an answer's header.
const maxHeader = 256 << 10

// transport carries out requests with one set of options.
type transport struct {
	policy   *Policy
	guard    *hostguard.Guard
	timeouts Timeouts
	base     *http.Transport
	caller   string
	lastUsed time.Time // guarded by policy.mu
}

func newTransport(p *Policy, guard *hostguard.Guard, o Options) (*transport, error) {
	config, err := o.TLS.Config()
	if err != nil {
		return nil, err
	}
	timeouts := p.Timeouts.orDefault()
	t := &transport{policy: p, guard: guard, timeouts: timeouts, caller: o.Caller, lastUsed: p.now()}
	dialer := p.Dialer()
	t.base = &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		OnProxyConnectResponse: checkProxyAnswer,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			p.counts.connections.Add(1)
			return &countedConn{c, &p.counts}, nil
		},
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    timeouts.Connect,
		ResponseHeaderTimeout:  timeouts.Answer,
		MaxResponseHeaderBytes: maxHeader,
		MaxIdleConnsPerHost:    cmp.Or(p.PerHost, DefaultPerHost),
		// longer than the usual interval of 1m, so that connections are reused
		IdleConnTimeout:   90 * time.Second,
		ForceAttemptHTTP2: true,
		HTTP2: &http.HTTP2Config{SendPingTimeout: timeouts.Idle, PingTimeout: timeouts.Connect,
			WriteByteTimeout: timeouts.Idle},
	}
	if o.Proxy != nil {
		t.base.Proxy = http.ProxyURL(o.Proxy)
	}
	return t, nil
}

// Dialer returns a dialer that connects to allowed addresses only, for requests that the policy does not carry out.
func (p *Policy) Dialer() *net.Dialer {
	dialer := &net.Dialer{Timeout: p.Timeouts.orDefault().Connect}
	if p.RefuseLinkLocal || p.RefuseLoopback || len(p.Closed) > 0 {
		dialer.Control = p.checkAddress
	}
	return dialer
}

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.roundTrip(req)
	if err != nil && req.Body != nil {
		_ = req.Body.Close() // required by the interface; it may be closed already
	}
	return resp, err
}

func (t *transport) roundTrip(req *http.Request) (*http.Response, error) {
	out, err := checkRedirect(req)
	if err != nil {
		return nil, err
	}
	route, err := t.route(out)
	if err != nil {
		return nil, err
	}
	admitted, err := t.guard.Admit(req.Context(), route, t.callerOf(out))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(req.Context())
	end := func() { admitted.Release(); cancel() }
	var peer net.Addr
	resp, err := t.send(out.WithContext(t.policy.observePeer(ctx, &peer)), admitted)
	if err != nil {
		end()
		return nil, explain(req.Context(), err, route)
	}
	admitted.RateLimited(RetryAfter(resp, t.policy.now()))
	t.policy.mark(resp, peer)
	resp.Request = req // the next request of a chain of redirects refers to it
	resp.Body = t.newBody(resp, route, admitted, cancel, end)
	return resp, nil
}

// send sends an admitted request, and records how the host answers.
func (t *transport) send(req *http.Request, admitted *hostguard.Request) (*http.Response, error) {
	t.policy.counts.requests.Add(1)
	wait := admitted.Await()
	began := time.Now()
	resp, err := t.base.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusProxyAuthRequired {
		_ = resp.Body.Close()
		err = checkProxyAnswer(req.Context(), nil, nil, resp)
	}
	var timeout net.Error
	switch {
	case err == nil:
		wait.Answered()
	case errors.As(err, &timeout) && timeout.Timeout() && time.Since(began) >= t.timeouts.Stall:
		wait.TimedOut(req.Context())
	default:
		wait.Ended()
	}
	return resp, err
}

func (t *transport) route(req *http.Request) (hostguard.Route, error) {
	r := hostguard.Route{Host: hostPort(req.URL)}
	if err := t.policy.CheckHost(req.URL.Hostname()); err != nil {
		return r, err
	}
	proxy, err := t.base.Proxy(req)
	if err != nil {
		return r, failed("the proxy address in the environment is not a URL").
			WithHint("Correct HTTPS_PROXY and HTTP_PROXY of the controller")
	}
	if proxy != nil {
		r.Proxy = proxy.Host
	}
	return r, nil
}

// callerOf returns a digest that identifies the caller of a request.
func (t *transport) callerOf(req *http.Request) string {
	caller := t.caller
	if caller == "" {
		caller = req.Header.Get("Authorization")
	}
	sum := sha256.Sum256([]byte(caller))
	return string(sum[:])
}

// hostPort returns the host in lower case, with the port unless it is the scheme's default.
func hostPort(u *url.URL) string {
	host, port := strings.ToLower(u.Hostname()), u.Port()
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port == "" || u.Scheme == "https" && port == "443" || u.Scheme == "http" && port == "80" {
		return host
	}
	return host + ":" + port
}

func checkProxyAnswer(_ context.Context, _ *url.URL, _ *http.Request, resp *http.Response) error {
	switch {
	case resp.StatusCode == http.StatusProxyAuthRequired:
		return fault.New(meta.AuthenticationFailedReason, "the proxy refused the login").
			WithHint("Check username and password in the Secret of spec.proxySecretRef, or in HTTPS_PROXY of the " +
				"controller")
	case resp.StatusCode/100 != 2:
		return failed("the proxy refused the connection (HTTP %d)", resp.StatusCode).
			WithHint("Check which hosts the proxy allows")
	}
	return nil
}
