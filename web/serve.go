package web

import (
	"bytes"
	"io/fs"
	"net/http"
	"strings"
)

// policy lets pages load from and connect to their own origin only.
const policy = "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; " +
	"frame-ancestors 'none'"

// marker is the place in the front end that names its server.
const marker = `name="sluice-server" content=""`

// SetHeaders sets the headers that protect a browser, for pages and for what they read.
func SetHeaders(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
}

// Handler serves the front end. Server is what the pages are those of: "hub", or empty for a cluster. Paths without a
// file get the first page, whose script reads the path.
func Handler(pages fs.FS, server string) http.Handler {
	index, err := fs.ReadFile(pages, "index.html")
	if err != nil || server != "" && !bytes.Contains(index, []byte(marker)) {
		panic("the front end has no page for this server") // it is embedded
	}
	if server != "" {
		index = bytes.Replace(index, []byte(marker), []byte(`name="sluice-server" content="`+server+`"`), 1)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "pages are read", http.StatusMethodNotAllowed)
			return
		}
		SetHeaders(h)
		name := strings.TrimPrefix(r.URL.Path, "/")
		if info, err := fs.Stat(pages, name); name == "index.html" || err != nil || info.IsDir() {
			h.Set("Cache-Control", "no-cache")
			h.Set("Content-Type", "text/html; charset=utf-8")
			_, _ = w.Write(index) // the client is gone
			return
		}
		if strings.HasPrefix(name, "assets/") { // their names contain a hash of their content
			h.Set("Cache-Control", "public, max-age=31536000, immutable")
		}
		http.ServeFileFS(w, r, pages, name)
	})
}
