package reconcile

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Info is a metric of one kind: a series with the value 1 for each object, whose labels say what its state is.
type Info[T Object] struct {
	metric *prometheus.GaugeVec
	values func(T) []string

	mu    sync.Mutex
	state map[Ref][]string // label values of the series of each object
}

// NewInfo returns a metric without series. Values returns the values of the labels for an object, in order.
func NewInfo[T Object](name, help string, labels []string, values func(T) []string) *Info[T] {
	return &Info[T]{metric: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels),
		values: values, state: map[Ref][]string{}}
}

// Collector returns the metric to register.
func (i *Info[T]) Collector() prometheus.Collector { return i.metric }

func (i *Info[T]) set(ref Ref, obj T) {
	if i == nil {
		return
	}
	now := i.values(obj)
	i.mu.Lock()
	defer i.mu.Unlock()
	before, ok := i.state[ref]
	if ok && slices.Equal(before, now) {
		return
	}
	if ok {
		i.metric.DeleteLabelValues(before...)
	}
	i.state[ref] = now
	i.metric.WithLabelValues(now...).Set(1)
}

func (i *Info[T]) forget(ref Ref) {
	if i == nil {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if before, ok := i.state[ref]; ok {
		i.metric.DeleteLabelValues(before...)
		delete(i.state, ref)
	}
}

// InfoValues returns the values of the labels `ready`, `reason` and `suspended` of an object.
func InfoValues(obj Object) []string {
	state, reason := infoOf(obj)
	return []string{state.ready, reason, state.suspended}
}
