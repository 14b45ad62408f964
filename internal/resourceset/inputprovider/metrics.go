package inputprovider

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// Info is the metric of ResourceSetInputProviders, with the name and the labels of Flux Operator.
var Info = reconcile.NewInfo("flux_resourcesetinputprovider_info",
	"State of a ResourceSetInputProvider, as labels. The value is always 1.",
	[]string{"uid", "kind", "name", "exported_namespace", "ready", "reason", "suspended", "url"},
	func(p *controlplanev1.ResourceSetInputProvider) []string {
		return slices.Concat([]string{string(p.UID), GroupKind.Kind, p.Name, p.Namespace}, reconcile.InfoValues(p),
			[]string{p.Spec.URL})
	})

// Metrics returns the metrics of providers.
func Metrics() []prometheus.Collector { return []prometheus.Collector{Info.Collector()} }
