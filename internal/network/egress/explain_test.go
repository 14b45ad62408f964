package egress

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"syscall"
	"testing"

	"github.com/sluice-gitops/sluice/internal/network/hostguard"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

func TestHintFitsTheNetworkError(t *testing.T) {
	dial := func(err error) error { return &net.OpError{Op: "dial", Err: err} }
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"no route": {err: dial(os.NewSyscallError("connect", syscall.EHOSTUNREACH)),
			want: "Check the address of the host, network policies, and the routes of the node"},
		"no network": {err: dial(os.NewSyscallError("connect", syscall.ENETUNREACH)),
			want: "Check the address of the host, network policies, and the routes of the node"},
		"refused connection": {err: dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)),
			want: "Check that the server is running, and the port of the URL"},
		"reset connection": {err: &net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)},
			want: "Check the server. If the host requires a client certificate, set tls.crt and tls.key in the Secret"},
		"no answer": {err: dial(os.ErrDeadlineExceeded), want: "Check the server, and the network path to it"},
		"metadata": {err: dial(errLinkLocal),
			want: "Use the name of a host outside of the node and its cloud's metadata"},
		"loopback": {err: dial(errLoopback), want: "Use the name of a Service, such as HOST.NAMESPACE.svc"},
		"no TLS": {err: tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"},
			want: "Check the scheme and the port of the URL; for a server of plain HTTP use http"},
		"client certificate": {err: &net.OpError{Op: "remote error", Err: errors.New("certificate required")},
			want: "If the host requires a client certificate, set tls.crt and tls.key in the Secret"},
	} {
		err := explain(t.Context(), c.err, hostguard.Route{Host: "git.example"})
		if f := fault.As(err); f == nil || f.Hint != c.want {
			t.Errorf("%s: got %v, want the hint %q", name, err, c.want)
		}
	}
}

func TestHintOfTheProxyOfTheEnvironment(t *testing.T) {
	policy := &Policy{}
	rt, err := policy.Transport(Options{})
	if err != nil {
		t.Fatal(err)
	}
	invalid := &url.Error{Op: "parse", URL: "http://:x", Err: errors.New("invalid port")}
	own := rt.(*transport)
	own.base.Proxy = func(*http.Request) (*url.URL, error) { return nil, invalid } // the environment is read only once
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://host.example", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = rt.RoundTrip(req) //nolint:bodyclose // it fails
	if f := fault.As(err); f == nil || f.Hint != "Correct HTTPS_PROXY and HTTP_PROXY of the controller" {
		t.Errorf("got %v", err)
	}
}

func TestHintOfAProxyNamesItsSettings(t *testing.T) {
	for status, want := range map[int]string{
		http.StatusProxyAuthRequired: "Check username and password in the Secret of spec.proxySecretRef, or in " +
			"HTTPS_PROXY of the controller",
		http.StatusForbidden: "Check which hosts the proxy allows",
	} {
		err := checkProxyAnswer(t.Context(), nil, nil, &http.Response{StatusCode: status})
		if f := fault.As(err); f == nil || f.Hint != want {
			t.Errorf("status %d: got %v, want the hint %q", status, err, want)
		}
	}
}
