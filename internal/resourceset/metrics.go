package resourceset

import (
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// Info is the metric of ResourceSets, with the name and the labels of Flux Operator.
var Info = reconcile.NewInfo("flux_resourceset_info", "State of a ResourceSet, as labels. The value is always 1.",
	[]string{"uid", "kind", "name", "exported_namespace", "ready", "reason", "suspended", "resources", "revision"},
	func(s *controlplanev1.ResourceSet) []string {
		resources := 0
		if s.Status.Inventory != nil {
			resources = len(s.Status.Inventory.Entries)
		}
		return slices.Concat([]string{string(s.UID), GroupKind.Kind, s.Name, s.Namespace}, reconcile.InfoValues(s),
			[]string{strconv.Itoa(resources), s.Status.LastAppliedRevision})
	})

// Metrics returns the metrics of ResourceSets.
func Metrics() []prometheus.Collector { return []prometheus.Collector{Info.Collector()} }
