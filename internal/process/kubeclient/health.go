package kubeclient

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/network/listen"
)

// Health serves /healthz and /readyz from the start of the process to its end. The body of /readyz names each part
// that is not ready, and why. It is safe for concurrent use.
type Health struct {
	mu     sync.Mutex
	checks map[string]func() string // by part; an empty string if it is ready
	server *http.Server
}

// NewHealth listens on an address; "0" or empty for none. A process that does not listen is still asked for its parts.
func NewHealth(addr string) (*Health, error) {
	h := &Health{checks: map[string]func() string{}}
	h.Set("controllers", "they are starting")
	if addr == "" || addr == "0" {
		return h, nil
	}
	l, err := listen.TCP(addr)
	if err != nil {
		return nil, fmt.Errorf("cannot serve the health endpoints on --health-addr %s: %w. Choose another address "+
			"with that flag; port 0 takes a free one", addr, err)
	}
	h.server = listen.Server(guard.Handler("reporting health", h))
	h.server.ReadTimeout, h.server.WriteTimeout = listen.HeaderTimeout, 2*listen.HeaderTimeout
	guard.Go("serving health endpoints", func() {
		if err := h.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Log.Error(err, "the health endpoints ended")
		}
	})
	return h, nil
}

// Set says why a part is not ready. An empty reason means that it is ready.
func (h *Health) Set(part, reason string) { h.check(part, func() string { return reason }) }

func (h *Health) check(part string, reason func() string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checks[part] = reason
}

// Close stops to serve.
func (h *Health) Close() {
	if h.server != nil {
		_ = h.server.Close() // closes the listener; there is nothing else to do
	}
}

// problems returns the parts that are not ready, one a line, and all parts.
func (h *Health) problems() (lines, parts []string) {
	h.mu.Lock()
	checks := maps.Clone(h.checks)
	h.mu.Unlock()
	parts = slices.Sorted(maps.Keys(checks))
	for _, part := range parts {
		if reason := checks[part](); reason != "" {
			lines = append(lines, part+": "+reason)
		}
	}
	return lines, parts
}

// ServeHTTP implements [http.Handler].
func (h *Health) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch path := strings.TrimSuffix(r.URL.Path, "/"); path {
	case "/healthz":
		fmt.Fprintln(w, "ok")
	case "/readyz":
		lines, parts := h.problems()
		if len(lines) > 0 {
			http.Error(w, "not ready\n"+strings.Join(lines, "\n"), http.StatusServiceUnavailable)
			return
		}
		if r.URL.Query().Has("verbose") {
			fmt.Fprintln(w, strings.Join(parts, ": ok\n")+": ok")
			return
		}
		fmt.Fprintln(w, "ok")
	default:
		http.NotFound(w, r)
	}
}
