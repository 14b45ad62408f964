package git

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/sshkeys"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// If a server sends anything but a valid pack, the fetch fails, the mirror is unchanged, and the next fetch succeeds.
func TestDamagedPacksAreNotStored(t *testing.T) {
	g := testenv.NewGit(t)
	g.Commit("app", map[string]string{"a.yaml": randomText(t, 5000), "b.yaml": randomText(t, 5000)})
	for name, damage := range map[string]func([]byte) []byte{
		"half":           func(b []byte) []byte { return b[:len(b)/2] },
		"truncated":      func(b []byte) []byte { return b[:len(b)-20] },
		"empty":          func([]byte) []byte { return nil },
		"wrong bit":      func(b []byte) []byte { b[len(b)/2] ^= 4; return b },
		"web page":       func([]byte) []byte { return []byte("<html>login</html>") },
		"no pack header": func(b []byte) []byte { return bytes.Replace(b, []byte("PACK"), []byte("KCAP"), 1) },
		"error line":     func([]byte) []byte { return []byte("0017ERR access denied\n\n") },
	} {
		t.Run(name, func(t *testing.T) {
			var evil atomic.Bool
			server := between(t, g.URL, func(r *http.Response) {
				if evil.Load() && r.Request.Method == http.MethodPost {
					b, _ := io.ReadAll(r.Body)
					r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(damage(b))), -1
					r.Header.Del("Content-Length")
				}
			})
			remote, ref := Remote{URL: server.URL + "/app"}, Reference{Branch: "main"}
			v := open(t)
			first := updated(t, v, remote, ref)
			tree, err := v.Tree(t.Context(), first, Options{})
			if err != nil {
				t.Fatal(err)
			}
			g.Commit("app", map[string]string{"a.yaml": randomText(t, 5000)})
			evil.Store(true)
			refused, err := v.Update(t.Context(), remote, ref, false)
			if fault.As(err) == nil || fault.Reason(err, "") != "GitOperationFailed" {
				t.Fatalf("got %v", err)
			}
			if _, err := v.Tree(t.Context(), refused, Options{}); err == nil {
				t.Error("Tree returns a tree for a revision that was not fetched")
			}
			if _, err := tree.ReadFile("a.yaml"); err != nil {
				t.Errorf("cannot read the previous tree: %v", err)
			}
			evil.Store(false)
			if _, err := v.Tree(t.Context(), updated(t, v, remote, ref), Options{}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestServersWithoutAnswerTimeOut(t *testing.T) {
	for name, serve := range map[string]http.HandlerFunc{
		"hangs": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"drips": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
			for tick := time.NewTicker(time.Millisecond); ; {
				select {
				case <-r.Context().Done():
					return
				case <-tick.C:
					_, _ = io.WriteString(w, "0")
					_ = http.NewResponseController(w).Flush()
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(serve)
			t.Cleanup(server.Close)
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			if _, err := open(t).Update(ctx, Remote{URL: server.URL + "/app"}, Reference{},
				false); fault.As(err) == nil {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestDeadlinesOfCallersDoNotPauseASilentSSHServer has a server that answers nothing: each caller waits for its own
// deadline, which is not the fault of the host.
func TestDeadlinesOfCallersDoNotPauseASilentSSHServer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections, and sends nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	identity, public := sshkeys.New(t)
	remote := Remote{URL: "ssh://git@" + listener.Addr().String() + "/app", Egress: &egress.Policy{}}
	remote.Credentials, err = auth.Git(remote.URL,
		map[string][]byte{"identity": identity, "known_hosts": append([]byte("host "), public...)})
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		_, err := open(t).Update(ctx, remote, Reference{}, false)
		cancel()
		if f := fault.As(err); f == nil || f.RetryAfter != 0 {
			t.Fatalf("got %v", err)
		}
	}
}

func TestRedirects(t *testing.T) {
	g := testenv.NewGit(t, "--username", "me", "--password", "right")
	g.Commit("app", map[string]string{"a.yaml": "1"})
	login := auth.GitCredentials{Username: "me", Password: "right"}
	to := func(target func(*http.Request) string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, target(r), http.StatusFound) }
	}
	elsewhere := to(func(r *http.Request) string { return g.URL + r.URL.RequestURI() })
	for name, c := range map[string]struct {
		serve   http.Handler
		wantErr string
	}{
		"endless": {serve: to(func(r *http.Request) string { return r.URL.RequestURI() }), wantErr: "redirect"},
		"to another host": {serve: elsewhere, wantErr: "refused the login (HTTP 401). Check the Secret of " +
			"spec.secretRef, and that its user has permission to read the repository"},
		"to a file": {serve: to(func(*http.Request) string { return "file:///etc/passwd" }), wantErr: "redirect"},
		"to a web page": {serve: to(func(r *http.Request) string {
			return "/login" + strings.Repeat("/x", len(r.URL.Path)%7)
		}), wantErr: ""},
		"of a POST request":  {serve: redirectPosts(t, g.URL), wantErr: "redirect"},
		"from https to http": {serve: nil, wantErr: "redirect"},
		"on the same host":   {serve: nil, wantErr: "good"},
	} {
		t.Run(name, func(t *testing.T) {
			remote := Remote{Credentials: login}
			switch {
			case name == "from https to http":
				server := httptest.NewTLSServer(elsewhere)
				t.Cleanup(server.Close)
				remote.URL, remote.Credentials.CA = server.URL+"/app", certificateOf(server)
			case c.wantErr == "good":
				server := between(t, g.URL, nil)
				front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if rest, ok := strings.CutPrefix(r.URL.RequestURI(), "/old"); ok {
						http.Redirect(w, r, rest, http.StatusMovedPermanently)
						return
					}
					server.Config.Handler.ServeHTTP(w, r)
				}))
				t.Cleanup(front.Close)
				remote.URL = front.URL + "/old/app"
			default:
				server := httptest.NewServer(c.serve)
				t.Cleanup(server.Close)
				remote.URL = server.URL + "/app"
			}
			_, err := open(t).Update(t.Context(), remote, Reference{Branch: "main"}, false)
			if c.wantErr == "good" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if fault.As(err) == nil || !strings.Contains(err.Error(), c.wantErr) {
				t.Errorf("got %v, want %q", err, c.wantErr)
			}
		})
	}
}

func TestCertificates(t *testing.T) {
	g := testenv.NewGit(t)
	g.Commit("app", map[string]string{"a.yaml": "1"})
	ca := newAuthority(t)
	now := time.Now()
	good, expired := ca.issue(t, now.Add(-time.Hour), now.Add(time.Hour)),
		ca.issue(t, now.Add(-2*time.Hour), now.Add(-time.Hour))
	client := ca.issue(t, now.Add(-time.Hour), now.Add(time.Hour))
	stranger := newAuthority(t).issue(t, now.Add(-time.Hour), now.Add(time.Hour))
	for name, c := range map[string]struct {
		server      pair
		mutual      bool
		credentials auth.GitCredentials
		fails       bool
	}{
		"known authority":     {server: good, credentials: auth.GitCredentials{CA: ca.pem}},
		"unknown authority":   {server: good, credentials: auth.GitCredentials{}, fails: true},
		"expired certificate": {server: expired, credentials: auth.GitCredentials{CA: ca.pem}, fails: true},
		"mutual": {server: good, mutual: true,
			credentials: auth.GitCredentials{CA: ca.pem, ClientCert: client.cert, ClientKey: client.key}},
		"mutual, no client certificate": {server: good, mutual: true, credentials: auth.GitCredentials{CA: ca.pem},
			fails: true},
		"mutual, untrusted client certificate": {server: good, mutual: true,
			credentials: auth.GitCredentials{CA: ca.pem, ClientCert: stranger.cert, ClientKey: stranger.key},
			fails:       true},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewUnstartedServer(between(t, g.URL, nil).Config.Handler)
			certificate, err := tls.X509KeyPair(c.server.cert, c.server.key)
			if err != nil {
				t.Fatal(err)
			}
			server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
			if c.mutual {
				server.TLS.ClientAuth, server.TLS.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
				server.TLS.ClientCAs.AppendCertsFromPEM(ca.pem)
			}
			server.StartTLS()
			t.Cleanup(server.Close)
			_, err = open(t).Update(t.Context(), Remote{URL: server.URL + "/app", Credentials: c.credentials},
				Reference{Branch: "main"}, false)
			if (err != nil) != c.fails || err != nil && fault.As(err) == nil {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestTreeCheckRejectsInvalidNames(t *testing.T) {
	g := testenv.NewGit(t)
	for name, c := range map[string]struct {
		files   map[string]string
		ignore  string
		wantErr string
	}{
		"case only": {files: map[string]string{"dir/Readme": "a", "dir/README": "b"}, wantErr: ""},
		"not UTF-8": {files: map[string]string{"dir/a\xff": "a"}, wantErr: "UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			repository := strings.ReplaceAll(strings.ReplaceAll(name, " ", "-"), ",", "")
			g.Commit(repository, c.files)
			v := open(t)
			tree, err := v.Tree(t.Context(), updated(t, v, Remote{URL: g.URL + "/" + repository},
				Reference{Branch: "main"}),
				Options{Ignore: &c.ignore})
			if err != nil {
				t.Fatal(err)
			}
			if err := tree.Check(); (err == nil) != (c.wantErr == "") ||
				err != nil && !strings.Contains(err.Error(), c.wantErr) {
				t.Errorf("got %v, want %q", err, c.wantErr)
			}
		})
	}
}

func TestLargeTreesAreRefused(t *testing.T) {
	g := testenv.NewGit(t)
	g.Commit("large", map[string]string{"a/1": "x", "a/2": "x", "b/1": "x", "b/2": "x"})
	v := open(t)
	revision := updated(t, v, Remote{URL: g.URL + "/large"}, Reference{Branch: "main"})
	budget := guard.NewBudget(5 * entryBytes)
	_, err := v.Tree(guard.WithBudget(t.Context(), budget), revision, Options{})
	if !guard.IsMemory(err) || budget.Used() != 0 {
		t.Errorf("with little memory: %v, %d bytes used", err, budget.Used())
	}
	v.mirror.limits.entries = 5
	if _, err := v.Tree(t.Context(), revision, Options{}); err == nil ||
		!strings.Contains(err.Error(), "more than 5 files and directories") {
		t.Errorf("with a limit: %v", err)
	}
	v.mirror.limits.entries = 6
	budget = guard.NewBudget(100 * entryBytes)
	tree, err := v.Tree(guard.WithBudget(t.Context(), budget), revision, Options{})
	if err != nil || budget.Used() < 6*entryBytes {
		t.Errorf("within the limits: %v, %d bytes used", err, budget.Used())
	}
	runtime.KeepAlive(tree)
	runtime.KeepAlive(v)
}

// between returns a server that forwards requests to the target, and changes the answers.
func between(t *testing.T, target string, change func(*http.Response)) *httptest.Server {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(u) },
		ModifyResponse: func(r *http.Response) error {
			if change != nil {
				change(r)
			}
			return nil
		},
	}
	server := httptest.NewServer(testenv.FullDuplex(proxy))
	t.Cleanup(server.Close)
	return server
}

// redirectPosts forwards requests to the target, but redirects POST requests.
func redirectPosts(t *testing.T, target string) http.Handler {
	forward := between(t, target, nil).Config.Handler
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			http.Redirect(w, r, target+r.URL.RequestURI(), http.StatusTemporaryRedirect)
			return
		}
		forward.ServeHTTP(w, r)
	})
}

func certificateOf(s *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

// authority signs certificates for 127.0.0.1.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// pair is a certificate and its key in PEM.
type pair struct{ cert, key []byte }

func newAuthority(t *testing.T) authority {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().
				Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return authority{cert: template, key: key, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})}
}

func (a authority) issue(t *testing.T, from, until time.Time) pair {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: from, NotAfter: until, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pair{pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})}
}
