package egress

import (
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
)

// cgnat is the range of RFC 6598, which clouds use for pods and services.
var cgnat = netip.MustParsePrefix("100.64.0.0/10")

// Unquoted returns a transport for requests whose failed answers are quoted in the status of objects. With HidePrivate,
// failed answers of servers at private addresses have no body: whoever may create an object could otherwise read what
// a server of the cluster or of the network of the nodes answers.
func (p *Policy) Unquoted(next http.RoundTripper) http.RoundTripper {
	if !p.HidePrivate {
		return next
	}
	return unquoted{next}
}

type unquoted struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (u unquoted) RoundTrip(req *http.Request) (*http.Response, error) {
	var peer net.Addr
	ctx := httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GotConn: func(c httptrace.GotConnInfo) { peer = c.Conn.RemoteAddr() },
	})
	resp, err := u.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	resp.Request = req
	if resp.StatusCode >= http.StatusBadRequest && !isPublic(peer) {
		_ = resp.Body.Close()
		resp.Body, resp.ContentLength = http.NoBody, 0
	}
	return resp, nil
}

// CloseIdleConnections closes the connections that no request uses.
func (u unquoted) CloseIdleConnections() {
	if c, ok := u.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// isPublic reports whether an address is one of the internet. The address of a proxy is that of what answers.
func isPublic(peer net.Addr) bool {
	if peer == nil {
		return false
	}
	at, err := netip.ParseAddrPort(peer.String())
	if err != nil {
		return false
	}
	ip := at.Addr().Unmap()
	return ip.IsGlobalUnicast() && !ip.IsPrivate() && !cgnat.Contains(ip) && !linkLocal(ip)
}
