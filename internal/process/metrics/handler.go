package metrics

import (
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/network/listen"
)

const (
	maxScrapes     = 8 // at a time
	scrapeTimeout  = time.Minute
	profileTimeout = 10 * time.Minute
)

// Path is the path of the metrics.
const Path = "/metrics"

// NewServer returns the server of the metrics. Authorize decides who may read them; nil for everyone.
func NewServer(authorize func(http.Handler) http.Handler) *http.Server {
	handler := promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError,
		MaxRequestsInFlight: maxScrapes})
	if authorize != nil {
		handler = authorize(handler)
	}
	mux := http.NewServeMux()
	mux.Handle(Path, handler)
	server := listen.Server(guard.Handler("serving metrics", mux))
	server.ReadTimeout, server.WriteTimeout = listen.HeaderTimeout, scrapeTimeout
	return server
}

// NewProfiler returns the server of Go's profiler.
func NewProfiler() *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	server := listen.Server(guard.Handler("profiling", mux))
	server.ReadTimeout, server.WriteTimeout = listen.HeaderTimeout, profileTimeout
	return server
}
