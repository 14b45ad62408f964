package egress

import (
	"context"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// internal are ranges besides those of RFC 1918 and RFC 4193 that clusters use for pods and services.
var internal = []netip.Prefix{
	netip.MustParsePrefix("100.64.0.0/10"), // RFC 6598
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("fec0::/10"), // site-local
}

// privateHeader marks responses of servers at private addresses. What a server sends as this header is removed.
const privateHeader = "Sluice-Private-Server"

// MayQuote reports whether a response may be quoted in the status of an object. With HidePrivate, no response of a
// server at a private address may: whoever may create an object could otherwise read what a server of the cluster or of
// the network of the nodes answers.
func MayQuote(resp *http.Response) bool { return resp.Header.Get(privateHeader) == "" }

// observePeer returns a context in which the address is noted that answers a request.
func (p *Policy) observePeer(ctx context.Context, peer *net.Addr) context.Context {
	if !p.HidePrivate {
		return ctx
	}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(c httptrace.GotConnInfo) { *peer = c.Conn.RemoteAddr() },
	})
}

// mark marks a response that must not be quoted. Its status line is the standard one, as servers may write any text.
func (p *Policy) mark(resp *http.Response, peer net.Addr) {
	resp.Header.Del(privateHeader)
	if p.HidePrivate && !isPublic(peer) {
		resp.Header.Set(privateHeader, "true")
		resp.Status = strings.TrimSpace(strconv.Itoa(resp.StatusCode) + " " + http.StatusText(resp.StatusCode))
	}
}

// Unquoted returns a transport for clients that quote failed responses: those that must not be quoted have no body.
// Next is, or uses, a transport of a [Policy].
func Unquoted(next http.RoundTripper) http.RoundTripper { return unquoted{next} }

type unquoted struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (u unquoted) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := u.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= http.StatusBadRequest && !MayQuote(resp) {
		removeBody(resp)
	}
	return resp, nil
}

func removeBody(resp *http.Response) {
	_ = resp.Body.Close()
	resp.Body, resp.ContentLength = http.NoBody, 0
}

// CloseIdleConnections closes the connections that no request uses.
func (u unquoted) CloseIdleConnections() {
	if c, ok := u.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// WithoutText returns a transport for clients of API servers: they need errors in JSON, and quote those in other forms.
// Next is a transport that does not belong to a policy.
func (p *Policy) WithoutText(next http.RoundTripper) http.RoundTripper { return withoutText{next, p} }

type withoutText struct {
	next   http.RoundTripper
	policy *Policy
}

// RoundTrip implements [http.RoundTripper].
func (w withoutText) RoundTrip(req *http.Request) (*http.Response, error) {
	var peer net.Addr
	resp, err := w.next.RoundTrip(req.WithContext(w.policy.observePeer(req.Context(), &peer)))
	if err != nil {
		return nil, err
	}
	w.policy.mark(resp, peer)
	isMachineReadable := strings.HasPrefix(resp.Header.Get("Content-Type"), "application/")
	if resp.StatusCode >= http.StatusBadRequest && !MayQuote(resp) && !isMachineReadable {
		removeBody(resp)
	}
	return resp, nil
}

// WrappedRoundTripper returns the transport that sends the requests.
func (w withoutText) WrappedRoundTripper() http.RoundTripper { return w.next }

// isPublic reports whether an address is one of the internet. The address of a proxy is that of what answers.
func isPublic(peer net.Addr) bool {
	if peer == nil {
		return false
	}
	at, err := netip.ParseAddrPort(peer.String())
	if err != nil {
		return false
	}
	return !slices.ContainsFunc(formsOf(at.Addr()), isInternal)
}

func isInternal(ip netip.Addr) bool {
	return !ip.IsGlobalUnicast() || ip.IsPrivate() || linkLocal(ip) ||
		slices.ContainsFunc(internal, func(p netip.Prefix) bool { return p.Contains(ip) })
}
