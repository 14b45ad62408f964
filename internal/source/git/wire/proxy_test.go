package wire

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/rand"
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

	"golang.org/x/crypto/ssh"

	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/network/sshkey"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

func TestDialThroughProxies(t *testing.T) {
	address := greetingServer(t)
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
	for reason, c := range map[string]struct{ proxy, wantErr string }{
		"none":                 {proxy: "", wantErr: ""},
		"HTTP proxy":           {proxy: at(web.URL, me), wantErr: ""},
		"SOCKS5 proxy":         {proxy: at("socks5://"+socksProxy(t, through), me), wantErr: ""},
		"no login":             {proxy: at(web.URL, nil), wantErr: "407"},
		"wrong login":          {proxy: at(web.URL, url.UserPassword("me", "wrong")), wantErr: "407"},
		"SOCKS5 without login": {proxy: "socks5://" + socksProxy(t, through), wantErr: "authentication"},
		"not a URL": {proxy: "proxy", wantErr: "Correct 'address' in the Secret of spec.proxySecretRef; it is a URL " +
			"such as http://proxy.example:3128"},
		"unsupported scheme": {proxy: "ftp://proxy:21", wantErr: "not a URL"},
		"unreachable": {proxy: "http://127.0.0.1:1", wantErr: "Check 'address' in the Secret of " +
			"spec.proxySecretRef, and " +
			"that the controller can reach the proxy"},
	} {
		t.Run(reason, func(t *testing.T) {
			before := through.Load()
			conn, err := dial(t.Context(), &net.Dialer{}, c.proxy, address)
			if c.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), c.wantErr) || strings.Contains(err.Error(), "secret") {
					t.Errorf("got %v, want %q", err, c.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close() // read-only
			if got, err := io.ReadAll(conn); err != nil || string(got) != "SSH-2.0-test\r\n" {
				t.Errorf("%q, %v", got, err)
			}
			if used := through.Load() > before; used != (c.proxy != "") {
				t.Errorf("the proxy was used: %t", used)
			}
		})
	}
}

func TestHintsOfRemotes(t *testing.T) {
	known := auth.GitCredentials{Identity: &sshkey.Private{}, KnownHosts: []byte("git.example nonsense")}
	for name, c := range map[string]struct {
		remote Remote
		want   string
	}{
		"proxy": {remote: Remote{URL: "https://git.example/app", ProxyURL: "proxy"}, want: "Correct 'address' in the " +
			"Secret of spec.proxySecretRef; it is a URL such as http://proxy.example:3128"},
		"SSH without a key": {remote: Remote{URL: "ssh://git@git.example/app"},
			want: "Set spec.secretRef to a Secret with 'identity' and 'known_hosts'"},
		"known_hosts": {remote: Remote{URL: "ssh://git@git.example/app", Credentials: known},
			want: "Set it to the output of ssh-keyscan git.example"},
		"known_hosts of a port": {remote: Remote{URL: "ssh://git@git.example:2222/app", Credentials: known},
			want: "Set it to the output of ssh-keyscan -p 2222 git.example"},
	} {
		_, err := DialPush(t.Context(), c.remote)
		if f := fault.As(err); f == nil || f.Hint != c.want {
			t.Errorf("%s: got %v, want the hint %q", name, err, c.want)
		}
	}
}

func TestSSHRefusesLinkLocalAddresses(t *testing.T) {
	key, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := ssh.NewPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	policy := &egress.Policy{RefuseLinkLocal: true}
	known := "host " + string(ssh.MarshalAuthorizedKey(public))
	asked := &atomic.Int64{}
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(proxy.Close)
	for _, through := range []string{"", proxy.URL, "socks5://" + proxy.Listener.Addr().String()} {
		for _, host := range []string{"169.254.169.254", "[64:ff9b::a9fe:a9fe]", "2852039166:22",
			"169.254.169.254.:22"} {
			conn, err := newSSH(Remote{Egress: policy, ProxyURL: through, Credentials: auth.GitCredentials{
				Identity: &sshkey.Private{}, KnownHosts: []byte(known)}}, uploadPack, &url.URL{Host: host}, &counts{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := conn.open(t.Context()); err == nil || !strings.Contains(err.Error(), "link-local") {
				t.Errorf("%s, proxy %q: got %v", host, through, err)
			}
		}
	}
	if asked.Load() != 0 {
		t.Errorf("the proxy got %d requests", asked.Load())
	}
}

func TestDialThroughSilentProxy(t *testing.T) {
	listener := listen(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			cancel() // the proxy accepted, and does not answer
			t.Cleanup(func() { _ = conn.Close() })
		}
	}()
	if _, err := dial(ctx, &net.Dialer{}, "http://"+listener.Addr().String(), "host.invalid:22"); err == nil {
		t.Error("got a connection")
	}
}

// TestAnswersOfProxiesAreBounded has a proxy that answers with up to 100 MiB of header.
func TestAnswersOfProxiesAreBounded(t *testing.T) {
	for name, c := range map[string]struct{ start, repeated, want string }{
		"header": {start: "HTTP/1.1 200 OK\r\n", repeated: "X-Some: text\r\n", want: "its answer has more than " +
			"256 KiB. Check 'address' in the Secret of spec.proxySecretRef: it must be that of an HTTP proxy that " +
			"supports CONNECT"},
		"status": {start: "HTTP/1.1 200 ", repeated: "OK", want: "its answer has more than 256 KiB"},
		"page":   {start: "HTTP/1.1 403 Forbidden\r\n\r\n", repeated: "a page", want: "403"},
	} {
		t.Run(name, func(t *testing.T) {
			listener := listen(t)
			ended := make(chan bool, 1)
			go func() {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				defer conn.Close() // the client has closed it
				_, _ = http.ReadRequest(bufio.NewReader(conn))
				_, _ = io.WriteString(conn, c.start)
				repeated := strings.Repeat(c.repeated, 10<<20/len(c.repeated))
				for n := 0; n < 10 && err == nil; n++ { // more than the system buffers
					_, err = io.WriteString(conn, repeated)
				}
				ended <- err != nil
			}()
			_, err := dial(t.Context(), &net.Dialer{}, "http://"+listener.Addr().String(), "host.invalid:22")
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if !<-ended {
				t.Error("the whole answer was read")
			}
		})
	}
}

func TestParseURL(t *testing.T) {
	for raw, wantErr := range map[string]string{
		"https://host/path": "", "http://host:8080/path": "", "ssh://git@host:22/path": "", "ssh://host/~me/path": "",
		"git@host:path/to": "Use ssh://git@host/path/to", "https://": "Use https://host/path or " +
			"ssh://git@host/path", "": "Use https",
		"file:///etc":     "Use https",
		"git://host/path": "scheme 'git'. Use https, http or ssh", "https:// host/": "Use https", "://": "Use https",
	} {
		_, err := ParseURL(raw)
		if f := fault.As(err); (f == nil) != (wantErr == "") ||
			f != nil && (f.Reason != "URLInvalid" || !f.Terminal || !strings.Contains(err.Error(), wantErr)) {
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
				t.Errorf("%q: the error is not a fault: %v", raw, err)
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

// greetingServer sends the greeting of an SSH server, and closes the connection. It returns the address.
func greetingServer(t *testing.T) string {
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

// connectProxy is an HTTP proxy for the user 'me' with the password 'secret'.
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

// socksProxy is a SOCKS5 proxy (RFC 1928, RFC 1929) for the user 'me' with the password 'secret'.
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
		_, _ = io.ReadFull(conn, b) // missing bytes are zero, and rejected
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
