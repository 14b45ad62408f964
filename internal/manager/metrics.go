package manager

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-gitops/sluice/internal/fleet/report"
	"github.com/sluice-gitops/sluice/internal/gate"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/image/reflector"
	"github.com/sluice-gitops/sluice/internal/notify/delivery"
	"github.com/sluice-gitops/sluice/internal/receiver"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/resourceset"
	"github.com/sluice-gitops/sluice/internal/resourceset/inputprovider"
)

// collectors returns the metrics of all controllers, except those of their caches and queues, which exist later.
func collectors() []prometheus.Collector {
	return slices.Concat(guard.Metrics(), reconcile.Metrics(), gate.Metrics(), reflector.Metrics(), receiver.Metrics(),
		delivery.Metrics(), resourceset.Metrics(), inputprovider.Metrics(),
		report.Metrics())
}
