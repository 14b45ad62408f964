package artifact

import (
	"net/http"
	"path"
	"strings"
	"time"
)

// latest is the name, before its extension, under which the newest artifact of an object is served.
const latest = "latest"

// NewServer returns an HTTP server of the store, bounded against clients that are slow or say too much.
func NewServer(s *Store) *http.Server {
	return &http.Server{
		Handler:           s,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      15 * time.Minute, // of a whole download
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
	}
}

// ServeHTTP serves /<kind>/<namespace>/<name>/<file>.tar.gz and latest.tar.gz from the file, with ETag and Range. There are
// no listings, and what is damaged is not found.
func (s *Store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	relative, ok := s.requested(r.URL.Path)
	if !ok {
		http.NotFound(w, r)
		return
	}
	st, err := s.check(relative)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	f, err := s.root.Open(relative)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	defer f.Close() // only read
	info, err := f.Stat()
	if err != nil || !st.is(info) { // written anew in between
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", extensions[extension(path.Base(relative))])
	w.Header().Set("ETag", `"`+st.digest+`"`)
	http.ServeContent(w, r, "", info.ModTime(), f)
}

// requested returns the path in the store that a URL's path stands for.
func (s *Store) requested(urlPath string) (string, bool) {
	relative := strings.TrimPrefix(urlPath, "/")
	parts := strings.Split(relative, "/")
	if len(parts) != 4 || path.Clean(relative) != relative {
		return "", false
	}
	key := Key{parts[0], parts[1], parts[2]}
	if key.check() != nil || key.dir() != path.Dir(relative) {
		return "", false
	}
	if ext, ok := strings.CutPrefix(parts[3], latest); ok && extensions[ext] != "" {
		relative = s.newest(key, ext)
	}
	return relative, relative != ""
}
