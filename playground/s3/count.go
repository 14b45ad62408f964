package s3

import (
	"net/http"
	"strings"
	"sync/atomic"
)

// stats counts what was asked of a server. Its zero value is ready.
type stats struct {
	lists, gets, heads, puts, deletes, others atomic.Int64
	bytesSent                                 atomic.Int64 // of bodies
}

func (s *stats) all() map[string]int64 {
	return map[string]int64{
		"lists": s.lists.Load(), "gets": s.gets.Load(), "heads": s.heads.Load(), "puts": s.puts.Load(),
		"deletes": s.deletes.Load(), "others": s.others.Load(), "bytesSent": s.bytesSent.Load(),
	}
}

// count counts the request, and what is written in answer to it.
func (s *stats) count(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	_, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	counter := &s.others
	switch {
	case r.Method == http.MethodGet && key == "" && r.URL.Query().Has("list-type"):
		counter = &s.lists
	case r.Method == http.MethodGet && key != "":
		counter = &s.gets
	case r.Method == http.MethodHead:
		counter = &s.heads
	case r.Method == http.MethodPut:
		counter = &s.puts
	case r.Method == http.MethodDelete:
		counter = &s.deletes
	}
	counter.Add(1)
	return sent{w, s}
}

// sent counts what is sent to a client, before it is: a client that has all may ask for the counts at once.
type sent struct {
	http.ResponseWriter
	stats *stats
}

func (s sent) Write(p []byte) (int, error) {
	s.stats.bytesSent.Add(int64(len(p)))
	return s.ResponseWriter.Write(p)
}

// Unwrap lets the proxy flush.
func (s sent) Unwrap() http.ResponseWriter { return s.ResponseWriter }
