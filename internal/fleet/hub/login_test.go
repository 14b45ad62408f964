package hub

import (
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/sluice-gitops/sluice/internal/credentials/login"
	"github.com/sluice-gitops/sluice/internal/fleet"
	"github.com/sluice-gitops/sluice/internal/testenv/oidcprovider"
)

// loginSite is a hub with a login provider, and two clusters: edge-7 gets the ID tokens of people, edge-8 does not.
type loginSite struct {
	*testing.T
	*Server
	url      string
	clock    *testClock
	provider *oidcprovider.Provider
	streams  *seen
}

// platform is the access of the group platform.
type platform struct{}

func (platform) MayRead(_ context.Context, who Visitor, _ string) error {
	switch {
	case who.User == "":
		return refuse(http.StatusUnauthorized, "Log in", "the request has no login")
	case !slices.Contains(who.Groups, "platform"):
		return refuse(http.StatusForbidden, "Ask for ClusterRole sluice-fleet-viewer", "user '%s' may not list",
			who.User)
	}
	return nil
}

// seen are streams that note the login of the last request.
type seen struct{ cluster, login string }

func (*seen) Accept(http.ResponseWriter, *http.Request, string) {}

func (*seen) IsLinked(string) bool { return true }

func (s *seen) Forward(_ http.ResponseWriter, r *http.Request, cluster string) {
	s.cluster, s.login = cluster, r.Header.Get("Authorization")
}

func newLoginSite(t *testing.T) *loginSite {
	t.Helper()
	clock := &testClock{now: time.Now()}
	s := &loginSite{T: t, Server: newTestHub(t, clock, nil), clock: clock, streams: &seen{}}
	s.Access, s.Hub.Streams = platform{}, s.streams
	s.Pages = fstest.MapFS{"index.html": {Data: []byte(`<meta name="sluice-server" content="" />`)}}
	trusted := newIssuer(t).secret("edge-7")
	trusted.Data[fleet.SSOKey] = []byte("true")
	s.register(trusted)
	s.register(newIssuer(t).secret("edge-8"))
	server := httptest.NewUnstartedServer(nil)
	s.url = "http://" + server.Listener.Addr().String()
	s.provider = oidcprovider.New(t, s.url+login.CallbackPath)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(oidcprovider.ClientSecret), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Login = s.sessions(t, s.url, &login.OIDC{Issuer: s.provider.URL, ClientID: oidcprovider.ClientID,
		ClientSecretFile: secret, UsernameClaim: "sub", UsernamePrefix: "-", GroupsClaim: "groups"})
	server.Config.Handler = s.Handler()
	server.Start()
	t.Cleanup(server.Close)
	s.provider.SetUser("mona", map[string]any{"groups": []string{"platform"}})
	s.provider.SetUser("eve", map[string]any{"groups": []string{"guests"}})
	return s
}

// visitor is a browser.
type visitor struct {
	*loginSite
	http *http.Client
}

func (s *loginSite) browser() *visitor {
	jar, _ := cookiejar.New(nil) // never fails without options
	return &visitor{loginSite: s, http: &http.Client{Jar: jar}}
}

// do sends a request, and returns the status, the body and the address after redirects.
func (v *visitor) do(method, address, body string, edit ...func(*http.Request)) (int, string, *url.URL) {
	v.Helper()
	if strings.HasPrefix(address, "/") {
		address = v.url + address
	}
	r, err := http.NewRequestWithContext(v.Context(), method, address, strings.NewReader(body))
	if err != nil {
		v.Fatal(err)
	}
	for _, f := range edit {
		f(r)
	}
	resp, err := v.http.Do(r)
	if err != nil {
		v.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		v.Fatal(err)
	}
	return resp.StatusCode, string(text), resp.Request.URL
}

var requestID = regexp.MustCompile(`name="id" value="([^"]+)"`)

// logInAt logs in at the provider, and returns where that leads.
func (v *visitor) logInAt(user, next string) *url.URL {
	v.Helper()
	_, form, at := v.do(http.MethodGet, login.OIDCPath+"?next="+url.QueryEscape(next), "")
	found := requestID.FindStringSubmatch(form)
	if found == nil {
		v.Fatalf("the login leads to %s: %s", at, form)
	}
	values := url.Values{"id": {found[1]}, "username": {user}, "password": {oidcprovider.Password}}
	_, _, at = v.do(http.MethodPost, v.provider.URL+"/login/username", values.Encode(), func(r *http.Request) {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	})
	return at
}

// wants checks the status of a request, and a text in its answer.
func (v *visitor) wants(method, path string, status int, text string) {
	v.Helper()
	if got, body, _ := v.do(method, path, ""); got != status || !strings.Contains(body, text) {
		v.Errorf("%s %s: %d %s, want %d with %q", method, path, got, body, status, text)
	}
}

// forwards returns the login that a cluster gets of a request.
func (v *visitor) forwards(cluster string, edit ...func(*http.Request)) string {
	v.Helper()
	*v.streams = seen{}
	_, body, _ := v.do(http.MethodGet, fleet.ClustersPath+"/"+cluster+"/ui/api/v1/me", "", edit...)
	if v.streams.cluster != cluster {
		v.Errorf("cluster %s got no request: %s", cluster, body)
	}
	return v.streams.login
}

