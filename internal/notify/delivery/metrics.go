package delivery

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/sluice-gitops/sluice/internal/fault"
)

var (
	requests = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "gotk_event_http_request_duration_seconds",
		Help:    "The duration in seconds of taking up an event that was posted.",
		Buckets: prometheus.ExponentialBuckets(0.0005, 3, 9),
	}, []string{"code", "method"})

	taken = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_events_total",
		Help: "Events by what became of them at the intake: taken, repeated (told not long ago), or lost.",
	}, []string{"result"})

	delivered = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_notifications_total",
		Help: "Notifications by provider and what became of them: delivered, failed (given up), or dropped (the " +
			"queue was full or damaged).",
	}, []string{"provider_namespace", "provider", "result"})

	took = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "sluice_notification_duration_seconds",
		Help: "The duration in seconds of a try to deliver a notification, by its outcome: delivered, failed, " +
			"or retried.",
		Buckets: prometheus.ExponentialBuckets(0.005, 3, 9),
	}, []string{"result"})

	waiting = prometheus.NewDesc("sluice_notifications_waiting", "Notifications that wait for a provider.",
		[]string{"provider_namespace", "provider"}, nil)
)

func init() { metrics.Registry.MustRegister(requests, taken, delivered, took) }

func count(provider types.NamespacedName, result string, n int) {
	delivered.WithLabelValues(provider.Namespace, provider.Name, result).Add(float64(n))
}

func forgetMetrics(provider types.NamespacedName) {
	delivered.DeletePartialMatch(prometheus.Labels{"provider_namespace": provider.Namespace, "provider": provider.Name})
}

func result(err error) string {
	var f *fault.Fault
	switch {
	case err == nil:
		return "delivered"
	case errors.As(err, &f) && f.Terminal:
		return "failed"
	default:
		return "retried"
	}
}

// Describe implements [prometheus.Collector]; so does Collect: what waits is counted when somebody asks.
func (b *Bus) Describe(c chan<- *prometheus.Desc) { c <- waiting }

// Collect implements [prometheus.Collector].
func (b *Bus) Collect(c chan<- prometheus.Metric) {
	for provider, n := range b.Waiting() {
		c <- prometheus.MustNewConstMetric(waiting, prometheus.GaugeValue, float64(n), provider.Namespace,
			provider.Name)
	}
}
