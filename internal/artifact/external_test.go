package artifact

import (
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/network/egress"
)

// rendered is an ExternalArtifact of a tenant that tries to read the artifact of another object.
var rendered = Key{"ExternalArtifact", "hostile", "rendered"}

// TestDigestAloneReadsNothing has a status that names the digest, and then the path, of another object's artifact.
func TestDigestAloneReadsNothing(t *testing.T) {
	s := openStore(t, t.TempDir(), newClock())
	a := put(t, s, FromMap(map[string]string{"secret": "x"}), "v1", nil)
	lazy := NewTree(FromMap(map[string]string{"secret": "y"}).root, sized(0))
	s.register(webapp, *a, lazy) // a tree that is not in the cache of unpacked ones
	_, err := s.Tree(webapp, *a)
	must(t, err)
	for name, claimed := range map[string]meta.Artifact{
		"digest": {Digest: a.Digest, Path: "externalartifact/hostile/rendered/x.tar.gz"},
		"path":   *a,
	} {
		claimed.URL = "http://host.invalid/x.tar.gz"
		for _, key := range []Key{rendered, {"GitRepository", "hostile", "webapp"}, {"Bucket", "apps", "webapp"}} {
			if tree, err := s.Tree(key, claimed); err == nil {
				t.Errorf("%s: the store returned the tree of another object to %v: %v", name, key, tree)
			}
			f := &Fetcher{Store: s, Client: http.DefaultClient}
			if _, err := f.Fetch(t.Context(), key, claimed); err == nil {
				t.Errorf("%s: the fetcher returned the tree of another object to %v", name, key)
			}
		}
	}
}

// TestUnpackedTreesBelongToTheirObject downloads for one object, and asks for the same digest as another one.
func TestUnpackedTreesBelongToTheirObject(t *testing.T) {
	_, a, server := serving(t, map[string]string{"a": "x"})
	f := &Fetcher{Client: http.DefaultClient}
	_, err := f.Fetch(t.Context(), webapp, *a)
	must(t, err)
	server.Close()
	if _, err := f.Fetch(t.Context(), webapp, *a); err != nil {
		t.Error(err)
	}
	if _, err := f.Fetch(t.Context(), Key{"GitRepository", "hostile", "webapp"}, *a); err == nil {
		t.Error("a tree in memory was returned to another object")
	}
}

// TestExternalArtifactIsReadFromStore has the ExternalArtifact of an ArtifactGenerator, whose URL cannot be reached.
func TestExternalArtifactIsReadFromStore(t *testing.T) {
	s := openStore(t, t.TempDir(), newClock())
	a, err := s.Put(t.Context(), rendered, FromMap(map[string]string{"a": "x"}), "v1", nil)
	must(t, err)
	for _, store := range []*Store{s, openStore(t, s.dir, newClock())} {
		if _, err := (&Fetcher{Store: store}).Fetch(t.Context(), rendered, *a); err != nil {
			t.Error(err)
		}
	}
}

// TestExternalArtifactReadsNoArtifactOfOthers has URLs on artifact servers, which answer the controller.
func TestExternalArtifactReadsNoArtifactOfOthers(t *testing.T) {
	s, a, server := serving(t, map[string]string{"a": "x"})
	own, err := s.Put(t.Context(), rendered, FromMap(map[string]string{"a": "y"}), "v1", nil)
	must(t, err)
	redirect := httptest.NewServer(http.RedirectHandler(server.URL+"/"+a.Path, http.StatusFound))
	t.Cleanup(redirect.Close)
	f := &Fetcher{Client: http.DefaultClient, External: http.DefaultClient}
	for _, address := range []string{server.URL + "/" + a.Path, server.URL + "/digest/" + a.Digest,
		server.URL + "/gitrepository/apps/webapp/latest.tar.gz", redirect.URL + "/x.tar.gz",
		server.URL + "/externalartifact/hostile/other/x.tar.gz"} {
		_, err := f.Fetch(t.Context(), rendered, meta.Artifact{URL: address, Digest: a.Digest})
		if err == nil || !strings.Contains(err.Error(), "another object") {
			t.Errorf("%s: %v", strings.TrimPrefix(address, server.URL), err)
		}
	}
	if _, err := f.Fetch(t.Context(), rendered, meta.Artifact{URL: server.URL + "/" + own.Path,
		Digest: own.Digest}); err != nil {
		t.Errorf("its own artifact: %v", err)
	}
	f.Store = openStore(t, t.TempDir(), newClock())
	f.Store.host = strings.TrimPrefix(server.URL, "http://")
	_, err = f.Fetch(t.Context(), rendered, meta.Artifact{URL: server.URL + "/healthz", Digest: a.Digest})
	if err == nil || !strings.Contains(err.Error(), "another object") {
		t.Errorf("the server of this process: %v", err)
	}
}

