package artifact

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/testenv/allocation"
)

// serving puts an artifact in a store that is served over HTTP.
func serving(t *testing.T, files map[string]string) (*Store, *meta.Artifact, *httptest.Server) {
	t.Helper()
	s := openStore(t, t.TempDir(), newClock())
	a := put(t, s, FromMap(files), "main@sha1:0123", nil)
	server := newServer(t, s)
	a.URL = server.URL + "/" + a.Path
	return s, a, server
}

func newServer(t *testing.T, s *Store) *httptest.Server {
	t.Helper()
	return serve(t, &Server{Store: s})
}

func serve(t *testing.T, s *Server) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(s)
	server.Config = NewServer(s)
	server.Start()
	t.Cleanup(server.Close)
	return server
}

func get(t *testing.T, method, url string, headers map[string]string) (*http.Response, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	must(t, err)
	for k, v := range headers {
		req.Header.Set(k, v)
	}
	resp, err := (&http.Transport{DisableCompression: true, DisableKeepAlives: true}).RoundTrip(req)
	must(t, err)
	body, err := io.ReadAll(resp.Body)
	must(t, errors.Join(err, resp.Body.Close()))
	return resp, body
}

// servedRequest is a case of TestServerServesAnArtifact.
type servedRequest struct {
	method, url string
	headers     map[string]string
	status      int
	body        []byte
}

func servedRequests(a *meta.Artifact, whole []byte, latestURL string, etag string,
	server *httptest.Server) map[string]servedRequest {
	return map[string]servedRequest{
		"whole":      {method: "GET", url: a.URL, status: 200, body: whole},
		"its head":   {method: "HEAD", url: a.URL, status: 200},
		"the latest": {method: "GET", url: latestURL, status: 200, body: whole},
		"a range": {method: "GET", url: a.URL, headers: map[string]string{"Range": "bytes=10-19"}, status: 206,
			body: whole[10:20]},
		"a range of an unchanged file": {method: "GET", url: a.URL,
			headers: map[string]string{"Range": "bytes=10-19", "If-Range": etag}, status: 206,
			body: whole[10:20]},
		"a range of a changed file": {method: "GET", url: a.URL,
			headers: map[string]string{"Range": "bytes=10-19", "If-Range": `"sha256:00"`}, status: 200, body: whole},
		"a range outside the file": {method: "GET", url: a.URL,
			headers: map[string]string{"Range": "bytes=99999999-"}, status: 416},
		"unchanged for the client": {method: "GET", url: a.URL,
			headers: map[string]string{"If-None-Match": etag}, status: 304},
		"the latest, unchanged for the client": {method: "GET", url: latestURL,
			headers: map[string]string{"If-None-Match": etag}, status: 304},
		"changed for the client": {method: "GET", url: a.URL,
			headers: map[string]string{"If-None-Match": `"sha256:00"`},
			status:  200, body: whole},
		"the health": {method: "GET", url: server.URL + "/healthz", status: 200, body: []byte("ok\n")},
		"by its digest": {method: "GET", url: server.URL + "/gitrepository/apps/webapp/digest/" + a.Digest,
			status: 200, body: whole},
		"by its digest alone": {method: "GET", url: server.URL + "/digest/" + a.Digest, status: 200, body: whole},
		"by its revision": {method: "GET", url: server.URL + "/gitrepository/apps/webapp/revision/" + a.Revision,
			status: 200, body: whole},
		"by its commit": {method: "GET", url: server.URL + "/gitrepository/apps/webapp/revision/0123",
			status: 200, body: whole},
		"by a time when it was current": {method: "GET", url: server.URL +
			"/gitrepository/apps/webapp/at/2026-01-02T04:00:00%2B00:00", status: 200, body: whole},
		"by a time before all artifacts": {method: "GET", url: server.URL +
			"/gitrepository/apps/webapp/at/2026-01-02T03:00:00Z",
			status: 404},
		"by an invalid time": {method: "GET", url: server.URL + "/gitrepository/apps/webapp/at/yesterday", status: 404},
		"by a digest of no artifact": {method: "GET", url: server.URL + "/gitrepository/apps/webapp/digest/sha256:00",
			status: 404},
		"by an unknown digest": {method: "GET", url: server.URL + "/digest/sha256:00", status: 404},
		"by an unknown revision": {method: "GET", url: server.URL + "/gitrepository/apps/webapp/revision/main",
			status: 404},
		"by an empty revision": {method: "GET", url: server.URL + "/gitrepository/apps/webapp/revision/",
			status: 404},
		"by something else":  {method: "GET", url: server.URL + "/gitrepository/apps/webapp/name/x", status: 404},
		"nothing is posted":  {method: "POST", url: a.URL, status: 405},
		"nothing is deleted": {method: "DELETE", url: a.URL, status: 405},
	}
}