// TestLoginByOIDC lets a user see the summaries and use the clusters that get ID tokens.
func TestLoginByOIDC(t *testing.T) {
	s := newLoginSite(t)
	mona := s.browser()
	mona.wants("GET", "/api/v1/login", 200, `{"oidc":true,"token":false}`)
	mona.wants("GET", "/api/v1/login?cluster=edge-7", 200, `{"oidc":true,"token":false}`)
	mona.wants("GET", "/api/v1/login?cluster=edge-8", 200, `{"oidc":false,"token":false}`)
	mona.wants("POST", "/login/token", 403, "this hub takes no tokens. Log in with your organization")
	mona.wants("GET", fleet.ClustersPath, 401, "no login")
	if got := mona.forwards("edge-7"); got != "" {
		t.Errorf("without a login, the cluster gets %q", got)
	}
	if at := mona.logInAt("mona", "/clusters/edge-7/gates?x=1"); at.String() != s.url+"/clusters/edge-7/gates?x=1" {
		t.Errorf("the login leads to %s", at)
	}
	mona.wants("GET", fleet.ClustersPath, 200, "edge-8")
	token, isBearer := strings.CutPrefix(mona.forwards("edge-7"), "Bearer ")
	if who, err := s.Login.Verify(t.Context(), token); !isBearer || err != nil || who.User != "mona" {
		t.Errorf("the cluster gets %q: %+v, %v", token, who, err)
	}
	if got := mona.forwards("edge-7", func(r *http.Request) { r.Header.Set("Authorization", "Bearer own") }); got !=
		"Bearer own" {
		t.Errorf("a token of the request is replaced by %q", got)
	}
	if got := mona.forwards("edge-8"); got != "" {
		t.Errorf("a cluster without ID tokens gets %q", got)
	}
	site, _ := url.Parse(s.url)
	for _, c := range mona.http.Jar.Cookies(site) {
		if strings.Contains(c.Value, token[:20]) || c.Name != "sluice-hub-session" && c.Name != "sluice-hub-token" {
			t.Errorf("the browser keeps %v", c)
		}
	}

	eve := s.browser()
	if at := eve.logInAt("eve", "https://evil.example"); at.String() != s.url+"/" {
		t.Errorf("a login leads elsewhere: %s", at)
	}
	eve.wants("GET", fleet.ClustersPath, 403, "user 'eve' may not list")
	eve.wants("GET", fleet.ClustersPath+"/edge-7", 403, "sluice-fleet-viewer")

	mona.wants("POST", "/logout", 200, "")
	mona.wants("GET", fleet.ClustersPath, 401, "no login")
	if got := mona.forwards("edge-7"); got != "" {
		t.Errorf("after the logout, the cluster gets %q", got)
	}
	mona.logInAt("mona", "/")
	mona.wants("GET", fleet.ClustersPath, 200, "edge-7")
	s.clock.add(2 * time.Hour)
	mona.wants("GET", fleet.ClustersPath, 401, "no login")
	if got := mona.forwards("edge-7"); got != "" {
		t.Errorf("after its end, the cluster gets %q", got)
	}
}

// TestForgedLogins has callbacks and requests that other sites and browsers make.
func TestForgedLogins(t *testing.T) {
	s := newLoginSite(t)
	mona, attacker := s.browser(), s.browser()
	mona.wants("GET", login.CallbackPath+"?state=x&code=y", 400, "not started in this browser")
	var callback string
	attacker.http.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if r.URL.Path == login.CallbackPath {
			callback = r.URL.String()
			return http.ErrUseLastResponse
		}
		return nil
	}
	attacker.logInAt("eve", "/")
	mona.wants("GET", callback, 400, "not started in this browser") // a victim that is led to the attacker's account
	_, _, _ = mona.do(http.MethodGet, login.OIDCPath, "")
	mona.wants("GET", callback, 400, "not started in this browser")
	mona.wants("GET", fleet.ClustersPath, 401, "no login")

	mona.logInAt("mona", "/")
	for name, edit := range map[string]func(*http.Request){
		"another site":   func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
		"another origin": func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") },
	} {
		for _, path := range []string{"/logout", "/login/token", fleet.ClustersPath + "/edge-7/ui/api/v1/objects/a/b"} {
			*s.streams = seen{}
			if status, body, _ := mona.do(http.MethodPost, path, "{}", edit); status != http.StatusForbidden ||
				s.streams.cluster != "" {
				t.Errorf("%s posts to %s: %d %s", name, path, status, body)
			}
		}
	}
	mona.wants("GET", fleet.ClustersPath, 200, "edge-7")
	if status, _, _ := s.browser().do(http.MethodGet, fleet.ClustersPath, "", func(r *http.Request) {
		r.AddCookie(&http.Cookie{Name: "sluice-hub-session", Value: `{"u":"mona","g":["platform"]}`})
	}); status != http.StatusUnauthorized {
		t.Errorf("a session of our own making: %d", status)
	}
}
