package egress

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/network/auth"
)

func hello(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }

func TestServerCertificates(t *testing.T) {
	t.Parallel()
	ours, others := newAuthority(t), newAuthority(t)
	good := serveTLS(t, ours, time.Time{}, &tls.Config{}, hello)
	expired := serveTLS(t, ours, time.Now().Add(-time.Hour), &tls.Config{}, hello)
	p := &Policy{}
	trusting := client(t, p, Options{TLS: auth.TLS{CA: ours.pem}})

	if _, content, err := get(t, trusting, good.URL); err != nil || content != "hello" {
		t.Errorf("trusted server: got %q, %v", content, err)
	}
	_, _, err := get(t, trusting, expired.URL)
	mustFail(t, err, "not valid now: it has expired or is not yet valid. Renew the certificate, or correct the "+
		"clock of the node", "expired or is not yet valid. Renew the certificate, or correct the clock "+
		"of the node")
	_, _, err = get(t, client(t, p, Options{TLS: auth.TLS{CA: others.pem}}), good.URL)
	mustFail(t, err, "is not trusted: it is signed by an unknown authority. Add the authority's certificate as "+
		"ca.crt to the Secret", "Add the authority's certificate as ca.crt to the Secret")
	_, _, err = get(t, trusting, strings.Replace(good.URL, "127.0.0.1", "localhost", 1))
	mustFail(t, err, "another name: x509: certificate is not valid for any names, but wanted to match localhost. "+
		"Use a host name of the certificate in the URL")
	plain := serve(t, hello)
	_, _, err = get(t, trusting, strings.Replace(plain.URL, "http:", "https:", 1))
	mustFail(t, err, plain.Listener.Addr().String())
}

func TestMutualTLS(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ours.pem)
	s := serveTLS(t, ours, time.Time{}, &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}, hello)
	p := &Policy{}
	_, known := ours.issue(t, "client", time.Time{})
	if _, content, err := get(t, client(t, p, Options{TLS: known}), s.URL); err != nil || content != "hello" {
		t.Errorf("with a certificate: %q, %v", content, err)
	}
	_, _, err := get(t, client(t, p, Options{TLS: auth.TLS{CA: ours.pem}}), s.URL)
	mustFail(t, err, "If the host requires a client certificate, set tls.crt and tls.key in the Secret")
	_, stranger := newAuthority(t).issue(t, "client", time.Time{})
	stranger.CA = ours.pem
	_, _, err = get(t, client(t, p, Options{TLS: stranger}), s.URL)
	mustFail(t, err, "client certificate")
}

// connectProxy returns a proxy that serves TLS, and opens tunnels for clients with the right password.
func connectProxy(t *testing.T, a *authority, tunnels *atomic.Int64) *httptest.Server {
	t.Helper()
	return serveTLS(t, a, time.Time{}, &tls.Config{NextProtos: []string{"http/1.1"}},
		func(w http.ResponseWriter, r *http.Request) {
			if name, password, _ := (&http.Request{
				Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}).
				BasicAuth(); name != "me" || password != "s3cret" {
				w.WriteHeader(http.StatusProxyAuthRequired)
				return
			}
			if r.Method != http.MethodConnect {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			remote, err := net.Dial("tcp", r.Host)
			if err != nil {
				w.WriteHeader(http.StatusBadGateway)
				return
			}
			w.WriteHeader(http.StatusOK)
			local, buffered, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			tunnels.Add(1)
			go func() { _, _ = io.Copy(remote, buffered); _ = remote.Close() }()
			_, _ = io.Copy(local, remote)
			_ = local.Close()
		})
}

func TestProxyWithTLSAndLogin(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t)
	var tunnels atomic.Int64
	s := serveTLS(t, ours, time.Time{}, &tls.Config{}, hello)
	proxy := connectProxy(t, ours, &tunnels)
	through := func(userinfo string) *http.Client {
		u, err := url.Parse(strings.Replace(proxy.URL, "https://", "https://"+userinfo, 1))
		if err != nil {
			t.Fatal(err)
		}
		return client(t, &Policy{}, Options{TLS: auth.TLS{CA: ours.pem}, Proxy: u})
	}
	if _, content, err := get(t, through("me:s3cret@"), s.URL); err != nil || content != "hello" ||
		tunnels.Load() != 1 {
		t.Errorf("through the proxy: %q, %v, %d tunnels", content, err, tunnels.Load())
	}
	_, _, err := get(t, through("me:wr0ng@"), s.URL)
	if f := faultOf(t, err, "proxy refused the login. Check username and password in the Secret of "+
		"spec.proxySecretRef", "spec.proxySecretRef"); f.Reason != "AuthenticationFailed" ||
		strings.Contains(f.Error(), "wr0ng") {
		t.Errorf("the fault is %+v", f)
	}
	_, _, err = get(t, through("me:wr0ng@"), serve(t, hello).URL) // for plain HTTP the proxy answers without a tunnel
	mustFail(t, err, "proxy refused the login")
	_, _, err = get(t, through("me:s3cret@"), "https://127.0.0.1:1")
	mustFail(t, err, "proxy refused the connection (HTTP 502). Check which hosts the proxy allows")
}

// countingProxy returns a proxy that counts the requests to it.
func countingProxy(t *testing.T) (*url.URL, *atomic.Int64) {
	t.Helper()
	received := &atomic.Int64{}
	u, err := url.Parse(serve(t, func(http.ResponseWriter, *http.Request) { received.Add(1) }).URL)
	if err != nil {
		t.Fatal(err)
	}
	return u, received
}

func TestLinkLocalAddressesAreRejected(t *testing.T) {
	t.Parallel()
	u, received := countingProxy(t)
	p := &Policy{RefuseLinkLocal: true}
	for _, c := range []*http.Client{client(t, p, Options{}), client(t, p, Options{Proxy: u})} {
		for _, host := range []string{"169.254.169.254", "[fe80::1]", "[::ffff:169.254.169.254]", "[fd00:ec2::254]",
			"168.63.129.16"} {
			_, _, err := get(t, c, "http://"+host+"/latest/meta-data")
			mustFail(t, err, "is not allowed", "link-local, where clouds serve instance metadata. Use the name of "+
				"a host outside of the node and "+
				"its cloud's metadata")
		}
	}
	if received.Load() != 0 {
		t.Errorf("the proxy got %d requests", received.Load())
	}
	if err := (&Policy{RefuseLinkLocal: true}).checkAddress("tcp", "169.254.0.1:80", nil); err == nil {
		t.Error("a DNS name with a link-local address is accepted")
	}
	if _, content, err := get(t, client(t, p, Options{}), serve(t, hello).URL); err != nil || content != "hello" {
		t.Errorf("another address: got %q, %v", content, err)
	}
}