func TestServerServesAnArtifact(t *testing.T) {
	s, a, server := serving(t, manyFiles(50, 1))
	whole, err := os.ReadFile(filepath.Join(s.dir, a.Path))
	must(t, err)
	etag := `"` + a.Digest + `"`
	latestURL := server.URL + "/gitrepository/apps/webapp/latest.tar.gz"
	for reason, c := range servedRequests(a, whole, latestURL, etag, server) {
		t.Run(reason, func(t *testing.T) {
			resp, body := get(t, c.method, c.url, c.headers)
			if resp.StatusCode != c.status {
				t.Fatalf("status %d, want %d", resp.StatusCode, c.status)
			}
			if c.status < 300 && reason != "the health" &&
				(resp.Header.Get("ETag") != etag || resp.Header.Get("Content-Type") != "application/gzip") {
				t.Errorf("headers %v", resp.Header)
			}
			if c.body != nil && !bytes.Equal(body, c.body) {
				t.Errorf("%d bytes, want %d", len(body), len(c.body))
			}
			if c.method == "HEAD" && (len(body) > 0 || resp.ContentLength != int64(len(whole))) {
				t.Errorf("%d bytes, Content-Length %d", len(body), resp.ContentLength)
			}
		})
	}
}

func TestServerShowsNothingElse(t *testing.T) {
	s, a, server := serving(t, map[string]string{"a": "x"})
	outside := filepath.Join(t.TempDir(), "secret.tar.gz")
	must(t, os.WriteFile(outside, []byte("secret"), 0o600))
	dir := filepath.Join(s.dir, webapp.dir())
	must(t, os.Symlink(outside, filepath.Join(dir, "link.tar.gz")))
	must(t, os.Symlink(filepath.Dir(outside), filepath.Join(s.dir, "gitrepository", "apps", "link")))
	must(t, os.Mkdir(filepath.Join(dir, "dir.tar.gz"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, prefix+"x.tar.gz"), []byte("half"), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "strange.tar.gz"), []byte("not from here"), 0o600))
	for _, p := range []string{
		"/", "/gitrepository", "/gitrepository/apps/webapp", "/gitrepository/apps/webapp/", "/" + a.Path + index, "/" +
			a.Path + "/",
		"/gitrepository/apps/webapp/link.tar.gz", "/gitrepository/apps/link/secret.tar.gz",
		"/gitrepository/apps/webapp/dir.tar.gz",
		"/gitrepository/apps/webapp/" + prefix + "x.tar.gz", "/gitrepository/apps/webapp/strange.tar.gz",
		"/gitrepository/apps/webapp/none.tar.gz",
		"/gitrepository/apps/none/latest.tar.gz", "/gitrepository/apps/link/latest.tar.gz",
		"/GitRepository/apps/webapp/latest.tar.gz",
		"/gitrepository/apps/x/../webapp/latest.tar.gz", "/gitrepository/apps/webapp/..%2f..%2f..%2f..%2fetc%2fpasswd",
		"//etc/passwd/x/y.tar.gz",
		"/../../../x.tar.gz", "/gitrepository/apps/webapp/%00.tar.gz", `/gitrepository/apps/webapp/..\x.tar.gz`,
	} {
		resp, body := get(t, "GET", server.URL+p, nil)
		if resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: status %d: %.40s", p, resp.StatusCode, body)
		}
	}
}

