package registry_test

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-gitops/sluice/internal/image/registry"
	"github.com/sluice-gitops/sluice/internal/image/store"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/source/oci"
	"github.com/sluice-gitops/sluice/internal/testenv/ociregistry"
)

// proxy is a proxy of a registry with pages of ten tags and ETags. Tests can replace its responses.
type proxy struct {
	*httptest.Server
	etags      bool
	etagOfTags bool // the ETag does not depend on the link to the next page

	mu       sync.Mutex
	statuses []string // of responses to requests for lists
	override func(w http.ResponseWriter, r *http.Request) bool
}

func newProxy(t *testing.T, to *ociregistry.Server) *proxy {
	t.Helper()
	address, err := url.Parse(to.URL)
	if err != nil {
		t.Fatal(err)
	}
	f := &proxy{etags: true}
	target := httputil.NewSingleHostReverseProxy(address)
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		override := f.override
		f.mu.Unlock()
		if override != nil && override(w, r) {
			return
		}
		if !strings.HasSuffix(r.URL.Path, "/tags/list") {
			target.ServeHTTP(w, r)
			return
		}
		q := r.URL.Query()
		q.Set("n", "10")
		r.URL.RawQuery = q.Encode()
		recorded := httptest.NewRecorder()
		target.ServeHTTP(recorded, r)
		f.respond(w, r, recorded)
	}))
	t.Cleanup(f.Close)
	return f
}

func (f *proxy) respond(w http.ResponseWriter, r *http.Request, recorded *httptest.ResponseRecorder) {
	body := recorded.Body.Bytes()
	status := recorded.Code
	if link := recorded.Header().Get("Link"); link != "" {
		w.Header().Set("Link", link)
	}
	if f.etags {
		of := body
		if !f.etagOfTags {
			of = append(slices.Clone(body), recorded.Header().Get("Link")...)
		}
		etag := fmt.Sprintf(`"%x"`, sha256.Sum256(of))
		w.Header().Set("ETag", etag)
		if r.Header.Get("If-None-Match") == etag {
			status, body = http.StatusNotModified, nil
		}
	}
	f.mu.Lock()
	f.statuses = append(f.statuses, fmt.Sprint(status))
	f.mu.Unlock()
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

func (f *proxy) takeStatuses() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	got := f.statuses
	f.statuses = nil
	return got
}

func (f *proxy) overrideWith(do func(w http.ResponseWriter, r *http.Request) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.override = do
}

func open(t *testing.T, host string) *registry.Repository {
	t.Helper()
	out, err := (&egress.Policy{}).Transport(egress.Options{})
	if err != nil {
		t.Fatal(err)
	}
	at, err := registry.ParseName(host+"/"+repo, true)
	if err != nil {
		t.Fatal(err)
	}
	r, err := registry.Open(at, oci.Access{Transport: out, Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func hostOf(s *httptest.Server) string { return strings.TrimPrefix(s.URL, "http://") }

func push(t *testing.T, r *ociregistry.Server, tags ...string) {
	t.Helper()
	for _, tag := range tags {
		r.Push(repo, tag, map[string]string{"tag": tag})
	}
}

func numbered(from, to int) []string {
	var tags []string
	for i := from; i < to; i++ {
		tags = append(tags, fmt.Sprintf("1.0.%03d", i))
	}
	return tags
}

func scan(t *testing.T, r *registry.Repository, known *store.Repository,
	excluded ...*regexp.Regexp) (*store.Repository, int) {
	t.Helper()
	s, err := r.Scan(t.Context(), known, excluded)
	if err != nil {
		t.Fatal(err)
	}
	found := &store.Repository{Pages: s.Pages}
	for _, e := range excluded {
		found.Excluded = append(found.Excluded, e.String())
	}
	return found, s.Fetched
}

func names(r *store.Repository) []string {
	var found []string
	for t := range r.Tags() {
		found = append(found, t.Name)
	}
	return found
}
