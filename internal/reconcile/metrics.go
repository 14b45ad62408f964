package reconcile

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	duration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "gotk_reconcile_duration_seconds",
		Help:    "The duration in seconds of a reconcile of an object.",
		Buckets: prometheus.ExponentialBuckets(0.01, 3, 10),
	}, []string{"kind", "name", "namespace"})

	suspended = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "gotk_suspend_status",
		Help: "1 if the object is suspended, else 0.",
	}, []string{"kind", "name", "namespace"})

	resource = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "gotk_resource_info",
		Help: "An object and its state: always 1.",
	}, []string{"customresource_kind", "exported_namespace", "name", "ready", "suspended"})
)

func init() { metrics.Registry.MustRegister(duration, suspended, resource) }

func observePass(gk schema.GroupKind, obj Object, took time.Duration) {
	duration.WithLabelValues(gk.Kind, obj.GetName(), obj.GetNamespace()).Observe(took.Seconds())
	observeResource(gk, obj)
}

func observeSuspended(gk schema.GroupKind, obj Object) {
	value := 0.0
	if obj.Schedule().Suspended {
		value = 1
		observeResource(gk, obj)
	}
	suspended.WithLabelValues(gk.Kind, obj.GetName(), obj.GetNamespace()).Set(value)
}

func observeResource(gk schema.GroupKind, obj Object) {
	ready := "Unknown"
	if c := apimeta.FindStatusCondition(obj.CommonStatus().Conditions, TypeReady); c != nil {
		ready = string(c.Status)
	}
	yes := "false"
	if obj.Schedule().Suspended {
		yes = "true"
	}
	forgetResource(gk, types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()})
	resource.WithLabelValues(gk.Kind, obj.GetNamespace(), obj.GetName(), ready, yes).Set(1)
}

func forgetResource(gk schema.GroupKind, key types.NamespacedName) {
	resource.DeletePartialMatch(prometheus.Labels{"customresource_kind": gk.Kind, "exported_namespace": key.Namespace, "name": key.Name})
}

func forgetMetrics(gk schema.GroupKind, key types.NamespacedName) {
	labels := prometheus.Labels{"kind": gk.Kind, "name": key.Name, "namespace": key.Namespace}
	duration.DeletePartialMatch(labels)
	suspended.DeletePartialMatch(labels)
	forgetResource(gk, key)
}
