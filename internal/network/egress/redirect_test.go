package egress

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/network/auth"
)

func TestRedirectsAreLimited(t *testing.T) {
	t.Parallel()
	var received atomic.Int64
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		received.Add(1)
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
	received.Store(0)
	_, _, err := get(t, c, s.URL+"/100")
	mustFail(t, err, "redirects more than 5 times. Set the URL to the final address of the redirects, if there is one")
	if received.Load() != 6 {
		t.Errorf("a redirect loop got %d requests, want 6", received.Load())
	}
}

// credentials are headers that contain secrets, and two that do not.
var credentials = []string{"Authorization", "Basic c2VjcmV0", "Cookie", "session=secret", "Private-Token", "secret",
	"X-Amz-Security-Token", "secret",
	"Accept", "text/plain", "If-None-Match", "x"}

func TestRedirectToOtherHostDropsCredentials(t *testing.T) {
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
			t.Errorf("the other host did not get the headers that select the content: %v", r.Header)
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
				t.Error("a redirect to the same host dropped the credentials")
			}
			hello(w, r)
		case "/home":
			if name := secretIn(r); name != "" {
				t.Errorf("after a redirect through another host, the host got %s", name)
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
			t.Errorf("%s: got %q, %v", path, content, err)
		}
	}
	// a request with a body, such as one for a token, is not forwarded to another host
	resp, err := c.Post(s.URL+"/far", "application/x-www-form-urlencoded", strings.NewReader("password=secret"))
	if err == nil {
		_ = resp.Body.Close()
	}
	mustFail(t, err, "redirects a request with a body to another host, which is not allowed. Use the URL of the "+
		"other host")
}

func TestRedirectFromHTTPSToHTTPIsRejected(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t)
	var received atomic.Int64
	plain := serve(t, func(w http.ResponseWriter, r *http.Request) { received.Add(1); hello(w, r) })
	secure := serveTLS(t, ours, time.Time{}, &tls.Config{}, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, plain.URL, http.StatusFound)
	})
	_, _, err := get(t, client(t, &Policy{}, Options{TLS: auth.TLS{CA: ours.pem}}), secure.URL, credentials...)
	mustFail(t, err, "redirects from https to http, which is not allowed. Check the URL, and who controls the host")
	if received.Load() != 0 {
		t.Error("the plain HTTP host got a request")
	}
}
