package metrics

import (
	"maps"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/source/helm"
)

// The index is looked up twice, and no credentials are.
func TestCollectorsExposeDocumentedMetrics(t *testing.T) {
	var cache helm.Indexes
	for range 2 {
		if _, err := cache.Get(t.Context(), "sha256:a",
			func() (*helm.Index, error) { return &helm.Index{}, nil }); err != nil {
			t.Fatal(err)
		}
	}
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(ForIndexes(&cache), ForTokens(&auth.Identities{}))
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			got[f.GetName()] += int(m.GetCounter().GetValue() + m.GetGauge().GetValue())
			if f.GetName() == "gotk_cache_events_total" && !hasLabel(m, "event_type", cacheHit) &&
				!hasLabel(m, "event_type", cacheMiss) {
				t.Errorf("metric without a valid event_type: %v", m)
			}
		}
	}
	want := map[string]int{"gotk_cache_events_total": 2, "gotk_cached_items": 1, "gotk_token_cache_events_total": 0,
		"gotk_token_cache_requests_total": 0, "gotk_token_cache_evictions_total": 0, "gotk_token_cached_items": 0}
	if !maps.Equal(got, want) {
		t.Errorf("got metrics %v, want %v", got, want)
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
