package hub

import (
	"errors"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-gitops/sluice/internal/fleet"
)

var (
	reportsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_hub_reports_total",
		Help: "Reports that the hub received, by the status of its answer.",
	}, []string{"status"})
	storeErrors = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "sluice_hub_storage_errors_total",
		Help: "Failed attempts to read or write the storage of the hub.",
	})

	clustersDesc = prometheus.NewDesc("sluice_hub_clusters", "Clusters that are registered, by status.",
		[]string{"status"}, nil)
	receivedDesc = prometheus.NewDesc("sluice_hub_cluster_last_report_timestamp_seconds",
		"When the hub last heard of a cluster, as Unix time; 0 if it never did.", []string{"cluster"}, nil)
	objectsDesc = prometheus.NewDesc("sluice_hub_cluster_objects", "Objects of a cluster, by state.",
		[]string{"cluster", "state"}, nil)
	pendingDesc = prometheus.NewDesc("sluice_hub_cluster_pending_changes",
		"Changes that wait at gates of a cluster.", []string{"cluster"}, nil)
	streamsDesc = prometheus.NewDesc("sluice_hub_streams", "Clusters that have a stream to this replica.", nil, nil)
)

// Metrics returns the metrics of a hub. Their number is bounded by that of the clusters that are registered.
func Metrics(h *Hub) []prometheus.Collector {
	return []prometheus.Collector{reportsTotal, storeErrors, collector{h}}
}

// count counts the answer to a report.
func count(err error) {
	status := "204"
	if err != nil {
		status = "500"
		if refused := (*refusal)(nil); errors.As(err, &refused) {
			status = strconv.Itoa(refused.status)
		}
	}
	reportsTotal.WithLabelValues(status).Inc()
}

type collector struct{ *Hub }

// Describe implements [prometheus.Collector].
func (collector) Describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{clustersDesc, receivedDesc, objectsDesc, pendingDesc, streamsDesc} {
		c <- d
	}
}

// Collect implements [prometheus.Collector].
func (h collector) Collect(c chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	statuses, streams := map[fleet.Status]int{}, 0
	for name := range h.shown {
		statuses[h.status(name)]++
		if h.Streams != nil && h.Streams.IsLinked(name) {
			streams++
		}
		e := h.clusters[name]
		if e == nil {
			gauge(receivedDesc, 0, name)
			continue
		}
		gauge(receivedDesc, float64(e.Received.Unix()), name)
		for _, state := range fleet.States {
			gauge(objectsDesc, float64(e.Summary.Counts[state]), name, state)
		}
		gauge(pendingDesc, float64(len(e.Summary.Changes)+e.Summary.Omitted.Changes), name)
	}
	for _, status := range []fleet.Status{fleet.Reporting, fleet.Silent, fleet.Expected} {
		gauge(clustersDesc, float64(statuses[status]), string(status))
	}
	gauge(streamsDesc, float64(streams))
}
