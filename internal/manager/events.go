package manager

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record/util"
	"k8s.io/client-go/tools/reference"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
)

const (
	keptEvents = 10_000           // that wait to be written; beyond, new ones are dropped
	eventTries = 12               // to write an event
	eventPause = 10 * time.Second // between them
	lastWords  = 5 * time.Second  // how long events that were recorded before the end may still take to be written
)

// recorder writes one event at a time, in the order in which they happened. They give way to the work that
// they tell of: when everything changes at once, they come a little later instead of taking a share of the
// API server. client-go's recorder, which writes them in any order, takes those of one version of an object
// for the same one if their reasons are equal, and keeps what only the first of them says.
type recorder struct {
	scheme   *runtime.Scheme
	create   func(context.Context, *eventsv1.Event) error
	instance string
	log      logr.Logger
	pause    time.Duration
	waiting  chan *eventsv1.Event
	last     atomic.Int64 // number of an event, which makes its name unique
}

// AnnotatedEventf implements [reconcile.Recorder]. It does not block.
func (r *recorder) AnnotatedEventf(regarding, _ runtime.Object, annotations map[string]string, kind, reason, action,
	note string, args ...any) {
	about, err := reference.GetReference(r.scheme, regarding)
	if err != nil {
		r.log.Error(err, "cannot tell what an event is about", "reason", reason)
		return
	}
	e := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: about.Namespace,
			Name: util.GenerateEventName(about.Name, r.last.Add(1)), Annotations: annotations},
		EventTime: metav1.NowMicro(), ReportingController: "sluice", ReportingInstance: r.instance,
		Type: kind, Reason: reason, Action: action, Regarding: *about, Note: fmt.Sprintf(note, args...),
	}
	if e.Namespace == "" {
		e.Namespace = corev1.NamespaceDefault
	}
	select {
	case r.waiting <- e:
	default:
		r.log.Info("an event is dropped, as too many wait to be written", "reason", reason, "about", about.Namespace+
			"/"+about.Name)
	}
}

// run writes events until the end, and then those that wait.
func (r *recorder) run(ctx context.Context, end <-chan struct{}) {
	for {
		select {
		case e := <-r.waiting:
			r.write(ctx, e)
		case <-end:
			for len(r.waiting) > 0 && ctx.Err() == nil {
				r.write(ctx, <-r.waiting)
			}
			return
		}
	}
}

// write tries again what the API server may yet take.
func (r *recorder) write(ctx context.Context, e *eventsv1.Event) {
	for try := 1; ; try++ {
		err := r.create(ctx, e)
		if err == nil || apierrors.IsAlreadyExists(err) || ctx.Err() != nil {
			return
		}
		if refused := apierrors.ReasonForError(err) != metav1.StatusReasonUnknown &&
			!apierrors.IsTooManyRequests(err) && !apierrors.IsServerTimeout(err) &&
			!apierrors.IsTimeout(err) && !apierrors.IsServiceUnavailable(err) &&
			!apierrors.IsInternalError(err); refused || try == eventTries {
			r.log.Error(err, "an event was not written", "reason", e.Reason, "about", e.Regarding.Namespace+"/"+
				e.Regarding.Name)
			return
		}
		select {
		case <-time.After(r.pause):
		case <-ctx.Done():
		}
	}
}

// recordEvents returns where events go, and what ends it. It outlives ctx, so that what was said last is written, too.
func recordEvents(ctx context.Context, mgr ctrlmanager.Manager) (*recorder, func(), error) {
	c, err := kubernetes.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, nil, fmt.Errorf("cannot record events: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, nil, fmt.Errorf("cannot tell the name of this machine: %w", err)
	}
	r := &recorder{
		scheme: mgr.GetScheme(), instance: "sluice-" + host, log: mgr.GetLogger().WithName("events"), pause: eventPause,
		waiting: make(chan *eventsv1.Event, keptEvents),
		create: func(ctx context.Context, e *eventsv1.Event) error {
			_, err := c.EventsV1().Events(e.Namespace).Create(ctx, e, metav1.CreateOptions{})
			return err
		},
	}
	r.last.Store(time.Now().UnixNano())
	recording, stop := context.WithCancel(context.WithoutCancel(ctx))
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		r.run(recording, end)
	}()
	return r, func() {
		close(end)
		late := time.AfterFunc(lastWords, stop)
		<-ended
		late.Stop()
		stop()
	}, nil
}