func TestServerServesNothingDamaged(t *testing.T) {
	for reason, restart := range map[string]bool{"found while running": false, "found after a restart": true} {
		t.Run(reason, func(t *testing.T) {
			s, a, server := serving(t, manyFiles(50, 1))
			damage(t, filepath.Join(s.dir, a.Path), 33)
			if restart {
				server.Config.Handler = &Server{Store: openStore(t, s.dir, newClock())}
			}
			if resp, _ := get(t, "GET", a.URL, nil); resp.StatusCode != http.StatusNotFound {
				t.Errorf("status %d", resp.StatusCode)
			}
		})
	}
}

func TestServerServesAfterARestart(t *testing.T) {
	s, a, server := serving(t, manyFiles(50, 1))
	server.Config.Handler = &Server{Store: openStore(t, s.dir, newClock())}
	for _, url := range []string{a.URL, server.URL + "/gitrepository/apps/webapp/latest.tar.gz"} {
		if resp, _ := get(t, "GET", url, nil); resp.StatusCode != 200 || resp.Header.Get("ETag") != `"`+a.Digest+`"` {
			t.Errorf("%s: %v", url, resp)
		}
	}
}

func TestServerIsBoundedAgainstSlowClients(t *testing.T) {
	s := NewServer(&Server{Store: openStore(t, t.TempDir(), newClock())})
	for name, d := range map[string]time.Duration{
		"ReadHeaderTimeout": s.ReadHeaderTimeout, "ReadTimeout": s.ReadTimeout, "WriteTimeout": s.WriteTimeout,
		"IdleTimeout": s.IdleTimeout,
	} {
		if d <= 0 {
			t.Errorf("%s is not set", name)
		}
	}
}

func TestOlderArtifactsAreAddressed(t *testing.T) {
	clk := newClock()
	s := openStore(t, t.TempDir(), clk)
	var times []string
	for _, revision := range []string{"refs/tags/v1@sha1:aaa", "feature/x@sha1:bbb"} {
		put(t, s, FromMap(map[string]string{"a": revision}), revision, nil)
		times = append(times, clk.Now().Add(time.Second).Format(time.RFC3339))
		clk.SetTime(clk.Now().Add(time.Hour))
	}
	server := newServer(t, openStore(t, s.dir, clk))
	for address, want := range map[string]string{
		"/revision/refs/tags/v1@sha1:aaa": "refs/tags/v1@sha1:aaa", "/revision/aaa": "refs/tags/v1@sha1:aaa", "/at/" +
			times[0]: "refs/tags/v1@sha1:aaa",
		"/revision/feature/x@sha1:bbb": "feature/x@sha1:bbb", "/revision/bbb": "feature/x@sha1:bbb", "/at/" +
			times[1]: "feature/x@sha1:bbb", "/latest.tar.gz": "feature/x@sha1:bbb",
	} {
		resp, body := get(t, "GET", server.URL+"/gitrepository/apps/webapp"+address, nil)
		if resp.StatusCode != 200 || resp.Header.Get("X-Artifact-Revision") != want {
			t.Errorf("%s: %d %v", address, resp.StatusCode, resp.Header)
			continue
		}
		tree, err := ReadArchive(context.Background(), bytes.NewReader(body))
		must(t, err)
		if got := contents(t, tree)["a"]; got != want {
			t.Errorf("%s returns %s", address, got)
		}
	}
}

func TestReadersOfALargeArtifactCostNoMemory(t *testing.T) {
	s := openStore(t, t.TempDir(), newClock())
	const size, readers = 64 << 20, 20
	a, err := s.PutFile(t.Context(), webapp, ".tgz", io.LimitReader(rand.NewChaCha8([32]byte{}), size), "v1", nil)
	must(t, err)
	server := newServer(t, s)
	read := func() {
		req, err := http.NewRequestWithContext(t.Context(), "GET", server.URL+"/"+a.Path, nil)
		must(t, err)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		if n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, resp.Body, make([]byte, 32<<10)); n != size ||
			err != nil {
			t.Errorf("%d bytes, %v", n, err)
		}
	}
	read()
	allocated := allocation.Bytes(func() {
		var wg sync.WaitGroup
		for range readers {
			wg.Go(read)
		}
		wg.Wait()
	})
	if each := allocated / readers; each > 128<<10 { // includes the buffers of the client
		t.Errorf("%d bytes were allocated for each reader of %d", each, size)
	}
}

