package incluster

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/credentials/login"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/definitions"
	"github.com/sluice-gitops/sluice/internal/testenv/oidcprovider"
	"github.com/sluice-gitops/sluice/internal/ui"
	"github.com/sluice-gitops/sluice/internal/ui/view"
)

// site is a server of the UI in the cluster of the tests, with a login provider.
type site struct {
	*testing.T
	url      string
	login    *Login
	provider *oidcprovider.Provider
	client   client.WithWatch // of the administrator
	config   *rest.Config

	mu     sync.Mutex
	log    []string
	offset time.Duration // of the clock
	still  time.Time     // at which the clock stands; zero if it runs
}

var installed sync.Once

const (
	sessionCookie = "sluice-session"
	loginCookie   = "sluice-login"
	oidcPath      = login.OIDCPath
	callbackPath  = login.CallbackPath
)

// sessionTTL is long, as tests move the clock until the API server knows a right.
const sessionTTL = 1000 * time.Hour

// requestLimit is for requests of a slow machine.
const requestLimit = 5 * time.Minute

// newSite starts a server. Users log in with the name that they have at the provider.
func newSite(t *testing.T, change ...func(*Options)) *site {
	t.Helper()
	s := &site{T: t, config: testenv.Cluster(t)}
	installed.Do(func() { definitions.Install(t, s.config) })
	var err error
	if s.client, err = client.NewWithWatch(s.config, client.Options{Scheme: kubeclient.Scheme()}); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(nil)
	s.url = "http://" + server.Listener.Addr().String()
	external, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	s.provider = oidcprovider.New(t, s.url+callbackPath)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(oidcprovider.ClientSecret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	log := funcr.New(func(_, line string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.log = append(s.log, line)
	}, funcr.Options{})
	o := Options{Config: s.config, Scheme: kubeclient.Scheme(), Mapper: s.client.RESTMapper(), TokenLogin: true}
	o.Options = login.Options{ExternalURL: external, Key: []byte(strings.Repeat("k", 32)), TTL: sessionTTL, Log: log,
		Now: s.now, OIDC: &login.OIDC{Issuer: s.provider.URL, ClientID: oidcprovider.ClientID, ClientSecretFile: secret,
			Scopes: []string{"profile"}, UsernameClaim: "sub", UsernamePrefix: "-", GroupsClaim: "groups"}}
	for _, f := range change {
		f(&o)
	}
	if s.login, err = New(o); err != nil {
		t.Fatal(err)
	}
	model := view.NewModel()
	model.Watch(t.Context(), s.client, "default")
	us := &ui.Server{Model: model, Login: s.login, Version: "v1", Log: log, Now: s.now, Hosts: []string{external.Host},
		Pages: fstest.MapFS{"index.html": {Data: []byte("<p>page")}}}
	server.Config.Handler = us.Handler(external.Host)
	server.Start()
	t.Cleanup(server.Close)
	return s
}

func (s *site) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.still.IsZero() {
		return s.still.Add(s.offset)
	}
	return time.Now().Add(s.offset)
}

// stopClock makes the clock of the server stand until it is moved.
func (s *site) stopClock() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.still = time.Now()
}

// advance moves the clock of the server.
func (s *site) advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offset += d
}

func (s *site) logged() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.log, "\n")
}

// browser keeps cookies, and knows the secret of its session.
type browser struct {
	*site
	http *http.Client
	csrf string
}

func (s *site) browser() *browser {
	s.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		s.Fatal(err)
	}
	return &browser{site: s, http: &http.Client{Jar: jar, Timeout: requestLimit}}
}

// reply is an answer that was read.
type reply struct {
	status int
	body   string
	header http.Header
	url    *url.URL // after redirects
}

// do makes a request. The path may be a whole URL.
func (b *browser) do(method, path, body string, edit ...func(*http.Request)) reply {
	b.Helper()
	if strings.HasPrefix(path, "/") {
		path = b.url + path
	}
	ctx, cancel := context.WithTimeout(b.Context(), requestLimit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if b.csrf != "" {
		r.Header.Set("X-Sluice-Csrf", b.csrf)
	}
	for _, f := range edit {
		f(r)
	}
	resp, err := b.http.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.Fatal(err)
	}
	return reply{status: resp.StatusCode, body: string(text), header: resp.Header, url: resp.Request.URL}
}

func (b *browser) get(path string) reply { b.Helper(); return b.do(http.MethodGet, path, "") }

// attempt starts a login at the provider, and returns its state.
func (b *browser) attempt() string {
	b.Helper()
	once := *b.http
	once.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	r := (&browser{site: b.site, http: &once}).get(oidcPath)
	at, err := url.Parse(r.header.Get("Location"))
	if err != nil || at.Query().Get("state") == "" {
		b.Fatalf("a login leads to %s (%v)", at, err)
	}
	return at.Query().Get("state")
}

// requestID finds the request in the form of the provider.
var requestID = regexp.MustCompile(`name="id" value="([^"]+)"`)

// oidc logs in at the provider, and returns the last answer.
func (b *browser) oidc(user, next string) reply {
	b.Helper()
	form := b.get(oidcPath + "?next=" + url.QueryEscape(next))
	found := requestID.FindStringSubmatch(form.body)
	if found == nil {
		return form
	}
	values := url.Values{"id": {found[1]}, "username": {user}, "password": {oidcprovider.Password}}
	return b.do(http.MethodPost, b.provider.URL+"/login/username", values.Encode(), func(r *http.Request) {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	})
}

// as logs in as a user, who is created with groups.
func (s *site) as(user string, groups ...string) *browser {
	s.Helper()
	s.provider.SetUser(user, map[string]any{"groups": groups})
	b := s.browser()
	if r := b.oidc(user, "/"); r.status != http.StatusOK || r.url.Path != "/" {
		s.Fatalf("the login of %s got %d at %s: %s", user, r.status, r.url, r.body)
	}
	if me := b.me(); me.User != user {
		s.Fatalf("%s is logged in as %q", user, me.User)
	}
	return b
}

// me describes the session.
type me struct {
	User, CSRF string
	Logout     bool
}

// me reads who is logged in, and the secret of the session.
func (b *browser) me() me {
	b.Helper()
	r := b.get("/api/v1/me")
	var m me
	if err := json.Unmarshal([]byte(r.body), &m); err != nil || r.status != http.StatusOK {
		b.Fatalf("me: %d %s (%v)", r.status, r.body, err)
	}
	b.csrf = m.CSRF
	return m
}

// awaits waits until an answer contains a text.
func (b *browser) awaits(path, text string) {
	b.Helper()
	testenv.Eventually(b, path+" contains "+text, func() error {
		b.advance(reviewTTL) // rights are asked for again
		if r := b.get(path); r.status != http.StatusOK || !strings.Contains(r.body, text) {
			return fmt.Errorf("%d %s", r.status, r.body)
		}
		return nil
	})
}
