package artifact

import (
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// latest is the file name under which the newest artifact of an object is served.
const latest = "latest" + suffix

// NewServer returns an HTTP server of the store, bounded against slow clients.
func NewServer(s *Store) *http.Server {
	return &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
}

// ServeHTTP serves /<kind>/<namespace>/<name>/<file>.tar.gz and latest.tar.gz, with ETag and Range, from the file.
func (s *Store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	relative := strings.TrimPrefix(path.Clean("/"+r.URL.Path), "/")
	parts := strings.Split(relative, "/")
	if len(parts) != 4 || !strings.HasSuffix(relative, suffix) || strings.HasPrefix(parts[3], ".") || !filepath.IsLocal(relative) {
		http.NotFound(w, r)
		return
	}
	if parts[3] == latest {
		files := s.files(Key{Kind: parts[0], Namespace: parts[1], Name: parts[2]})
		if len(files) == 0 {
			http.NotFound(w, r)
			return
		}
		parts[3] = files[0].name
		relative = path.Join(parts...)
	}
	full := filepath.Join(s.root, filepath.FromSlash(relative))
	info, err := os.Lstat(full)
	if err != nil || !info.Mode().IsRegular() {
		http.NotFound(w, r)
		return
	}
	f, err := os.Open(full)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	defer f.Close() // only read
	s.mu.Lock()
	known, ok := s.sound[relative]
	s.mu.Unlock()
	if ok {
		if known.size != info.Size() || !known.modified.Equal(info.ModTime()) {
			http.NotFound(w, r) // damaged: the source will write it again
			return
		}
		w.Header().Set("ETag", `"`+known.digest+`"`)
	}
	w.Header().Set("Content-Type", "application/gzip")
	http.ServeContent(w, r, "", info.ModTime(), f)
}
