package hub

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/sluice-gitops/sluice/internal/fleet"
)

// oneUser is the access of a user with a token.
type oneUser string

func (u oneUser) MayRead(_ context.Context, who Visitor, _ string) error {
	if who.Token != string(u) {
		return refuse(http.StatusUnauthorized, "Send a token of the hub's cluster", "the token is not valid")
	}
	return nil
}

func TestPagesLetWhoHasATokenRead(t *testing.T) {
	s := newTestHub(t, &testClock{now: start}, nil)
	s.Access, s.TokenLogin = oneUser("alice.token-1"), true
	s.Login = s.sessions(t, "https://hub.example.com", nil)
	s.Pages = fstest.MapFS{"index.html": {Data: []byte(`<meta name="sluice-server" content="" />`)},
		"assets/a.js": {Data: []byte("1")}}
	s.register(newIssuer(t).secret("edge-7"))
	handler := s.Handler()
	do := func(method, path, body string, change func(*http.Request)) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, "https://hub.example.com"+path, strings.NewReader(body))
		if change != nil {
			change(r)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w
	}
	for path, want := range map[string]string{"/": `content="hub"`, "/clusters/edge-7/object/Gate/a/b": `content="hub"`,
		"/index.html": `content="hub"`, "/assets/a.js": "1"} {
		w := do("GET", path, "", nil)
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) ||
			!strings.HasPrefix(w.Header().Get("Content-Security-Policy"), "default-src 'self'") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	if w := do("POST", "/login/token", `{"token": "guessed"}`, nil); w.Code != http.StatusUnauthorized ||
		len(w.Result().Cookies()) != 0 || !strings.Contains(w.Body.String(), "Send a token of the hub's cluster") {
		t.Errorf("a wrong token: %d %s", w.Code, w.Body)
	}
	long := `{"token": "` + strings.Repeat("a", maxKept+1) + `"}`
	for body, hint := range map[string]string{"": "Send JSON with a token", "[]": "Send JSON with a token",
		`{"token": "a; b"}`: "Create one with kubectl create token", long: "Create one with kubectl create token"} {
		w := do("POST", "/login/token", body, nil)
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), hint) {
			t.Errorf("%.20s: %d %s", body, w.Code, w.Body)
		}
	}
	w := do("POST", "/login/token", `{"token": "alice.token-1"}`, nil)
	cookies := w.Result().Cookies()
	if w.Code != http.StatusOK || len(cookies) != 1 || !cookies[0].HttpOnly || !cookies[0].Secure ||
		cookies[0].SameSite != http.SameSiteStrictMode || cookies[0].Name != "__Host-sluice-hub-session" {
		t.Fatalf("%d %+v", w.Code, cookies)
	}
	with := func(r *http.Request) { r.AddCookie(cookies[0]) }
	for path, want := range map[string]int{
		fleet.ClustersPath:                          http.StatusOK,
		fleet.ClustersPath + "/edge-7":              http.StatusOK,
		fleet.ClustersPath + "/edge-7/ui/api/v1/me": http.StatusNotFound,
	} {
		if w := do("GET", path, "", with); w.Code != want {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	if w := do("GET", fleet.ClustersPath, "", nil); w.Code != http.StatusUnauthorized {
		t.Errorf("without a login: %d", w.Code)
	}
	if w := do("POST", fleet.ReportsPath, "{}", with); w.Code < 400 {
		t.Errorf("the login of a user reports: %d", w.Code)
	}
	if w := do("POST", "/logout", "", func(r *http.Request) {
		with(r)
		r.Header.Set("Sec-Fetch-Site", "cross-site")
	}); w.Code != http.StatusForbidden {
		t.Errorf("another site logs out: %d", w.Code)
	}
	if w := do("POST", "/logout", "", with); w.Result().Cookies()[0].MaxAge >= 0 {
		t.Errorf("the login is not removed: %+v", w.Result().Cookies())
	}
}
