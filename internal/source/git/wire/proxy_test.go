package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sluice-gitops/sluice/internal/fault"
)

func TestSSHGoesThroughProxies(t *testing.T) {
	address := speaksFirst(t)
	through := &atomic.Int64{}
	web := httptest.NewServer(connectProxy(t, through))
	t.Cleanup(web.Close)
	at := func(u string, user *url.Userinfo) string {
		parsed, err := url.Parse(u)
		if err != nil {
			t.Fatal(err)
		}
		parsed.User = user
		return parsed.String()
	}
	me := url.UserPassword("me", "secret")
	for reason, c := range map[string]struct{ proxy, says string }{
		"none":                   {"", ""},
		"an HTTP proxy":          {at(web.URL, me), ""},
		"a SOCKS5 proxy":         {at("socks5://"+socksProxy(t, through), me), ""},
		"without the login":      {at(web.URL, nil), "407"},
		"with another login":     {at(web.URL, url.UserPassword("me", "wrong")), "407"},
		"SOCKS5 without a login": {"socks5://" + socksProxy(t, through), "authentication"},
		"no URL":                 {"proxy", "no URL"},
		"of another kind":        {"ftp://proxy:21", "no URL"},
		"that nobody runs":       {"http://127.0.0.1:1", "cannot be reached"},
	} {
		t.Run(reason, func(t *testing.T) {
			before := through.Load()
			conn, err := dial(t.Context(), &net.Dialer{}, c.proxy, address)
			if c.says != "" {
				if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "secret") {
					t.Errorf("got %v, want %q", err, c.says)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close() // it is read
			if got, err := io.ReadAll(conn); err != nil || string(got) != "SSH-2.0-test\r\n" {
				t.Errorf("%q, %v", got, err)
			}
			if used := through.Load() > before; used != (c.proxy != "") {
				t.Error("the proxy was not used as it should be")
			}
		})
	}
}

func TestProxyThatHangs(t *testing.T) {
	listener := listen(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			cancel() // it is connected, and will never be answered
			t.Cleanup(func() { _ = conn.Close() })
		}
	}()
	if _, err := dial(ctx, &net.Dialer{}, "http://"+listener.Addr().String(), "host.invalid:22"); err == nil {
		t.Error("the dead proxy gave a connection")
	}
}

func TestURLsOfRepositories(t *testing.T) {
	for raw, says := range map[string]string{
		"https://host/path": "", "http://host:8080/path": "", "ssh://git@host:22/path": "", "ssh://host/~me/path": "",
		"git@host:path/to": "Write it as ssh://git@host/path/to", "https://": "Use https", "": "Use https",
		"file:///etc":     "Use https",
		"git://host/path": "scheme 'git'", "https:// host/": "Use https", "://": "Use https",
	} {
		_, err := ParseURL(raw)
		if f := fault.As(err); (f == nil) != (says == "") ||
			f != nil && (f.Reason != "URLInvalid" || !f.Terminal || !strings.Contains(err.Error(), says)) {
			t.Errorf("%q: %v", raw, err)
		}
	}
}

func FuzzParseURL(f *testing.F) {
	for _, raw := range []string{"https://me:secret@host/path?q", "ssh://git@host:22/~x", "git@host:path",
		"https://[::1]:443/%2e%2e", "http://host\x00/"} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := ParseURL(raw)
		if err != nil {
			if fault.As(err) == nil {
				t.Errorf("%q: no fault: %v", raw, err)
			}
			return
		}
		if u.Hostname() == "" {
			t.Errorf("%q has no host", raw)
		}
		link, err := newLink(Remote{URL: raw}, uploadPack, &counts{})
		if err == nil {
			link.close()
		}
	})
}

// speaksFirst is a server that greets, as SSH does, and hangs up.
func speaksFirst(t *testing.T) string {
	t.Helper()
	listener := listen(t)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "SSH-2.0-test\r\n")
			_ = conn.Close()
		}
	}()
	return listener.Addr().String()
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// connectProxy is an HTTP proxy for me with the password secret.
func connectProxy(t *testing.T, through *atomic.Int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		login := &http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}
		if user, password, _ := login.BasicAuth(); r.Method != http.MethodConnect || user != "me" ||
			password != "secret" {
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		}
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		through.Add(1)
		_, _ = io.WriteString(conn, "HTTP/1.1 200 Connected\r\n\r\n")
		join(conn, r.Host)
	})
}

// socksProxy is a SOCKS5 proxy (RFC 1928, RFC 1929) for me with the password secret.
func socksProxy(t *testing.T, through *atomic.Int64) string {
	t.Helper()
	listener := listen(t)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			address, err := socks(conn)
			if err != nil {
				_ = conn.Close()
				continue
			}
			through.Add(1)
			join(conn, address)
		}
	}()
	return listener.Addr().String()
}

func socks(conn net.Conn) (string, error) {
	read := func(n int) []byte {
		b := make([]byte, n)
		_, _ = io.ReadFull(conn, b) // what is missing is zero, and refused
		return b
	}
	if methods := read(int(read(2)[1])); !strings.Contains(string(methods), "\x02") {
		_, err := conn.Write([]byte{5, 0xff})
		return "", errors.Join(err, errors.New("no login"))
	}
	_, _ = conn.Write([]byte{5, 2})
	user := read(int(read(2)[1]))
	password := read(int(read(1)[0]))
	if string(user) != "me" || string(password) != "secret" {
		return "", errors.New("wrong login")
	}
	_, _ = conn.Write([]byte{1, 0})
	read(4) // connect to an IPv4 address
	ip, port := read(4), binary.BigEndian.Uint16(read(2))
	_, err := conn.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0})
	return (&net.TCPAddr{IP: ip, Port: int(port)}).String(), err
}

func join(conn net.Conn, address string) {
	defer conn.Close() // both sides are done
	other, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer other.Close() // both sides are done
	_, _ = io.Copy(conn, other)
}
