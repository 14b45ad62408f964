package manager

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
)

// sink counts how many events are written at once.
type sink struct{ now, most, all atomic.Int32 }

func (s *sink) write() (*eventsv1.Event, error) {
	if n := s.now.Add(1); n > s.most.Load() {
		s.most.Store(n)
	}
	s.all.Add(1)
	s.now.Add(-1)
	return nil, nil
}

func (s *sink) Create(context.Context, *eventsv1.Event) (*eventsv1.Event, error) { return s.write() }
func (s *sink) Update(context.Context, *eventsv1.Event) (*eventsv1.Event, error) { return s.write() }
func (s *sink) Patch(context.Context, *eventsv1.Event, []byte) (*eventsv1.Event, error) {
	return s.write()
}

func TestEventsAreWrittenOneByOne(t *testing.T) {
	const each = 1000
	to := &sink{}
	o := &oneByOne{sink: to}
	write := []func(){
		func() { _, _ = o.Create(t.Context(), nil) },
		func() { _, _ = o.Update(t.Context(), nil) },
		func() { _, _ = o.Patch(t.Context(), nil, nil) },
	}
	var wg sync.WaitGroup
	for _, w := range write {
		wg.Go(func() {
			for range each {
				w()
			}
		})
	}
	wg.Wait()
	if to.most.Load() != 1 || to.all.Load() != each*int32(len(write)) {
		t.Errorf("%d at once, %d written", to.most.Load(), to.all.Load())
	}
}
