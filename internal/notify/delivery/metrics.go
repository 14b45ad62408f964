package delivery

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/internal/text/fault"
)

var (
	requestDuration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "gotk_event_http_request_duration_seconds",
		Help:    "Duration in seconds of requests that post an event.",
		Buckets: prometheus.ExponentialBuckets(0.0005, 3, 9),
	}, []string{"code", "method"})

	accepted = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_events_total",
		Help: "Received events by result: taken (accepted), repeated (suppressed duplicate), or lost.",
	}, []string{"result"})

	delivered = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_notifications_total",
		Help: "Notifications by provider and result: delivered, failed (not retried any more), or dropped (the " +
			"queue was full or damaged).",
	}, []string{"provider_namespace", "provider", "result"})

	attemptDuration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "sluice_notification_duration_seconds",
		Help:    "Duration in seconds of attempts to deliver a notification, by result: delivered, failed, or retried.",
		Buckets: prometheus.ExponentialBuckets(0.005, 3, 9),
	}, []string{"result"})

	pending = prometheus.NewDesc("sluice_notifications_waiting", "Notifications pending for a provider.",
		[]string{"provider_namespace", "provider"}, nil)
)

// Metrics returns the metrics of events and notifications. The [Dispatcher] collects the metrics of the queues.
func Metrics() []prometheus.Collector {
	return []prometheus.Collector{requestDuration, accepted, delivered, attemptDuration}
}

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

// Describe implements [prometheus.Collector].
func (d *Dispatcher) Describe(c chan<- *prometheus.Desc) { c <- pending }

// Collect implements [prometheus.Collector].
func (d *Dispatcher) Collect(c chan<- prometheus.Metric) {
	for provider, n := range d.Pending() {
		c <- prometheus.MustNewConstMetric(pending, prometheus.GaugeValue, float64(n), provider.Namespace,
			provider.Name)
	}
}
