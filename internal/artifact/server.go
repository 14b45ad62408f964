package artifact

import (
	"net/http"
	"time"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/network/listen"
)

// Server serves a store over HTTP:
//
//	/<kind>/<namespace>/<name>/<file>                  a file, as in an artifact's URL
//	/<kind>/<namespace>/<name>/latest.<extension>      the newest file
//	/<kind>/<namespace>/<name>/digest/<digest>         the file with a digest, as sha256:<hex>
//	/<kind>/<namespace>/<name>/revision/<revision>     the file of a revision, or of its part after the last : or @
//	/<kind>/<namespace>/<name>/at/<time>               the file that was current at a time, in RFC 3339
//	/digest/<digest>                                   the file with a digest, of any object
//	/events                                            changes of artifacts, as server-sent events
//	/healthz                                           the health of the server
//
// Kinds are in lower case. Files are served unchanged, with support for ETag and Range. Directories are not listed.
// Damaged files are reported as not found.
type Server struct {
	Store  *Store
	Access Access  // nil allows every client to read everything
	Events *Events // nil disables the event stream
	// Uploads accepts artifacts of programs; nil refuses all.
	Uploads *Uploads
	// Incomplete reports whether another replica may have artifacts that the store does not get; nil for never. Then
	// only the file of an artifact's URL is served, as the store may have others that are not current.
	Incomplete func() bool
}

// NewServer returns an HTTP server of the store, with limits for slow clients and large request headers.
func NewServer(s *Server) *http.Server {
	server := listen.Server(guard.Handler("serving artifacts", s))
	server.ReadTimeout, server.WriteTimeout = 30*time.Second, 15*time.Minute // for a complete download
	if s.Events != nil {
		server.RegisterOnShutdown(s.Events.Close) // event streams have no end of their own
	}
	return server
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.Uploads != nil && (r.Method == http.MethodPut || r.Method == http.MethodPost) {
		s.Uploads.ServeHTTP(w, r)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	if r.URL.Path == "/healthz" {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok\n")) // fails only if the client has disconnected
		return
	}
	reader, err := s.reader(r)
	if err != nil {
		refuse(w, err)
		return
	}
	if r.URL.Path == "/events" && s.Events != nil {
		s.Events.serve(w, r, reader)
		return
	}
	s.serveFile(w, r, reader)
}

func (s *Server) serveFile(w http.ResponseWriter, r *http.Request, reader reader) {
	a := parseAddress(r.URL.Path)
	if a == nil {
		http.NotFound(w, r)
		return
	}
	if a.key != (Key{}) { // check access first, to hide from other clients whether the file exists
		if err := reader.may(r.Context(), a.key); err != nil {
			refuse(w, err)
			return
		}
	}
	incomplete := s.Incomplete != nil && s.Incomplete()
	if incomplete && !a.isFile() {
		refuseStandby(w)
		return
	}
	for _, relative := range s.Store.find(a) {
		if a.key == (Key{}) && reader.may(r.Context(), keyOf(relative)) != nil {
			continue
		}
		if s.Store.serve(w, r, relative) {
			return
		}
	}
	if incomplete {
		refuseStandby(w)
		return
	}
	http.NotFound(w, r)
}

// refuseStandby responds that another replica may have the artifact.
func refuseStandby(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	http.Error(w, "this replica waits for the lease, and has the artifacts of the leader only with a storage backend: "+
		"retry, or set --storage-backend-s3-endpoint", http.StatusServiceUnavailable)
}

// serve writes a file to the client. It returns false if the file is missing or damaged. The operating system sends the
// content directly from the file, so a download needs almost no memory.
func (s *Store) serve(w http.ResponseWriter, r *http.Request, relative string) bool {
	st, err := s.check(relative)
	if err != nil {
		return false
	}
	f, err := s.root.Open(relative)
	if err != nil {
		return false
	}
	defer f.Close() // only read
	info, err := f.Stat()
	if err != nil || !st.is(info) { // replaced in the meantime
		return false
	}
	w.Header().Set("Content-Type", extensions[extension(relative)])
	w.Header().Set("ETag", `"`+st.digest+`"`)
	if st.revision != "" {
		w.Header().Set("X-Artifact-Revision", st.revision)
	}
	http.ServeContent(w, r, "", info.ModTime(), f)
	return true
}
