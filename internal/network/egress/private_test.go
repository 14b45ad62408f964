package egress

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
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
			resp, err := (&http.Client{Transport: Unquoted(transport)}).Get(server.URL + test.path)
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
		"::ffff:10.0.0.1": false, "168.63.129.16": false, "224.0.0.1": false, "64:ff9b::a00:1": false,
		"64:ff9b::808:808": true, "64:ff9b:1::a00:1": false, "2002:a00:1::1": false, "240.16.0.1": false,
		"198.18.0.1": false, "fec0::1": false,
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

// TestServersThatAreNotOfHTTPAreNotQuoted has servers of other protocols, whose first line is not shown, and a server
// that answers with a text in place of the standard one.
func TestServersThatAreNotOfHTTPAreNotQuoted(t *testing.T) {
	for _, answer := range []string{"SSH-2.0-internal\r\n", "-ERR unknown command 'internal'\r\n",
		"HTTP/1.1 internal internal\r\n\r\n", "HTTP/1.1 200 OK\r\ninternal\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: internal\r\n\r\n", "HTTP/1.1 500 internal\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: internal \"internal\r\n\r\n"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = http.ReadRequest(bufio.NewReader(c))
				_, _ = io.WriteString(c, answer)
				_ = c.Close()
			}
		}()
		p := &Policy{HidePrivate: true}
		transport, err := p.Transport(Options{})
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&http.Client{Transport: transport}).Get("http://" + l.Addr().String() + "/")
		text := ""
		if err == nil {
			text = resp.Status
			_ = resp.Body.Close()
		} else {
			text = err.Error()
		}
		if strings.Contains(text, "internal") {
			t.Errorf("%q is quoted: %s", answer, text)
		}
	}
}

// TestServersDoNotMarkThemselves has a server that sends the header of the mark.
func TestServersDoNotMarkThemselves(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(privateHeader, "true")
	}))
	t.Cleanup(server.Close)
	for _, hide := range []bool{false, true} {
		transport, err := (&Policy{HidePrivate: hide}).Transport(Options{})
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&http.Client{Transport: transport}).Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if MayQuote(resp) == hide {
			t.Errorf("hide %t: the response may be quoted: %t", hide, MayQuote(resp))
		}
	}
}
