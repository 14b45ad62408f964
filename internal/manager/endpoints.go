package manager

import (
	"fmt"
	"net/http"

	"github.com/sluice-gitops/sluice/internal/artifact/accessreview"
	"github.com/sluice-gitops/sluice/internal/network/listen"
	"github.com/sluice-gitops/sluice/internal/process/metrics"
	"github.com/sluice-gitops/sluice/internal/process/options"
)

// addMetrics serves the metrics and Go's profiler. Every replica serves its own.
func (p *process) addMetrics() error {
	if !options.IsDisabled(p.MetricsAddr) {
		var authorize func(http.Handler) http.Handler
		if p.MetricsAuth {
			reviewer, err := accessreview.New(p.mgr.GetConfig(), "")
			if err != nil {
				return err
			}
			authorize = reviewer.Paths
		}
		if err := p.listenHTTP("metrics", "--metrics-addr", p.MetricsAddr, metrics.NewServer(authorize)); err != nil {
			return err
		}
	}
	if options.IsDisabled(p.PprofAddr) {
		return nil
	}
	return p.listenHTTP("profiles", "--pprof-addr", p.PprofAddr, metrics.NewProfiler())
}

// listenHTTP listens on the address of a flag, and adds the HTTP server there.
func (p *process) listenHTTP(name, flag, addr string, server *http.Server) error {
	listener, err := listen.TCP(addr)
	if err != nil {
		return fmt.Errorf("cannot serve %s on %s %s: %w. Choose another address with that flag; port 0 takes "+
			"a free one", name, flag, addr, err)
	}
	p.serveHTTP(name, listener, server)
	return nil
}
