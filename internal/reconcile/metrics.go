package reconcile

import (
	"sync"
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
	shown.set(RefTo(gk, obj.GetNamespace(), obj.GetName()), shownState{ready, yes})
}

// infos knows what resource shows of each object, since finding its series by a part of their labels means
// looking at all.
type infos struct {
	mu    sync.Mutex
	state map[Ref]shownState
}

// shownState is what of an object's labels changes.
type shownState struct{ ready, suspended string }

var shown = infos{state: map[Ref]shownState{}}

func (i *infos) set(ref Ref, now shownState) {
	i.mu.Lock()
	defer i.mu.Unlock()
	was, ok := i.state[ref]
	if ok && was == now {
		return
	}
	if ok {
		resource.DeleteLabelValues(ref.labels(was)...)
	}
	i.state[ref] = now
	resource.WithLabelValues(ref.labels(now)...).Set(1)
}

func (i *infos) forget(ref Ref) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if was, ok := i.state[ref]; ok {
		resource.DeleteLabelValues(ref.labels(was)...)
		delete(i.state, ref)
	}
}

// labels are those of resource, in their order.
func (r Ref) labels(s shownState) []string {
	return []string{r.Kind, r.Namespace, r.Name, s.ready, s.suspended}
}

func forgetMetrics(gk schema.GroupKind, key types.NamespacedName) {
	duration.DeleteLabelValues(gk.Kind, key.Name, key.Namespace)
	suspended.DeleteLabelValues(gk.Kind, key.Name, key.Namespace)
	shown.forget(Ref{gk, key})
}
