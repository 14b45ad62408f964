package web

import (
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
)

// TestPages serves the front end of a cluster and of a hub.
func TestPages(t *testing.T) {
	pages := fstest.MapFS{"index.html": {Data: []byte(`<meta name="sluice-server" content="" />`)},
		"assets/a.js": {Data: []byte("1")}}
	const first, kept = "no-cache", "public, max-age=31536000, immutable"
	for _, test := range []struct {
		server, method, path string
		status               int
		has, cache           string
	}{
		{path: "/", status: 200, has: `content=""`, cache: first},
		{path: "/objects/Gate/a/b", status: 200, has: `content=""`, cache: first},
		{path: "/assets/a.js", status: 200, has: "1", cache: kept},
		{path: "/assets", status: 200, has: "<meta", cache: first},
		{path: "/assets/missing.js", status: 200, has: "<meta", cache: first},
		{server: "hub", path: "/index.html", status: 200, has: `content="hub"`, cache: first},
		{server: "hub", path: "/clusters/edge-7/", status: 200, has: `content="hub"`, cache: first},
		{method: "POST", path: "/", status: 405},
	} {
		w := httptest.NewRecorder()
		Handler(pages, test.server).ServeHTTP(w, httptest.NewRequest(test.method, test.path, nil))
		if w.Code != test.status || !strings.Contains(w.Body.String(), test.has) ||
			w.Header().Get("Cache-Control") != test.cache ||
			test.status == 200 && w.Header().Get("Content-Security-Policy") != policy {
			t.Errorf("%+v: %d %s %v", test, w.Code, w.Body, w.Header())
		}
	}
}

// TestEmbeddedPages checks that the front end that was built can be that of a hub.
func TestEmbeddedPages(t *testing.T) { Handler(Pages(), "hub") }