// gate accepts the token "good", and allows its owner to read artifacts in the namespace apps.
type gate struct{ broken bool }

func (g *gate) Authenticate(_ context.Context, token string) (Reader, error) {
	if g.broken {
		return nil, errors.New("the API server at 10.0.0.1 is down")
	}
	if token != "good" {
		return nil, ErrUnauthenticated
	}
	return g, nil
}

func (g *gate) MayRead(_ context.Context, key Key) error {
	if key.Namespace != "apps" {
		return ErrForbidden
	}
	return nil
}

func TestServerAsksWhoMayRead(t *testing.T) {
	s := openStore(t, t.TempDir(), newClock())
	a := put(t, s, FromMap(map[string]string{"a": "x"}), "v1", nil)
	theirs, err := s.Put(t.Context(), Key{Kind: "Bucket", Namespace: "theirs",
		Name: "b"}, FromMap(map[string]string{"a": "y"}), "v1", nil)
	must(t, err)
	g := &gate{}
	server := serve(t, &Server{Store: s, Access: g, Events: NewEvents(time.Now())})
	for _, c := range []struct {
		path, authorization string
		status              int
	}{
		{path: "/healthz", status: 200},
		{path: "/" + a.Path, status: 401}, {path: "/" + a.Path, authorization: "Bearer bad", status: 401},
		{path: "/" + a.Path, authorization: "Basic good", status: 401},
		{path: "/" + a.Path, authorization: "Bearer", status: 401},
		{path: "/" + a.Path, authorization: "Bearer good", status: 200},
		{path: "/" + a.Path, authorization: "bearer good", status: 200},
		{path: "/digest/" + a.Digest, authorization: "Bearer good", status: 200},
		{path: "/digest/" + a.Digest, status: 401},
		{path: "/" + theirs.Path, authorization: "Bearer good", status: 403},
		{path: "/bucket/theirs/none/latest.tar.gz", authorization: "Bearer good", status: 403},
		{path: "/digest/" + theirs.Digest, authorization: "Bearer good", status: 404},
		{path: "/events", status: 401}, {path: "/events", authorization: "Bearer bad", status: 401},
		{path: "/nothing", status: 401}, {path: "/nothing", authorization: "Bearer good", status: 404},
	} {
		if resp, _ := get(t, "GET", server.URL+c.path,
			map[string]string{"Authorization": c.authorization}); resp.StatusCode != c.status {
			t.Errorf("%s with %q: status %d, want %d", c.path, c.authorization, resp.StatusCode, c.status)
		}
	}
	g.broken = true
	resp, body := get(t, "GET", server.URL+"/"+a.Path, map[string]string{"Authorization": "Bearer good"})
	if resp.StatusCode != 503 || strings.Contains(string(body), "10.0.0.1") {
		t.Errorf("status %d: %s", resp.StatusCode, body)
	}
}

func FuzzAddress(f *testing.F) {
	f.Add("/gitrepository/apps/webapp/latest.tar.gz")
	f.Add("/gitrepository/apps/webapp/at/2026-01-02T03:04:05Z")
	f.Add("/gitrepository/apps/../digest/../../x")
	s := openStore(f, f.TempDir(), newClock())
	put(f, s, FromMap(map[string]string{"a": "x"}), "v1", nil)
	f.Fuzz(func(t *testing.T, urlPath string) {
		a := parseAddress(urlPath)
		if a == nil {
			return
		}
		dir := webapp.dir() // has the only artifact
		if a.key != (Key{}) {
			dir = a.key.dir()
		}
		for _, relative := range s.find(a) {
			if path.Dir(relative) != dir || !filepath.IsLocal(relative) {
				t.Errorf("%q resolves to %q", urlPath, relative)
			}
		}
	})
}
