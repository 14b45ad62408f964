package manager

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/source/helm"
)

// Metrics of caches, by their documented names.
var (
	tokenEvents = prometheus.NewDesc("gotk_token_cache_events_total",
		"Questions for a credential of workload identity, by whether it was kept.", []string{"event_type"}, nil)
	tokenRequests = prometheus.NewDesc("gotk_token_cache_requests_total",
		"Credentials of workload identity that were asked of a cloud, by what came of it.", []string{"status"}, nil)
	tokenEvictions = prometheus.NewDesc("gotk_token_cache_evictions_total",
		"Credentials of workload identity that are no longer kept.", nil, nil)
	tokensKept = prometheus.NewDesc("gotk_token_cached_items", "Credentials of workload identity that are kept.",
		nil, nil)
	indexEvents = prometheus.NewDesc("gotk_cache_events_total",
		"Questions for the index of a Helm repository, by whether it was kept.", []string{"event_type"}, nil)
	indexesKept = prometheus.NewDesc("gotk_cached_items", "Indexes of Helm repositories that are kept.", nil, nil)
)

const (
	cacheHit  = "cache_hit"
	cacheMiss = "cache_miss"
)

// collected shows a collector's metrics for as long as the manager runs. It implements manager.Runnable.
type collected struct{ prometheus.Collector }

// Start implements manager.Runnable.
func (c collected) Start(ctx context.Context) error {
	if err := metrics.Registry.Register(c); err == nil { // else there are two in this process: a test
		defer metrics.Registry.Unregister(c)
	}
	<-ctx.Done()
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica has caches.
func (collected) NeedLeaderElection() bool { return false }

// tokenMetrics tells of the credentials that are kept.
type tokenMetrics struct{ *auth.Identities }

// Describe implements [prometheus.Collector].
func (tokenMetrics) Describe(c chan<- *prometheus.Desc) {
	c <- tokenEvents
	c <- tokenRequests
	c <- tokenEvictions
	c <- tokensKept
}

// Collect implements [prometheus.Collector].
func (m tokenMetrics) Collect(c chan<- prometheus.Metric) {
	s := m.CacheStats()
	c <- counter(tokenEvents, s.Hits, cacheHit)
	c <- counter(tokenEvents, s.Got+s.Refused, cacheMiss)
	c <- counter(tokenRequests, s.Got, "success")
	c <- counter(tokenRequests, s.Refused, "failure")
	c <- counter(tokenEvictions, s.Evicted)
	c <- prometheus.MustNewConstMetric(tokensKept, prometheus.GaugeValue, float64(s.Kept))
}

// indexMetrics tells of the Helm indexes that are kept.
type indexMetrics struct{ *helm.Indexes }

// Describe implements [prometheus.Collector].
func (indexMetrics) Describe(c chan<- *prometheus.Desc) {
	c <- indexEvents
	c <- indexesKept
}

// Collect implements [prometheus.Collector].
func (m indexMetrics) Collect(c chan<- prometheus.Metric) {
	hits, reads, kept := m.Stats()
	c <- counter(indexEvents, hits, cacheHit)
	c <- counter(indexEvents, reads, cacheMiss)
	c <- prometheus.MustNewConstMetric(indexesKept, prometheus.GaugeValue, float64(kept))
}

func counter(d *prometheus.Desc, n int64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
}
