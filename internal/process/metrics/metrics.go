// Package metrics registers the Prometheus metrics of a process. It exposes those of the caches of credentials and Helm
// indexes.
package metrics

import (
	"context"
	"errors"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/source/helm"
)

var (
	tokenEvents = prometheus.NewDesc("gotk_token_cache_events_total",
		"Lookups of workload identity credentials in the cache, by result.", []string{"event_type"}, nil)
	tokenRequests = prometheus.NewDesc("gotk_token_cache_requests_total",
		"Requests for workload identity credentials to a cloud, by result.", []string{"status"}, nil)
	tokenEvictions = prometheus.NewDesc("gotk_token_cache_evictions_total",
		"Workload identity credentials removed from the cache.", nil, nil)
	tokenItems = prometheus.NewDesc("gotk_token_cached_items", "Workload identity credentials in the cache.", nil, nil)

	indexEvents = prometheus.NewDesc("gotk_cache_events_total",
		"Lookups of Helm repository indexes in the cache, by result.", []string{"event_type"}, nil)
	indexItems = prometheus.NewDesc("gotk_cached_items", "Helm repository indexes in the cache.", nil, nil)
)

// Values of the label event_type.
const (
	cacheHit  = "cache_hit"
	cacheMiss = "cache_miss"
)

// Register adds metrics to those that the manager serves. It ignores metrics that are registered already: tests run
// several managers in a process.
func Register(groups ...[]prometheus.Collector) error {
	for _, c := range slices.Concat(groups...) {
		err := metrics.Registry.Register(c)
		if registered := (prometheus.AlreadyRegisteredError{}); err != nil && !errors.As(err, &registered) {
			return err
		}
	}
	return nil
}

// Collector is registered while the manager that it is added to runs. It implements manager.Runnable and
// [prometheus.Collector].
type Collector struct{ prometheus.Collector }

// ForTokens returns the collector of the cache of credentials.
func ForTokens(identities *auth.Identities) Collector { return Collector{tokens{identities}} }

// ForIndexes returns the collector of the cache of Helm indexes.
func ForIndexes(cache *helm.Indexes) Collector { return Collector{indexes{cache}} }

// Start implements manager.Runnable.
func (c Collector) Start(ctx context.Context) error {
	if err := metrics.Registry.Register(c); err == nil { // only tests run two managers in a process
		defer metrics.Registry.Unregister(c)
	}
	<-ctx.Done()
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica has caches.
func (Collector) NeedLeaderElection() bool { return false }

type tokens struct{ *auth.Identities }

// Describe implements [prometheus.Collector].
func (tokens) Describe(c chan<- *prometheus.Desc) {
	c <- tokenEvents
	c <- tokenRequests
	c <- tokenEvictions
	c <- tokenItems
}

// Collect implements [prometheus.Collector].
func (m tokens) Collect(c chan<- prometheus.Metric) {
	s := m.CacheStats()
	c <- counter(tokenEvents, s.Hits, cacheHit)
	c <- counter(tokenEvents, s.Fetched+s.Failed, cacheMiss)
	c <- counter(tokenRequests, s.Fetched, "success")
	c <- counter(tokenRequests, s.Failed, "failure")
	c <- counter(tokenEvictions, s.Evicted)
	c <- prometheus.MustNewConstMetric(tokenItems, prometheus.GaugeValue, float64(s.Entries))
}

type indexes struct{ *helm.Indexes }

// Describe implements [prometheus.Collector].
func (indexes) Describe(c chan<- *prometheus.Desc) {
	c <- indexEvents
	c <- indexItems
}

// Collect implements [prometheus.Collector].
func (m indexes) Collect(c chan<- prometheus.Metric) {
	hits, reads, items := m.Stats()
	c <- counter(indexEvents, hits, cacheHit)
	c <- counter(indexEvents, reads, cacheMiss)
	c <- prometheus.MustNewConstMetric(indexItems, prometheus.GaugeValue, float64(items))
}

func counter(d *prometheus.Desc, n int64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
}
