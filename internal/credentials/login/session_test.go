package login

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
)

// newSessions returns sessions that begin at a time, with a key of one repeated letter.
func newSessions(t *testing.T, letter string, now func() time.Time) *Sessions {
	t.Helper()
	s, err := New(Options{Site: "sluice", About: "the UI", TTL: time.Hour, KeepToken: true, Log: logr.Discard(),
		ExternalURL: &url.URL{Scheme: "https", Host: "sluice.example.com"}, Key: []byte(strings.Repeat(letter, minKey)),
		OIDC: &OIDC{Issuer: "https://login.example.com"}, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// sent returns the value of the cookie of a session.
func (s *Sessions) sent(t *testing.T, who Session) string {
	t.Helper()
	w := httptest.NewRecorder()
	if err := s.Begin(w, who, who.User); err != nil {
		t.Fatal(err)
	}
	return w.Result().Cookies()[0].Value
}

// request returns a request with cookies of purposes.
func request(cookies map[string]string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for purpose, value := range cookies {
		r.AddCookie(&http.Cookie{Name: "__Host-sluice-" + purpose, Value: value})
	}
	return r
}

func TestForgedSessionsAreRefused(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	s := newSessions(t, "k", func() time.Time { return now })
	good := s.sent(t, Session{User: "alice", Groups: []string{"dev"}})
	if who, err := s.Get(request(map[string]string{sessionCookie: good})); err != nil || who.User != "alice" {
		t.Errorf("a session is %+v (%v)", who, err)
	}
	ends := now.Add(time.Hour).Unix()
	otherPurpose, _ := s.seal.seal(loginCookie, Session{User: "admin", CSRF: "x", Ends: ends})
	noSecret, _ := s.seal.seal(sessionCookie, Session{User: "admin", Ends: ends})
	for name, value := range map[string]string{"empty": "", "changed": good[:len(good)-4] + "AAAA",
		"cut": good[:len(good)/2], "not base64": "!!!", "large": strings.Repeat("A", 16<<10), "plain": `{"u":"admin"}`,
		"with another key":   newSessions(t, "x", s.Now).sent(t, Session{User: "admin"}),
		"of another purpose": otherPurpose,
		"without a secret":   noSecret, "of a reserved name": s.sent(t, Session{User: "system:admin"}),
	} {
		if who, err := s.Get(request(map[string]string{sessionCookie: value})); err == nil {
			t.Errorf("a cookie that is %s: %+v", name, who)
		}
	}
	now = now.Add(time.Hour)
	if who, err := s.Get(request(map[string]string{sessionCookie: good})); err == nil ||
		!strings.Contains(err.Error(), "has ended") {
		t.Errorf("after its end: %+v, %v", who, err)
	}
}

// TestIDTokensBelongToTheSession has tokens that are kept, of others, that ended, and that do not fit.
func TestIDTokensBelongToTheSession(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	s := newSessions(t, "k", func() time.Time { return now })
	keep := func(user, token string) string {
		w := httptest.NewRecorder()
		s.keepToken(w, &Identity{User: user, ends: now.Add(10 * time.Minute)}, token)
		c := w.Result().Cookies()[0]
		if !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteStrictMode || c.MaxAge > 600 {
			t.Errorf("the cookie is %v", c)
		}
		return c.Value
	}
	alice, bob := s.sent(t, Session{User: "alice"}), s.sent(t, Session{User: "bob"})
	of := keep("alice", "a.b.c")
	if strings.Contains(of, "a.b.c") {
		t.Error("the token is not sealed")
	}
	for name, test := range map[string]struct{ session, token, want string }{
		"own":             {session: alice, token: of, want: "a.b.c"},
		"of another user": {session: bob, token: of},
		"without session": {token: of},
		"not sealed":      {session: alice, token: "a.b.c"},
		"a session":       {session: alice, token: alice},
		"too large":       {session: alice, token: keep("alice", strings.Repeat("x", maxCookie))},
	} {
		if got := s.IDToken(request(map[string]string{sessionCookie: test.session, tokenCookie: test.token})); got !=
			test.want {
			t.Errorf("%s: %q", name, got)
		}
	}
	now = now.Add(10 * time.Minute)
	if got := s.IDToken(request(map[string]string{sessionCookie: alice, tokenCookie: of})); got != "" {
		t.Errorf("a token that ended: %q", got)
	}
	w := httptest.NewRecorder()
	if s.End(w); len(w.Result().Cookies()) != 2 {
		t.Errorf("the end of a session removes %v", w.Result().Cookies())
	}
}

func TestCookiesAreProtected(t *testing.T) {
	external := &url.URL{Scheme: "https", Host: "sluice.example.com"}
	seal, err := newSealer([]byte(strings.Repeat("k", minKey)))
	if err != nil {
		t.Fatal(err)
	}
	l := &Sessions{Options: Options{Site: "sluice", ExternalURL: external}, seal: seal}
	for purpose, site := range map[string]http.SameSite{sessionCookie: http.SameSiteStrictMode,
		loginCookie: http.SameSiteLaxMode} {
		w := httptest.NewRecorder()
		if err := l.set(w, purpose, "x", time.Minute); err != nil {
			t.Fatal(err)
		}
		c := w.Result().Cookies()[0]
		if c.Name != "__Host-sluice-"+purpose || !c.HttpOnly || !c.Secure || c.SameSite != site || c.Path != "/" ||
			c.MaxAge != 60 || c.Domain != "" {
			t.Errorf("the cookie is %v", c)
		}
	}
	if _, err := newSealer([]byte("short")); err == nil {
		t.Error("a short key is accepted")
	}
}
