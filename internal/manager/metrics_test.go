package manager

import (
	"testing"

	dto "github.com/prometheus/client_model/go"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// passCount reads how often a Kustomization was reconciled from the documented metric.
func passCount(t *testing.T, namespace, name string) float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "gotk_reconcile_duration_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			if has(m, "kind", "Kustomization") && has(m, "namespace", namespace) && has(m, "name", name) {
				return float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return 0
}

func has(m *dto.Metric, label, value string) bool {
	for _, l := range m.GetLabel() {
		if l.GetName() == label && l.GetValue() == value {
			return true
		}
	}
	return false
}
