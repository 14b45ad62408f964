package reconcile

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

var (
	duration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "gotk_reconcile_duration_seconds",
		Help:    "Duration of the reconciles of an object, in seconds.",
		Buckets: prometheus.ExponentialBuckets(0.01, 3, 10),
	}, []string{"kind", "name", "namespace"})

	suspendedGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "gotk_suspend_status",
		Help: "1 if the object is suspended, 0 otherwise.",
	}, []string{"kind", "name", "namespace"})

	resourceInfo = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "gotk_resource_info",
		Help: "Readiness and suspension of an object, as labels. The value is always 1.",
	}, []string{"customresource_kind", "exported_namespace", "name", "ready", "suspended"})
)

// Metrics returns the metrics of reconciled objects.
func Metrics() []prometheus.Collector {
	return []prometheus.Collector{duration, suspendedGauge, resourceInfo}
}

func observePass(gk schema.GroupKind, obj Object, took time.Duration) {
	duration.WithLabelValues(gk.Kind, obj.GetName(), obj.GetNamespace()).Observe(took.Seconds())
	observeResource(gk, obj)
}

// observeSuspended reports whether an object is suspended that this process has reconciled before.
func observeSuspended(gk schema.GroupKind, obj Object) (isNews bool) {
	value := 0.0
	if obj.Schedule().Suspended {
		value = 1
		isNews = observeResource(gk, obj).suspended == "false"
	}
	suspendedGauge.WithLabelValues(gk.Kind, obj.GetName(), obj.GetNamespace()).Set(value)
	return isNews
}

// observeResource returns the state that was observed before.
func observeResource(gk schema.GroupKind, obj Object) infoState {
	state, _ := infoOf(obj)
	return infos.set(RefTo(gk, obj.GetNamespace(), obj.GetName()), state)
}

// infoOf returns the state of an object, and the reason of its readiness.
func infoOf(obj Object) (state infoState, reason string) {
	state = infoState{ready: "Unknown", suspended: "false"}
	if c := apimeta.FindStatusCondition(obj.CommonStatus().Conditions, TypeReady); c != nil {
		state.ready, reason = string(c.Status), c.Reason
	}
	if obj.Schedule().Suspended {
		state.suspended = "true"
	}
	return state, reason
}

// infoLabels stores the current label values of each object's series, because Prometheus can find a series by some of
// its labels only by searching all series.
type infoLabels struct {
	mu    sync.Mutex
	state map[Ref]infoState
}

// infoState holds the label values that change.
type infoState struct{ ready, suspended string }

var infos = infoLabels{state: map[Ref]infoState{}}

// set returns the state before; the zero value if there was none.
func (i *infoLabels) set(ref Ref, now infoState) (before infoState) {
	i.mu.Lock()
	defer i.mu.Unlock()
	before, ok := i.state[ref]
	if ok && before == now {
		return before
	}
	if ok {
		resourceInfo.DeleteLabelValues(ref.labels(before)...)
	}
	i.state[ref] = now
	resourceInfo.WithLabelValues(ref.labels(now)...).Set(1)
	return before
}

func (i *infoLabels) forget(ref Ref) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if before, ok := i.state[ref]; ok {
		resourceInfo.DeleteLabelValues(ref.labels(before)...)
		delete(i.state, ref)
	}
}

// labels returns the label values of resourceInfo, in order.
func (r Ref) labels(s infoState) []string {
	return []string{r.Kind, r.Namespace, r.Name, s.ready, s.suspended}
}

func forgetMetrics(gk schema.GroupKind, key types.NamespacedName) {
	duration.DeleteLabelValues(gk.Kind, key.Name, key.Namespace)
	suspendedGauge.DeleteLabelValues(gk.Kind, key.Name, key.Namespace)
	infos.forget(Ref{gk, key})
}
