package reconcile

import (
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

var (
	durationDesc = prometheus.NewDesc("gotk_reconcile_duration_seconds",
		"Duration of the reconciles of an object, in seconds.", []string{"kind", "name", "namespace"}, nil)
	suspendedDesc = prometheus.NewDesc("gotk_suspend_status",
		"1 if the object is suspended, 0 otherwise.", []string{"kind", "name", "namespace"}, nil)
	infoDesc = prometheus.NewDesc("gotk_resource_info",
		"Readiness and suspension of an object, as labels. The value is always 1.",
		[]string{"customresource_kind", "exported_namespace", "name", "ready", "suspended"}, nil)
)

// durationBuckets are the upper bounds of the buckets of [durationDesc], in seconds.
var durationBuckets = prometheus.ExponentialBuckets(0.01, 3, numBuckets)

const numBuckets = 10

// Metrics returns the metrics of reconciled objects.
func Metrics() []prometheus.Collector { return []prometheus.Collector{observed} }

var observed = &objectMetrics{series: map[Ref]*objectSeries{}}

// objectMetrics is what has been observed of each object; its series are made when they are collected. The series of
// prometheus' own vectors, with a copy of each label, took half of the live objects of an idle process, which each
// garbage collection has to look at.
type objectMetrics struct {
	mu     sync.Mutex
	series map[Ref]*objectSeries
}

// objectSeries is what has been observed of an object.
type objectSeries struct {
	info        infoState // its zero value if the readiness has not been observed
	isSuspended bool
	passes      uint64
	seconds     float64            // of all passes
	buckets     [numBuckets]uint32 // passes by duration, those beyond the last bound left out
}

// infoState holds the label values of [infoDesc] that change.
type infoState struct{ ready, suspended string }

// update calls f with the series of an object.
func (m *objectMetrics) update(ref Ref, f func(*objectSeries)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.series[ref]
	if s == nil {
		s = &objectSeries{}
		m.series[ref] = s
	}
	f(s)
}

func (m *objectMetrics) forget(ref Ref) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.series, ref)
}

// Describe implements [prometheus.Collector].
func (*objectMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{durationDesc, suspendedDesc, infoDesc} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (m *objectMetrics) Collect(ch chan<- prometheus.Metric) {
	type object struct {
		Ref
		objectSeries
	}
	m.mu.Lock()
	all := make([]object, 0, len(m.series))
	for ref, s := range m.series {
		all = append(all, object{ref, *s})
	}
	m.mu.Unlock()
	for _, o := range all {
		o.collect(o.Ref, ch) // outside of the lock: the receiver may be slow
	}
}

func (s *objectSeries) collect(ref Ref, ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	suspended := 0.0
	if s.isSuspended {
		suspended = 1
	}
	gauge(suspendedDesc, suspended, ref.Kind, ref.Name, ref.Namespace)
	if s.info != (infoState{}) {
		gauge(infoDesc, 1, ref.Kind, ref.Namespace, ref.Name, s.info.ready, s.info.suspended)
	}
	if s.passes == 0 {
		return
	}
	upTo, n := make(map[float64]uint64, numBuckets), uint64(0)
	for i, bound := range durationBuckets {
		n += uint64(s.buckets[i])
		upTo[bound] = n
	}
	ch <- prometheus.MustNewConstHistogram(durationDesc, s.passes, s.seconds, upTo, ref.Kind, ref.Name, ref.Namespace)
}

// observePass records a pass of an object and the state that it left.
func observePass(gk schema.GroupKind, obj Object, took time.Duration) {
	state, _ := infoOf(obj)
	observed.update(RefTo(gk, obj.GetNamespace(), obj.GetName()), func(s *objectSeries) {
		s.info = state
		s.passes++
		s.seconds += took.Seconds()
		if i, _ := slices.BinarySearch(durationBuckets, took.Seconds()); i < numBuckets {
			s.buckets[i]++
		}
	})
}

// observeSuspended records whether an object is suspended. It is news if a pass of this process found that it was not.
func observeSuspended(gk schema.GroupKind, obj Object) (isNews bool) {
	observed.update(RefTo(gk, obj.GetNamespace(), obj.GetName()), func(s *objectSeries) {
		s.isSuspended = obj.Schedule().Suspended
		if s.isSuspended {
			isNews = s.info.suspended == strconv.FormatBool(false)
			s.info, _ = infoOf(obj)
		}
	})
	return isNews
}

// infoOf returns the state of an object, and the reason of its readiness.
func infoOf(obj Object) (state infoState, reason string) {
	state = infoState{ready: "Unknown", suspended: strconv.FormatBool(obj.Schedule().Suspended)}
	if c := apimeta.FindStatusCondition(obj.CommonStatus().Conditions, TypeReady); c != nil {
		state.ready, reason = string(c.Status), c.Reason
	}
	return state, reason
}

func forgetMetrics(gk schema.GroupKind, key types.NamespacedName) { observed.forget(Ref{gk, key}) }
