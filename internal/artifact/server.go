package artifact

import (
	"net/http"
	"time"
)

// Server serves a store over HTTP:
//
//	/<kind>/<namespace>/<name>/<file>                  a file, as in an artifact's URL
//	/<kind>/<namespace>/<name>/latest.<extension>      the newest
//	/<kind>/<namespace>/<name>/digest/<digest>         by its sha, as sha256:<hex>
//	/<kind>/<namespace>/<name>/revision/<revision>     by its revision, or by the end of it that follows the last : or @
//	/<kind>/<namespace>/<name>/at/<time>               the one that was current at a time, in RFC 3339
//	/digest/<digest>                                   by its sha, whoever's it is
//	/events                                            what becomes of artifacts, as server-sent events
//	/healthz                                           whether the server is up
//
// Kinds are in small letters. Files are served as they are stored, with ETag, Range and the like. There are
// no listings, and what is damaged is not found.
type Server struct {
	Store  *Store
	Access Access  // nil lets everybody read everything
	Events *Events // nil serves no events
}

// NewServer returns an HTTP server of the store, bounded against clients that are slow or say too much.
func NewServer(s *Server) *http.Server {
	server := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      15 * time.Minute, // of a whole download
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
	}
	if s.Events != nil {
		server.RegisterOnShutdown(s.Events.Close) // streams never end by themselves
	}
	return server
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	if r.URL.Path == "/healthz" {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok\n")) // a client that is gone
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
	if a.key != (Key{}) { // whether it is there is nobody's business who may not read it
		if err := reader.may(r.Context(), a.key); err != nil {
			refuse(w, err)
			return
		}
	}
	for _, relative := range s.Store.find(a) {
		if a.key == (Key{}) && reader.may(r.Context(), keyOf(relative)) != nil {
			continue
		}
		if s.Store.serve(w, r, relative) {
			return
		}
	}
	http.NotFound(w, r)
}

// serve writes a file, unless it is not there whole. The kernel sends it from the file: no reader costs memory.
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
	if err != nil || !st.is(info) { // written anew in between
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
