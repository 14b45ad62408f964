package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/definitions"
	"github.com/sluice-gitops/sluice/internal/ui/view"
)

// site is a server for one user, with a browser that is logged in.
type site struct {
	*testing.T
	server    *httptest.Server
	ui        *Server
	login     *LocalLogin
	client    client.WithWatch
	namespace string
}

// installed installs the definitions once for all tests.
var installed sync.Once

func newSite(t *testing.T, may view.Filter) *site {
	t.Helper()
	return newSiteAs(t, may, "")
}

// newSiteAs returns a server for a user of the cluster; empty for one who may do everything.
func newSiteAs(t *testing.T, may view.Filter, user string) *site {
	t.Helper()
	cfg := testenv.Cluster(t)
	installed.Do(func() { definitions.Install(t, cfg) })
	cfg = rest.CopyConfig(cfg)
	cfg.Impersonate.UserName = user
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: kubeclient.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	clients, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	namespace := testenv.Namespace(t)
	model := view.NewModel()
	model.Watch(t.Context(), c, namespace)
	login := NewLocalLogin(&User{Name: "admin", Client: c, Cluster: clients,
		See: func(context.Context, []view.Scope) (view.Filter, error) { return may, nil }})
	s := &Server{Model: model, Login: login, Version: "v1", Log: logr.Discard(), Now: time.Now,
		Pages: fstest.MapFS{"index.html": {Data: []byte("<p>page")}, "assets/a.js": {Data: []byte("1")}}}
	server := httptest.NewUnstartedServer(nil)
	server.Config.Handler = s.Handler(server.Listener.Addr().String())
	server.Start()
	t.Cleanup(server.Close)
	return &site{T: t, server: server, ui: s, login: login, client: c, namespace: namespace}
}

func (s *site) create(o client.Object) {
	s.Helper()
	o.SetNamespace(s.namespace)
	if err := s.client.Create(s.Context(), o); err != nil {
		s.Fatal(err)
	}
}

// request makes a request with the cookie of the session, and returns the status and the body.
func (s *site) request(method, path, body string, edit ...func(*http.Request)) (int, string) {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), method, s.server.URL+path, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	r.AddCookie(&http.Cookie{Name: localCookie, Value: s.login.token})
	r.Header.Set(csrfHeader, s.login.user.CSRF)
	for _, f := range edit {
		f(r)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// read decodes an answer, and fails the test if the request failed.
func read[T any](s *site, path string) T {
	s.Helper()
	status, body := s.request(http.MethodGet, path, "")
	var v T
	if err := json.Unmarshal([]byte(body), &v); err != nil || status != http.StatusOK {
		s.Fatalf("GET %s: %d %s (%v)", path, status, body, err)
	}
	return v
}

func (s *site) awaitItem(name string) {
	s.Helper()
	testenv.Eventually(s, "the item "+name, func() error {
		if p := read[page](s, "/api/v1/items?namespace="+s.namespace+"&q="+name); p.Total != 1 {
			return fmt.Errorf("%d items", p.Total)
		}
		return nil
	})
}

func kustomization(name string) *kustomizev1.Kustomization {
	return &kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kustomizev1.KustomizationSpec{
		Interval: meta.DurationOf(time.Hour), Prune: true,
		SourceRef: kustomizev1.SourceReference{
			Kind: "GitRepository", NamespacedName: meta.NamespacedName{Name: "repo"}}}}
}

func everyone(*view.Item) bool { return true }

