package registry

import (
	"encoding/json"
	"maps"
	"net/http"
	"regexp"
	"sync"
)

// resource finds what a request is about: manifests, blobs, tags or referrers.
var resource = regexp.MustCompile(`^/v2/.+/(manifests|blobs|tags|referrers)/`)

// counter counts requests by method and resource, such as "HEAD manifests", and the bytes of bodies that were sent.
type counter struct {
	next   http.Handler
	mu     sync.Mutex
	counts map[string]int64
}

// count wraps a handler; GET /-/stats answers the counts.
func count(next http.Handler) http.Handler { return &counter{next: next, counts: map[string]int64{}} }

func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/-/stats" { // the counters are public
		c.mu.Lock()
		counts := maps.Clone(c.counts)
		c.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(counts) // the client may have closed the connection
		return
	}
	of := "ping"
	if m := resource.FindStringSubmatch(r.URL.Path); m != nil {
		of = m[1]
	}
	c.add(r.Method+" "+of, 1)
	c.add("requests", 1)
	c.next.ServeHTTP(&sent{w, c}, r)
}

func (c *counter) add(what string, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[what] += n
}

// sent counts what is sent to a client, before it is: a client that has all may ask for the counts at once.
type sent struct {
	http.ResponseWriter
	*counter
}

func (s *sent) Write(p []byte) (int, error) {
	s.add("bytesSent", int64(len(p)))
	return s.ResponseWriter.Write(p)
}
