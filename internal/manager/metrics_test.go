package manager

import (
	"fmt"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// observed reads a documented metric of an object: a gauge, or how often a histogram was given a value.
func observed(t *testing.T, metric, kind, namespace, name string) float64 {
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
			if has(m, "kind", kind) && has(m, "namespace", namespace) && has(m, "name", name) {
				return m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
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

// suspended waits until the controller has seen that an object is: no pass from before is under way.
func (s *system) suspended(kind, name string) {
	s.Helper()
	testenv.Eventually(s, name+" is suspended", func() error {
		if got := observed(s.T, "gotk_suspend_status", kind, s.namespace, name); got != 1 {
			return fmt.Errorf("the metric is %v", got)
		}
		return nil
	})
}
