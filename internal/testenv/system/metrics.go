package system

import (
	"fmt"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// MetricValue reads a documented metric of an object: a gauge, or how often a histogram was given a value.
func MetricValue(t *testing.T, metric, kind, namespace, name string) float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != metric {
			continue
		}
		for _, m := range f.GetMetric() {
			if hasLabel(m, "kind", kind) && hasLabel(m, "namespace", namespace) && hasLabel(m, "name", name) {
				return m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return 0
}

func hasLabel(m *dto.Metric, label, value string) bool {
	for _, l := range m.GetLabel() {
		if l.GetName() == label && l.GetValue() == value {
			return true
		}
	}
	return false
}

// Suspended waits until the controller has seen that an object is: no pass from before is under way.
func (s *System) Suspended(kind, name string) {
	s.Helper()
	testenv.Eventually(s, name+" is suspended", func() error {
		if got := MetricValue(s.T, "gotk_suspend_status", kind, s.Namespace, name); got != 1 {
			return fmt.Errorf("the metric is %v", got)
		}
		return nil
	})
}
