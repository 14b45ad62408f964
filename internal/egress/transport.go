package egress

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/fault"
)

// maxHeader bounds, in bytes, the header of an answer.
const maxHeader = 256 << 10

// transport carries out requests with one set of options.
type transport struct {
	policy *Policy
	base   *http.Transport
	caller string
	used   time.Time // guarded by policy.mu
}

func newTransport(p *Policy, o Options) (*transport, error) {
	config, err := o.TLS.Config()
	if err != nil {
		return nil, err
	}
	timeouts := p.Timeouts.orDefault()
	t := &transport{policy: p, caller: o.Caller, used: p.now()}
	dialer := p.Dialer()
	t.base = &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		OnProxyConnectResponse: proxyAnswer,
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
		// above the usual interval of a minute, so that connections are used again
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

// Dialer connects to where the policy allows, for those whose requests it does not carry out.
func (p *Policy) Dialer() *net.Dialer {
	dialer := &net.Dialer{Timeout: p.Timeouts.orDefault().Connect}
	if p.RefuseLinkLocal || p.RefuseLoopback {
		dialer.Control = p.judge
	}
	return dialer
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.roundTrip(req)
	if err != nil && req.Body != nil {
		_ = req.Body.Close() // as the interface demands; closing twice does no harm
	}
	return resp, err
}

func (t *transport) roundTrip(req *http.Request) (*http.Response, error) {
	out, err := redirected(req)
	if err != nil {
		return nil, err
	}
	route, err := t.route(out)
	if err != nil {
		return nil, err
	}
	h := t.policy.host(route)
	caller := t.callerOf(out)
	release, err := h.admit(req.Context(), caller)
	if err != nil {
		return nil, err
	}
	t.policy.counts.requests.Add(1)
	ctx, cancel := context.WithCancel(req.Context())
	end := func() { release(); cancel() }
	done := h.expect()
	began := time.Now()
	resp, err := t.base.RoundTrip(out.WithContext(ctx))
	done()
	if err == nil && resp.StatusCode == http.StatusProxyAuthRequired {
		_ = resp.Body.Close()
		err = proxyAnswer(ctx, nil, nil, resp)
	}
	if err != nil {
		h.gaveUp(err, began)
		end()
		return nil, explain(req.Context(), err, route)
	}
	h.answered()
	h.heed(resp, caller)
	resp.Request = req // the next request of a chain of redirects is judged by it
	resp.Body = newBody(resp, route, h, cancel, end)
	return resp, nil
}

// route is where a request goes. What is known of a host by way of one proxy says nothing of another way.
type route struct {
	host  string // with the port
	proxy string // host and port; empty when there is none
}

func (r route) key() string { return r.proxy + " " + r.host }

func (t *transport) route(req *http.Request) (route, error) {
	r := route{host: hostPort(req.URL)}
	if ip, err := netip.ParseAddr(req.URL.Hostname()); err == nil {
		if err := t.policy.refuses(ip); err != nil {
			return r, explain(req.Context(), err, r) // said here, since a proxy would connect to it
		}
	}
	proxy, err := t.base.Proxy(req)
	if err != nil {
		return r, failed("the proxy's address in the environment is not a URL").
			WithHint("Correct HTTPS_PROXY and HTTP_PROXY of the controller")
	}
	if proxy != nil {
		r.proxy = proxy.Host
	}
	return r, nil
}

func (t *transport) callerOf(req *http.Request) string {
	caller := t.caller
	if caller == "" {
		caller = req.Header.Get("Authorization")
	}
	sum := sha256.Sum256([]byte(caller))
	return string(sum[:])
}

// hostPort is the host in lower case, with the port unless it is the scheme's own.
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

var (
	errLinkLocal = errors.New("it is link-local, where clouds keep the metadata of their machines")
	errLoopback  = errors.New("it is a loopback address, which leads to the controller itself")
)

// metadata are addresses that clouds use like link-local ones.
var metadata = []netip.Addr{netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("168.63.129.16"),
	netip.MustParseAddr("100.100.100.200")}

// judge judges the address after the name was looked up, so that no name leads around it.
func (p *Policy) judge(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	return p.refuses(at.Addr())
}

func (p *Policy) refuses(ip netip.Addr) error {
	ip = ip.Unmap().WithZone("")
	switch {
	case p.RefuseLinkLocal && linkLocal(ip):
		return errLinkLocal
	case p.RefuseLoopback && (ip.IsLoopback() || ip.IsUnspecified()):
		return errLoopback
	}
	return nil
}

func linkLocal(ip netip.Addr) bool {
	return ip.IsLinkLocalUnicast() || ip.IsLinkLocalMulticast() || slices.Contains(metadata, ip)
}

func proxyAnswer(_ context.Context, _ *url.URL, _ *http.Request, resp *http.Response) error {
	switch {
	case resp.StatusCode == http.StatusProxyAuthRequired:
		return fault.New(meta.AuthenticationFailedReason, "the proxy refused the login").
			WithHint("Check username and password in the Secret of spec.proxySecretRef")
	case resp.StatusCode/100 != 2:
		return failed("the proxy refused the connection (%d)", resp.StatusCode).WithHint("Check what the proxy allows")
	}
	return nil
}