func TestOnlyTheTokenLetsIn(t *testing.T) {
	s := newSite(t, everyone)
	for name, edit := range map[string]func(*http.Request){
		"no cookie":      func(r *http.Request) { r.Header.Del("Cookie") },
		"another cookie": func(r *http.Request) { r.Header.Set("Cookie", localCookie+"=guess") },
	} {
		for _, path := range []string{"/api/v1/me", "/api/v1/stream"} {
			if status, body := s.request(http.MethodGet, path, "", edit); status != http.StatusUnauthorized {
				t.Errorf("%s, %s: %d %s", name, path, status, body)
			}
		}
	}
	if status, _ := s.request(http.MethodGet, "/login?token=guess", ""); status != http.StatusForbidden {
		t.Errorf("a guessed token got %d", status)
	}
	resp, err := http.Get(s.server.URL + s.login.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	cookie := resp.Cookies()[0]
	if cookie.Value != s.login.token || !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode {
		t.Errorf("the cookie is %v", cookie)
	}
}

func TestOtherSitesAreRefused(t *testing.T) {
	s := newSite(t, everyone)
	rebound := func(r *http.Request) { r.Host = "evil.example" }
	if status, _ := s.request(http.MethodGet, "/api/v1/me", "", rebound); status != http.StatusMisdirectedRequest {
		t.Errorf("another host got %d", status)
	}
	ks := kustomization("app")
	s.create(ks)
	act := "/api/v1/objects/Kustomization/" + s.namespace + "/app/suspend"
	for name, edit := range map[string]func(*http.Request){
		"fetch metadata": func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
		"origin":         func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") },
	} {
		if status, body := s.request(http.MethodPost, act, `{"reason":"x"}`, edit); status != http.StatusForbidden {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
	if err := s.client.Get(t.Context(), client.ObjectKeyFromObject(ks), ks); err != nil || ks.Spec.Suspend {
		t.Errorf("another site suspended an object (%v)", err)
	}
}

func TestPagesMayLoadFromTheirOriginOnly(t *testing.T) {
	s := newSite(t, everyone)
	for _, path := range []string{"/", "/graph", "/object/Kustomization/a/b"} {
		resp, err := http.Get(s.server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if text, _ := io.ReadAll(resp.Body); string(text) != "<p>page" {
			t.Errorf("%s is %q", path, text)
		}
		if got := resp.Header.Get("Content-Security-Policy"); !strings.HasPrefix(got, "default-src 'self'") {
			t.Errorf("the policy of %s is %q", path, got)
		}
	}
	if status, _ := s.request(http.MethodGet, "/api/v1/nothing", ""); status != http.StatusNotFound {
		t.Errorf("an unknown address of the API got %d", status)
	}
}

func TestItemsComeInPages(t *testing.T) {
	s := newSite(t, everyone)
	for n := range 5 {
		s.create(kustomization(fmt.Sprintf("app-%d", n)))
	}
	var names []string
	testenv.Eventually(t, "five items", func() error {
		names = nil
		for after := "-"; after != ""; {
			path := "/api/v1/items?limit=2&kind=Kustomization&namespace=" + s.namespace
			if after != "-" {
				path += "&after=" + after
			}
			p := read[page](s, path)
			for _, i := range p.Items {
				names = append(names, i.Name)
			}
			after = p.Next
		}
		if len(names) != 5 {
			return fmt.Errorf("got %v", names)
		}
		return nil
	})
	if got := strings.Join(names, " "); got != "app-0 app-1 app-2 app-3 app-4" {
		t.Errorf("the pages contain %s", got)
	}
	for _, limit := range []string{"0", "-1", "1001", "x"} {
		if status, _ := s.request(http.MethodGet, "/api/v1/items?limit="+limit, ""); status != http.StatusBadRequest {
			t.Errorf("limit %s got %d", limit, status)
		}
	}
}

func TestHiddenItemsAreNeitherListedNorCountedNorStreamed(t *testing.T) {
	s := newSite(t, func(i *view.Item) bool { return i.Name == "mine" })
	stream, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.server.URL+"/api/v1/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	stream.AddCookie(&http.Cookie{Name: localCookie, Value: s.login.token})
	resp, err := http.DefaultClient.Do(stream)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	s.create(kustomization("theirs"))
	s.create(kustomization("mine"))
	s.awaitItem("mine")
	if o := read[view.Overview](s, "/api/v1/overview"); o.Total != 1 {
		t.Errorf("the overview counts %d objects, want 1", o.Total)
	}
	if p := read[page](s, "/api/v1/items?q=theirs"); p.Total != 0 {
		t.Errorf("a hidden item is listed: %v", p.Items)
	}
	got := ""
	for b := make([]byte, 4096); !strings.Contains(got, "/mine"); {
		n, err := resp.Body.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		got += string(b[:n])
	}
	if strings.Contains(got, "theirs") {
		t.Errorf("the stream contains a hidden item: %s", got)
	}
}

func TestSuspendRecordsWhoAndWhy(t *testing.T) {
	s := newSite(t, everyone)
	s.create(kustomization("app"))
	object := "/api/v1/objects/Kustomization/" + s.namespace + "/app"
	for body, want := range map[string]int{"{}": 400, `{"reason":" "}`: 400, "x": 400, `{"other":1}`: 400,
		`{"reason":"` + strings.Repeat("x", maxReason+1) + `"}`: 400, strings.Repeat(" ", maxDecision+1): 413} {
		if status, answer := s.request(http.MethodPost, object+"/suspend", body); status != want {
			t.Errorf("a body of %d bytes got %d %s", len(body), status, answer)
		}
	}
	status, body := s.request(http.MethodPost, object+"/suspend", `{"reason":"incident 7"}`)
	if status != http.StatusOK {
		t.Fatalf("suspend: %d %s", status, body)
	}
	d := read[detail](s, object)
	if !strings.Contains(d.Suspension, "admin at ") || !strings.HasSuffix(d.Suspension, ": incident 7") {
		t.Errorf("the suspension is %q", d.Suspension)
	}
	if status, body := s.request(http.MethodPost, object+"/resume", "{}"); status != http.StatusOK {
		t.Fatalf("resume: %d %s", status, body)
	}
	if d := read[detail](s, object); d.Suspension != "" || d.Item.State == view.Suspended {
		t.Errorf("after a resume the object is %s: %q", d.Item.State, d.Suspension)
	}
	if status, _ := s.request(http.MethodPost, object+"/open", "{}"); status != http.StatusBadRequest {
		t.Errorf("a Kustomization was opened: %d", status)
	}
}

func TestKubeconfigWithoutRightsSaysWhatIsMissing(t *testing.T) {
	s := newSiteAs(t, everyone, "without-rights")
	testenv.Eventually(t, "each kind says that it may not be listed", func() error {
		m := read[me](s, "/api/v1/me")
		for _, kind := range m.Kinds {
			if !strings.Contains(m.Problems[kind], "You may not list "+kind) {
				return fmt.Errorf("%s: %q, loading %v", kind, m.Problems[kind], m.Loading)
			}
		}
		return nil
	})
	if o := read[view.Overview](s, "/api/v1/overview"); o.Total != 0 {
		t.Errorf("%d objects are shown", o.Total)
	}
	for _, path := range []string{"/api/v1/objects/Gate/" + s.namespace + "/a", "/api/v1/logs?pod=a&namespace=" +
		s.namespace} {
		if status, body := s.request(http.MethodGet, path, ""); status != http.StatusForbidden ||
			!strings.Contains(body, "Ask an administrator") {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	why := read[view.Answer](s, "/api/v1/why?q=Deployment/"+s.namespace+"/a")
	if !strings.Contains(why.Note, "Ask an administrator") {
		t.Errorf("the answer about a workload is %+v", why)
	}
}

func TestErrorsOfTheClusterKeepTheirStatus(t *testing.T) {
	s := newSite(t, everyone)
	for path, want := range map[string]int{
		"/api/v1/objects/Kustomization/" + s.namespace + "/gone":     http.StatusNotFound,
		"/api/v1/objects/Secret/" + s.namespace + "/x":               http.StatusNotFound,
		"/api/v1/logs?namespace=" + s.namespace + "&pod=gone":        http.StatusNotFound,
		"/api/v1/logs?namespace=" + s.namespace + "&pod=p&lines=1e9": http.StatusBadRequest,
	} {
		status, body := s.request(http.MethodGet, path, "")
		var f failure
		if err := json.Unmarshal([]byte(body), &f); err != nil || status != want || f.Error == "" {
			t.Errorf("%s: %d %s, want %d", path, status, body, want)
		}
	}
}
