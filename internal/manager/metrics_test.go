package manager

import (
	"maps"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/source/helm"
)

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
			if f.GetName() == "gotk_cache_events_total" && !hasLabel(m, "event_type", cacheHit) &&
				!hasLabel(m, "event_type", cacheMiss) {
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

func hasLabel(m *dto.Metric, label, value string) bool {
	for _, l := range m.GetLabel() {
		if l.GetName() == label && l.GetValue() == value {
			return true
		}
	}
	return false
}
