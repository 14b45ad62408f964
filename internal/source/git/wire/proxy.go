package wire

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"

	"golang.org/x/net/proxy"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// dial opens a connection for SSH: directly, or through a SOCKS5 proxy or an HTTP proxy that supports CONNECT.
func dial(ctx context.Context, direct *net.Dialer, rawProxy, address string) (net.Conn, error) {
	if rawProxy == "" {
		if d, ok := proxy.FromEnvironmentUsing(direct).(proxy.ContextDialer); ok {
			return d.DialContext(ctx, "tcp", address)
		}
		return direct.DialContext(ctx, "tcp", address)
	}
	u, err := url.Parse(rawProxy)
	if err != nil || u.Hostname() == "" {
		return nil, invalidProxy()
	}
	switch u.Scheme {
	case "socks5", "socks5h":
		d, err := proxy.FromURL(u, direct)
		if err != nil {
			return nil, invalidProxy()
		}
		return d.(proxy.ContextDialer).DialContext(ctx, "tcp", address)
	case "http", "https":
		return connect(ctx, direct, u, address)
	}
	return nil, invalidProxy()
}

// invalidProxy is the fault for an address that is not that of a proxy.
func invalidProxy() error {
	return fault.New(meta.URLInvalidReason, "the proxy address is not a URL of an HTTP or SOCKS5 proxy").
		WithHint("Correct 'address' in the Secret of spec.proxySecretRef; it is a URL such as " +
			"http://proxy.example:3128")
}

// connect opens a connection through an HTTP proxy (RFC 9110, 9.3.6).
func connect(ctx context.Context, direct *net.Dialer, u *url.URL, address string) (net.Conn, error) {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	at := net.JoinHostPort(u.Hostname(), port)
	conn, err := direct.DialContext(ctx, "tcp", at)
	if err != nil && ctx.Err() == nil {
		return nil, gitFault("cannot connect to proxy '%s'", at).
			WithHint("Check 'address' in the Secret of spec.proxySecretRef, and that the controller can reach the " +
				"proxy")
	}
	if err != nil {
		return nil, err
	}
	if u.Scheme == "https" {
		conn = tls.Client(conn, &tls.Config{ServerName: u.Hostname(), MinVersion: tls.VersionTLS12})
	}
	release := guard.AfterDone(ctx, "ending a connection", func() { _ = conn.Close() })
	r, err := tunnel(conn, u, address)
	if !release() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("proxy '%s': %w", at, err), conn.Close())
	}
	return &tunneled{conn, r}, nil
}

// maxConnectAnswer is the maximum size, in bytes, of the answer of a proxy to a request for a tunnel.
const maxConnectAnswer = 256 << 10

// tunnel requests a tunnel from the proxy. The returned reader may already contain data of the other side.
func tunnel(conn net.Conn, u *url.URL, address string) (*bufio.Reader, error) {
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: address}, Host: address,
		Header: http.Header{}}
	if u.User != nil {
		login := http.Request{Header: http.Header{}}
		password, _ := u.User.Password()
		login.SetBasicAuth(u.User.Username(), password)
		req.Header.Set("Proxy-Authorization", login.Header.Get("Authorization"))
	}
	if err := req.Write(conn); err != nil {
		return nil, err
	}
	answer := &limited{Reader: conn, left: maxConnectAnswer,
		err: gitFault("its answer has more than %d KiB", maxConnectAnswer>>10).
			WithHint("Check 'address' in the Secret of spec.proxySecretRef: it must be that of an HTTP proxy that " +
				"supports CONNECT")}
	r := bufio.NewReader(answer)
	resp, err := http.ReadResponse(r, req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close() // reads the rest, up to the limit; the connection is closed
		return nil, &statusError{code: resp.StatusCode}
	}
	answer.left = math.MaxInt64 // the body of this answer is the connection
	return r, nil
}

// tunneled is a connection whose first data may be in r.
type tunneled struct {
	net.Conn
	r *bufio.Reader
}

func (t *tunneled) Read(p []byte) (int, error) { return t.r.Read(p) }
