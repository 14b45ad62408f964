package incluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/internal/credentials/login"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// absent returns an error if an answer contains a text.
func absent(r reply, text string) error {
	if r.status != http.StatusOK || strings.Contains(r.body, text) {
		return fmt.Errorf("%d %s", r.status, r.body)
	}
	return nil
}

// cookie returns a cookie of the browser.
func (b *browser) cookie(name string) *http.Cookie {
	b.Helper()
	u, _ := url.Parse(b.url)
	for _, c := range b.http.Jar.Cookies(u) {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// sessionOf returns the cookie of a session of who has a token.
func (s *site) sessionOf(token string) *http.Cookie {
	s.Helper()
	w := httptest.NewRecorder()
	if err := s.login.sessions.Begin(w, login.Session{Token: token}, "someone"); err != nil {
		s.Fatal(err)
	}
	return w.Result().Cookies()[0]
}

func with(cookies ...*http.Cookie) func(*http.Request) {
	return func(r *http.Request) {
		for _, c := range cookies {
			r.AddCookie(c)
		}
	}
}

func TestLoginAndLogout(t *testing.T) {
	s := newSite(t)
	b := s.browser()
	if r := b.get("/api/v1/login"); r.body != "{\"oidc\":true,\"token\":true}\n" {
		t.Errorf("the ways to log in are %s", r.body)
	}
	for _, path := range []string{"/api/v1/me", "/api/v1/items", "/api/v1/stream"} {
		if r := b.get(path); r.status != http.StatusUnauthorized {
			t.Errorf("%s without a login: %d %s", path, r.status, r.body)
		}
	}
	b = s.as("alice", "dev")
	if !strings.Contains(s.logged(), `"login to the UI" "user"="alice" "groups"=["dev"]`) {
		t.Errorf("the login has no audit line: %s", s.logged())
	}
	if b.cookie(loginCookie) != nil {
		t.Error("the cookie of the attempt remains")
	}
	old := b.cookie(sessionCookie)
	if r := b.do(http.MethodPost, "/logout", "", func(r *http.Request) { r.Header.Del("X-Sluice-Csrf") }); r.status !=
		http.StatusForbidden {
		t.Errorf("logout without the secret: %d %s", r.status, r.body)
	}
	if r := b.do(http.MethodPost, "/logout", ""); r.status != http.StatusOK || b.cookie(sessionCookie) != nil {
		t.Errorf("logout: %d %s", r.status, r.body)
	}
	if r := s.browser().do(http.MethodGet, "/api/v1/me", "", with(old)); r.status != http.StatusOK {
		t.Errorf("the session is not in the cookie only: %d", r.status)
	}
	s.advance(sessionTTL)
	if r := s.browser().do(http.MethodGet, "/api/v1/me", "", with(old)); r.status != http.StatusUnauthorized ||
		!strings.Contains(r.body, "has ended") {
		t.Errorf("an expired session: %d %s", r.status, r.body)
	}
}

func TestForgedCookiesAreRefused(t *testing.T) {
	s := newSite(t)
	good := s.as("alice").cookie(sessionCookie).Value
	for name, value := range map[string]string{"changed": good[:len(good)-4] + "AAAA", "plain": `{"u":"admin"}`} {
		r := s.browser().do(http.MethodGet, "/api/v1/me", "", func(r *http.Request) {
			r.Header.Set("Cookie", sessionCookie+"="+value)
		})
		if r.status != http.StatusUnauthorized || strings.Contains(r.body, ".go:") {
			t.Errorf("a cookie that is %s: %d %s", name, r.status, r.body)
		}
	}
	if r := s.browser().do(http.MethodGet, "/", "", func(r *http.Request) {
		r.Header.Set("Cookie", "a="+strings.Repeat("A", 2<<20))
	}); r.status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a huge header: %d", r.status)
	}
}

func TestForgedTokensAreRefused(t *testing.T) {
	s := newSite(t)
	for name, body := range map[string]string{
		"guess":     `{"token":"guess"}`,
		"unsigned":  `{"token":"eyJhbGciOiJub25lIn0.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQ6YTpiIn0."}`,
		"empty":     `{"token":""}`,
		"not JSON":  `token`,
		"unknown":   `{"token":"x","user":"admin"}`,
		"too large": `{"token":"` + strings.Repeat("x", 1<<20) + `"}`,
		"long":      `{"token":"` + strings.Repeat("x", maxToken+1) + `"}`,
	} {
		b := s.browser()
		r := b.do(http.MethodPost, "/login/token", body)
		if r.status != http.StatusUnauthorized && r.status != http.StatusBadRequest || b.cookie(sessionCookie) != nil {
			t.Errorf("%s: %d %s", name, r.status, r.body)
		}
	}
	for name, edit := range map[string]func(*http.Request){
		"form":           func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") },
		"another origin": func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") },
		"another site":   func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
	} {
		r := s.browser().do(http.MethodPost, "/login/token", `{"token":"x"}`, edit)
		if r.status != http.StatusUnsupportedMediaType && r.status != http.StatusForbidden {
			t.Errorf("%s: %d %s", name, r.status, r.body)
		}
	}
	off := newSite(t, func(o *Options) { o.TokenLogin = false })
	if r := off.browser().do(http.MethodPost, "/login/token", `{"token":"x"}`); r.status == http.StatusOK {
		t.Errorf("a disabled login: %d %s", r.status, r.body)
	}
	r := off.browser().do(http.MethodGet, "/api/v1/me", "", with(off.sessionOf("x")))
	if r.status != http.StatusUnauthorized {
		t.Errorf("a session by token although tokens are disabled: %d", r.status)
	}
}

// TestUnknownTokensDoNotKeepOutUsers tries more unknown tokens at once than the API server is asked about in the time
// that a review may take. Meanwhile the sessions of several ServiceAccounts need reviews.
func TestUnknownTokensDoNotKeepOutUsers(t *testing.T) {
	s := newSite(t)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: testenv.Namespace(t), Name: "viewer"}}
	s.create(account)
	var sessions []*http.Cookie
	for range 5 {
		request := &authenticationv1.TokenRequest{}
		if err := s.client.SubResource("token").Create(t.Context(), account, request); err != nil {
			t.Fatal(err)
		}
		sessions = append(sessions, s.sessionOf(request.Status.Token))
	}
	const clients = 1500 // more than reviewQPS allows at first, and in the 5 s of a review
	ctx, stop := context.WithCancel(t.Context())
	var ended guard.WaitGroup
	tried, turns := make(chan struct{}, clients), make(chan struct{})
	for n := range clients {
		ended.Go("unknown tokens", func() {
			for i := 0; ctx.Err() == nil; i++ {
				_, err := s.login.account(ctx, s.login.logins, fmt.Sprintf("%d.%d.x", n, i))
				if i == 0 {
					tried <- struct{}{}
				}
				if refused := (*loginError)(nil); errors.As(err, &refused) {
					select { // another one tries again, too
					case turns <- struct{}{}:
					default:
					}
					continue
				}
				select { // so many others wait that the API server was not asked
				case <-turns:
				case <-ctx.Done():
				}
			}
		})
	}
	for range clients / 20 { // the others wait
		<-tried
	}
	for _, cookie := range sessions {
		testenv.Eventually(t, "a user", func() error { // a slow machine may miss the time of a review
			if r := s.browser().do(http.MethodGet, "/api/v1/me", "", with(cookie)); r.status != http.StatusOK {
				return fmt.Errorf("got %d %s", r.status, r.body)
			}
			return nil
		})
	}
	stop()
	ended.Wait()
}

func TestOtherHostsAreRefused(t *testing.T) {
	s := newSite(t)
	r := s.browser().do(http.MethodGet, "/", "", func(r *http.Request) { r.Host = "evil.example" })
	if r.status != http.StatusMisdirectedRequest || !strings.Contains(r.body, s.login.ExternalURL.Host) {
		t.Errorf("another host: %d %s", r.status, r.body)
	}
}