// TestExternalArtifactPathsAreComparedAsServersReadThem has a server that cleans paths, as many do.
func TestExternalArtifactPathsAreComparedAsServersReadThem(t *testing.T) {
	s, a, _ := serving(t, map[string]string{"a": "x"})
	artifacts := &Server{Store: s}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path = path.Clean(r.URL.Path)
		artifacts.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	f := &Fetcher{Client: http.DefaultClient, External: http.DefaultClient}
	for _, at := range []string{"//" + a.Path, "/./" + a.Path, "/x/../" + a.Path, "/%2e/" + a.Path,
		"/externalartifact/hostile/rendered/../../../" + a.Path, "/externalartifact%2f..%2f" + a.Path,
		"/./digest/" + a.Digest, "//gitrepository/apps/webapp/latest.tar.gz",
		"/externalartifact/hostile/rendered/%2e%2e/%2e%2e/%2e%2e/" + a.Path} {
		_, err := f.Fetch(t.Context(), rendered, meta.Artifact{URL: server.URL + at, Digest: a.Digest})
		if err == nil || !strings.Contains(err.Error(), "another object") {
			t.Errorf("%s: %v", at, err)
		}
	}
}

// TestExternalArtifactErrorsDescribeNoServer compares the errors for servers that answer differently.
func TestExternalArtifactErrorsDescribeNoServer(t *testing.T) {
	_, a, _ := serving(t, map[string]string{"a": "x"})
	status, body := http.StatusOK, ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(server.Close)
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	get := func(address string) string {
		f := &Fetcher{Client: http.DefaultClient, External: http.DefaultClient}
		_, err := f.Fetch(t.Context(), rendered, meta.Artifact{URL: address + "/x.tar.gz", Digest: a.Digest})
		if err == nil {
			t.Fatal("no error")
		}
		return strings.ReplaceAll(err.Error(), strings.TrimPrefix(address, "http://"), "HOST")
	}
	want := get(closed.URL)
	for _, c := range []struct {
		status int
		body   string
	}{{http.StatusOK, "content"}, {http.StatusOK, ""}, {http.StatusForbidden, ""}, {http.StatusNotFound, "content"},
		{http.StatusInternalServerError, ""}, {http.StatusFound, ""}} {
		status, body = c.status, c.body
		if got := get(server.URL); got != want {
			t.Errorf("status %d: %q differs from %q", c.status, got, want)
		}
	}
}

// TestExternalArtifactAddressesAreChecked uses the policy of a process in a cluster.
func TestExternalArtifactAddressesAreChecked(t *testing.T) {
	reached := false
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	t.Cleanup(server.Close)
	external, err := NewExternalClient(ClientOptions{}, &egress.Policy{RefuseLinkLocal: true, RefuseLoopback: true})
	must(t, err)
	f := &Fetcher{Client: http.DefaultClient, External: external}
	for _, address := range []string{"http://169.254.169.254/x.tar.gz", "http://[fe80::1]/x.tar.gz",
		"http://localhost:1/x.tar.gz", server.URL + "/x.tar.gz"} {
		_, err := f.Fetch(t.Context(), rendered, meta.Artifact{URL: address, Digest: "sha256:00"})
		if err == nil || !strings.Contains(err.Error(), "not allowed") || reached {
			t.Errorf("%s: %v", address, err)
		}
	}
	client, err := NewClient(ClientOptions{})
	must(t, err)
	f = &Fetcher{Client: client}
	_, err = f.Fetch(t.Context(), webapp, meta.Artifact{URL: "http://169.254.169.254/x", Digest: "sha256:00"})
	if err == nil || !strings.Contains(err.Error(), "link-local") {
		t.Errorf("the artifact of a source: %v", err)
	}
}
