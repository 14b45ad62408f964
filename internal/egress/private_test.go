package egress

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
)

// TestFailedAnswersOfPrivateServersHaveNoBody has a server at a private address, whose answers must not be shown.
func TestFailedAnswersOfPrivateServersHaveNoBody(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ok" {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = io.WriteString(w, "internal")
	}))
	t.Cleanup(server.Close)
	for _, test := range []struct {
		path, want string
		hide       bool
	}{
		{path: "/ok", hide: true, want: "internal"},
		{path: "/missing", hide: true},
		{path: "/missing", want: "internal"},
	} {
		p := &Policy{HidePrivate: test.hide}
		transport, err := p.Transport(Options{})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second request uses the connection of the first one
			resp, err := (&http.Client{Transport: p.Unquoted(transport)}).Get(server.URL + test.path)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if string(body) != test.want || err != nil || (resp.StatusCode == http.StatusOK) != (test.path == "/ok") {
				t.Errorf("%+v: status %d, body %q, %v", test, resp.StatusCode, body, err)
			}
		}
	}
}

func TestPrivateAddresses(t *testing.T) {
	for address, public := range map[string]bool{
		"8.8.8.8": true, "2606:4700::1111": true, "::ffff:8.8.8.8": true,
		"10.96.0.1": false, "172.20.0.10": false, "192.168.1.1": false, "100.64.3.4": false, "127.0.0.1": false,
		"169.254.169.254": false, "0.0.0.0": false, "::1": false, "fd00::1": false, "fe80::1": false,
		"::ffff:10.0.0.1": false, "168.63.129.16": false, "224.0.0.1": false,
	} {
		at := netip.AddrPortFrom(netip.MustParseAddr(address), 443)
		if got := isPublic(net.TCPAddrFromAddrPort(at)); got != public {
			t.Errorf("%s: public is %t", address, got)
		}
	}
	if isPublic(nil) || isPublic(&net.UnixAddr{Name: "/run/x"}) {
		t.Error("an unknown address is public")
	}
}
