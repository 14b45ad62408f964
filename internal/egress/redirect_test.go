package egress

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/auth"
)

func TestRedirectsAreBounded(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		var n int
		if _, err := fmt.Sscanf(r.URL.Path, "/%d", &n); err != nil || n == 0 {
			hello(w, r)
			return
		}
		if n < 100 {
			n--
		}
		http.Redirect(w, r, fmt.Sprintf("/%d", n), http.StatusFound)
	})
	c := client(t, &Policy{}, Options{})
	if _, content, err := get(t, c, s.URL+"/5"); err != nil || content != "hello" {
		t.Errorf("five redirects: %q, %v", content, err)
	}
	asked.Store(0)
	_, _, err := get(t, c, s.URL+"/100")
	mustFail(t, err, "redirects more than 5 times")
	if asked.Load() != 6 {
		t.Errorf("a loop was asked %d times", asked.Load())
	}
}

// credentials are headers that say who asks.
var credentials = []string{"Authorization", "Basic c2VjcmV0", "Cookie", "session=secret", "Private-Token", "secret",
	"X-Amz-Security-Token", "secret",
	"Accept", "text/plain", "If-None-Match", "x"}

func TestCredentialsStayWithTheirHost(t *testing.T) {
	t.Parallel()
	secretIn := func(r *http.Request) string {
		for name, v := range r.Header {
			if text := strings.Join(v, " "); strings.Contains(text, "secret") || strings.Contains(text, "c2VjcmV0") {
				return name
			}
		}
		return ""
	}
	var home, back string
	other := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if name := secretIn(r); name != "" {
			t.Errorf("the other host got %s", name)
		}
		if r.Header.Get("Accept") != "text/plain" || r.Header.Get("If-None-Match") != "x" {
			t.Errorf("the other host is not told what is wanted: %v", r.Header)
		}
		if r.URL.Path == "/back" {
			http.Redirect(w, r, back, http.StatusFound)
			return
		}
		hello(w, r)
	})
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/near":
			http.Redirect(w, r, "/here", http.StatusFound)
		case "/here":
			if secretIn(r) == "" {
				t.Error("the credentials got lost on the host's own redirect")
			}
			hello(w, r)
		case "/home":
			if name := secretIn(r); name != "" {
				t.Errorf("after a detour the host got %s again", name)
			}
			hello(w, r)
		default:
			http.Redirect(w, r, home+r.URL.Path, http.StatusTemporaryRedirect)
		}
	})
	home, back = other.URL, s.URL+"/home"
	c := client(t, &Policy{}, Options{})
	for _, path := range []string{"/near", "/far", "/back"} {
		if _, content, err := get(t, c, s.URL+path+"?sig=secret", credentials...); err != nil || content != "hello" {
			t.Errorf("%s answered %q, %v", path, content, err)
		}
	}
	// a request with content, such as one for a token, is not sent on to strangers
	resp, err := c.Post(s.URL+"/far", "application/x-www-form-urlencoded", strings.NewReader("password=secret"))
	if err == nil {
		_ = resp.Body.Close()
	}
	mustFail(t, err, "redirects a request with content")
}

func TestHTTPSNeverLeadsToHTTP(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t)
	var asked atomic.Int64
	plain := serve(t, func(w http.ResponseWriter, r *http.Request) { asked.Add(1); hello(w, r) })
	secure := serveTLS(t, ours, time.Time{}, &tls.Config{}, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, plain.URL, http.StatusFound)
	})
	_, _, err := get(t, client(t, &Policy{}, Options{TLS: auth.TLS{CA: ours.pem}}), secure.URL, credentials...)
	mustFail(t, err, "redirects from https to http")
	if asked.Load() != 0 {
		t.Error("the plain host was asked")
	}
}
