package manager

import (
	"fmt"
	"maps"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/source/helm"
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

// TestCachesShowTheDocumentedMetrics asks for an index twice, and for no credential.
func TestCachesShowTheDocumentedMetrics(t *testing.T) {
	var indexes helm.Indexes
	for range 2 {
		if _, err := indexes.Get(t.Context(), "sha256:a",
			func() (*helm.Index, error) { return &helm.Index{}, nil }); err != nil {
			t.Fatal(err)
		}
	}
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(collected{indexMetrics{&indexes}}, collected{tokenMetrics{&auth.Identities{}}})
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]int{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			shown[f.GetName()] += int(m.GetCounter().GetValue() + m.GetGauge().GetValue())
			if f.GetName() == "gotk_cache_events_total" && !has(m, "event_type", cacheHit) &&
				!has(m, "event_type", cacheMiss) {
				t.Errorf("%v", m)
			}
		}
	}
	want := map[string]int{"gotk_cache_events_total": 2, "gotk_cached_items": 1, "gotk_token_cache_events_total": 0,
		"gotk_token_cache_requests_total": 0, "gotk_token_cache_evictions_total": 0, "gotk_token_cached_items": 0}
	if !maps.Equal(shown, want) {
		t.Errorf("%v, want %v", shown, want)
	}
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
