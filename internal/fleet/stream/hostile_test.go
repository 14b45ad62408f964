package stream

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// hostile is a cluster whose answers tests choose.
func hostile(s *site, answer *http.HandlerFunc) {
	s.cluster("evil", func(w http.ResponseWriter, r *http.Request) { (*answer)(w, r) })
	s.linked("evil")
}

func typed(kind string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		_, _ = io.WriteString(w, "<script>alert(1)</script>")
	}
}

func to(location string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", location)
		w.WriteHeader(http.StatusFound)
	}
}

// TestHostileAnswers has answers that would give a cluster a part of the hub's origin.
func TestHostileAnswers(t *testing.T) {
	s := newSite(t)
	var answer http.HandlerFunc
	hostile(s, &answer)
	for _, test := range []struct {
		name, path string
		answer     http.HandlerFunc
		status     int
		location   string
	}{
		{"a page", "/api/v1/me", typed("text/html"), 502, ""},
		{"a script", "/api/v1/me", typed("text/javascript"), 502, ""},
		{"a style", "/api/v1/me", typed("text/css"), 502, ""},
		{"a picture", "/api/v1/me", typed("image/svg+xml"), 502, ""},
		{"two types", "/api/v1/me", typed("application/json, text/html"), 502, ""},
		{"no type", "/api/v1/me", typed(""), 502, ""},
		{"text", "/api/v1/me", typed("text/plain; charset=utf-7"), 200, ""},
		{"another site", "/api/v1/me", to("https://evil.example.com/"), 502, ""},
		{"another cluster", "/api/v1/me", to("/clusters/edge-7/"), 502, ""},
		{"a login elsewhere", "/login/oidc", to("https://evil.example.com/"), 502, ""},
		{"a login without TLS", "/login/oidc", to("http://idp.example.com/"), 502, ""},
		{"a login with a name", "/login/oidc", to("https://idp.example.com@evil.example.com/"), 502, ""},
		{"a login", "/login/oidc", to("https://idp.example.com/a?b=c"), 302, "https://idp.example.com/a?b=c"},
		{"the end of a login", "/login/callback", to("/gates?x=1"), 302, "/clusters/evil/gates?x=1"},
		{"the end with dots", "/login/callback", to("/../../fleet/v1"), 302, "/clusters/evil/fleet/v1"},
		{"the end with coded dots", "/login/callback", to("/%2e%2e/%2e%2e/x"), 302, "/clusters/evil/x"},
		{"the end elsewhere", "/login/callback", to("//evil.example.com"), 502, ""},
		{"the end as a script", "/login/callback", to("javascript:alert(1)"), 502, ""},
	} {
		answer = test.answer
		got := s.do("evil", http.MethodGet, test.path, "")
		if got.status != test.status || got.header.Get("Location") != test.location {
			t.Errorf("%s: %d to %q: %s", test.name, got.status, got.header.Get("Location"), got.body)
		}
		if test.status == 502 && strings.Contains(got.body, "<script>") {
			t.Errorf("%s: %s", test.name, got.body)
		}
		if test.status == 200 && (got.header.Get("Content-Type") != "text/plain; charset=utf-8" ||
			got.header.Get("Content-Security-Policy") != policy ||
			got.header.Get("X-Content-Type-Options") != "nosniff") {
			t.Errorf("%s: %v", test.name, got.header)
		}
	}
}

// TestHostileHeaders has headers that would give a cluster a part of the hub's origin, or take one away.
func TestHostileHeaders(t *testing.T) {
	s := newSite(t)
	var answer http.HandlerFunc
	hostile(s, &answer)
	answer = func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Link", "</x.js>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		for name, value := range map[string]string{"Access-Control-Allow-Origin": "*", "Service-Worker-Allowed": "/",
			"Clear-Site-Data": `"cookies"`, "Refresh": "0; url=https://evil.example.com",
			"Strict-Transport-Security": "0",
			"Content-Security-Policy":   "default-src *", "Cache-Control": "max-age=100000"} {
			h.Set(name, value)
		}
		for _, c := range []*http.Cookie{
			{Name: "__Host-sluice-session", Value: "own", Path: "/", Secure: true, MaxAge: 60},
			{Name: "sluice-login", Value: "l", Path: "/fleet/v1/clusters/edge-7/", Domain: "example.com"},
			{Name: "sluice-at.edge-7.sluice-session", Value: "x"}, {Name: "other", Value: "x"},
			{Name: "sluice-login", Value: "second"},
		} {
			http.SetCookie(w, c)
		}
		sendJSON(w, "{}")
	}
	got := s.do("evil", http.MethodGet, "/api/v1/me", "")
	want := []string{
		"sluice-at.evil.sluice-login=second; Path=/fleet/v1/clusters/evil/ui/; HttpOnly; SameSite=Lax",
		"__Secure-sluice-at.evil.sluice-session=own; Path=/fleet/v1/clusters/evil/ui/; Max-Age=60; HttpOnly; Secure; " +
			"SameSite=Strict"}
	if cookies := got.header.Values("Set-Cookie"); strings.Join(cookies, "\n") != strings.Join(want, "\n") &&
		strings.Join(cookies, "\n") != want[1]+"\n"+want[0] {
		t.Errorf("the cookies are %q", cookies)
	}
	for name := range got.header {
		switch name {
		case "Set-Cookie", "Date":
		default:
			if v := got.header.Get(name); strings.Contains(v, "*") || strings.Contains(v, "100000") ||
				strings.Contains(v, "evil") || name == "Link" {
				t.Errorf("%s: %s", name, v)
			}
		}
	}
	answer = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X", strings.Repeat("x", 1<<20))
		sendJSON(w, "{}")
	}
	if r := s.do("evil", http.MethodGet, "/api/v1/me", ""); r.status != http.StatusBadGateway {
		t.Errorf("a huge header: %d %s", r.status, r.body)
	}
}

// TestBrokenClusters has clusters that open a stream and then break it.
func TestBrokenClusters(t *testing.T) {
	s := newSite(t)
	for name, answer := range map[string]string{"closes": "", "speaks HTTP/1.1": "HTTP/1.1 200 OK\r\n\r\n",
		"sends garbage": strings.Repeat("\x00\xff", 100)} {
		c := &Cluster{Client: s.as("broken")}
		var conn net.Conn
		testenv.Eventually(t, "a stream", func() (err error) { // the hub may keep the former one just now
			conn, err = c.open(t.Context())
			return err
		})
		_, _ = io.WriteString(conn, answer)
		if answer == "" {
			_ = conn.Close()
		}
		if r := s.do("broken", http.MethodGet, "/api/v1/me", ""); r.status != http.StatusBadGateway &&
			r.status != http.StatusServiceUnavailable || !strings.Contains(r.body, "Try again") &&
			!strings.Contains(r.body, "no stream") {
			t.Errorf("a cluster that %s: %d %s", name, r.status, r.body)
		}
		eventually(t, "the stream is gone", func() bool { return !s.IsLinked("broken") })
		_ = conn.Close()
	}
}
