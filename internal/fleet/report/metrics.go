package report

import (
	"github.com/prometheus/client_golang/prometheus"
)

var (
	reports = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_reports_total",
		Help: "Reports to the hub, by result: sent, unchanged or failed.",
	}, []string{"result"})
	lastReport = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "sluice_last_report_timestamp_seconds",
		Help: "When the hub last accepted a report, as Unix time; 0 if it never did.",
	})
)

// Metrics returns the metrics of reports.
func Metrics() []prometheus.Collector { return []prometheus.Collector{reports, lastReport} }

func (r *Reporter) count(err error, isUnchanged bool) {
	switch {
	case err != nil:
		reports.WithLabelValues("failed").Inc()
	case isUnchanged:
		reports.WithLabelValues("unchanged").Inc()
	default:
		reports.WithLabelValues("sent").Inc()
	}
	if err == nil {
		lastReport.Set(float64(r.Now().Unix()))
	}
}
