package manager

import (
	"context"
	"fmt"
	"sync"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
)

// oneByOne writes one event at a time. Events give way to the work that they tell of: when everything changes at once, they
// come a little later instead of taking a share of the API server.
type oneByOne struct {
	mu   sync.Mutex
	sink events.EventSink
}

// Create implements [events.EventSink]; so do Update and Patch.
func (o *oneByOne) Create(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sink.Create(ctx, e)
}

// Update implements [events.EventSink].
func (o *oneByOne) Update(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sink.Update(ctx, e)
}

// Patch implements [events.EventSink].
func (o *oneByOne) Patch(ctx context.Context, e *eventsv1.Event, data []byte) (*eventsv1.Event, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sink.Patch(ctx, e, data)
}

// lastWords is how long events that were recorded before the end may still take to be written.
const lastWords = 5 * time.Second

// recordEvents returns where events go, and what ends it. It outlives ctx, so that what was said last is written, too.
func recordEvents(ctx context.Context, mgr ctrlmanager.Manager) (events.AnnotatedEventRecorder, func(), error) {
	c, err := kubernetes.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, nil, fmt.Errorf("cannot record events: %w", err)
	}
	recording, stop := context.WithCancel(context.WithoutCancel(ctx))
	broadcaster := events.NewBroadcaster(&oneByOne{sink: &events.EventSinkImpl{Interface: c.EventsV1()}})
	if err := broadcaster.StartRecordingToSinkWithContext(recording); err != nil {
		stop()
		return nil, nil, fmt.Errorf("cannot record events: %w", err)
	}
	end := func() {
		time.AfterFunc(lastWords, func() {
			broadcaster.Shutdown()
			stop()
		})
	}
	recorder, ok := broadcaster.NewRecorder(mgr.GetScheme(), "sluice").(events.AnnotatedEventRecorder)
	if !ok {
		panic("client-go's recorder has always taken annotations")
	}
	return recorder, end, nil
}
