// Package eventrecorder writes Kubernetes Events.
//
// It writes one event at a time, in the order of recording, so that a change of everything at once delays events
// instead of competing with reconciles for the API server. client-go's recorder writes in any order, and merges events
// of one object version with equal reasons, which loses the notes of all but the first.
package eventrecorder

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
	"sigs.k8s.io/controller-runtime/pkg/log"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

const (
	queueSize   = 10_000           // further events are dropped
	maxAttempts = 12               // to write an event
	retryDelay  = 10 * time.Second // between attempts
	maxNote     = 1024             // bytes of a note that the API accepts
	drainTime   = 5 * time.Second  // for writing queued events when the process stops
)

// Recorder implements [reconcile.Recorder]. It is safe for concurrent use.
type Recorder struct {
	scheme     *runtime.Scheme
	create     func(context.Context, *eventsv1.Event) error
	instance   string
	home       *corev1.ObjectReference // the pod of the controllers; see moved
	log        logr.Logger
	retryDelay time.Duration
	queue      chan *eventsv1.Event
	sequence   atomic.Int64 // makes names of events unique
}

// Start returns a recorder that writes to the manager's cluster, and a function that stops it. The recorder runs
// until stopped, even if ctx ends before, and then writes the events in its queue for up to 5 s. namespace is that of
// the controllers.
func Start(ctx context.Context, mgr ctrlmanager.Manager, namespace string) (*Recorder, func(), error) {
	c, err := kubernetes.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, nil, fmt.Errorf("cannot record events: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, nil, fmt.Errorf("cannot record events: cannot get the host name: %w", err)
	}
	r := &Recorder{
		scheme: mgr.GetScheme(), instance: "sluice-" + host,
		home:       &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: host},
		log:        log.Log.WithName("events"),
		retryDelay: retryDelay, queue: make(chan *eventsv1.Event, queueSize),
		create: func(ctx context.Context, e *eventsv1.Event) error {
			_, err := c.EventsV1().Events(e.Namespace).Create(ctx, e, metav1.CreateOptions{})
			return err
		},
	}
	r.sequence.Store(time.Now().UnixNano())
	writing, abort := context.WithCancel(context.WithoutCancel(ctx))
	stop, done := make(chan struct{}), make(chan struct{})
	guard.Go("writing events", func() {
		defer close(done)
		r.run(writing, stop)
	})
	return r, func() {
		close(stop)
		deadline := guard.AfterFunc("writing events", drainTime, abort)
		<-done
		deadline.Stop()
		abort()
	}, nil
}

// AnnotatedEventf queues an event. It does not block: if the queue is full, the event is dropped and logged.
func (r *Recorder) AnnotatedEventf(regarding, _ runtime.Object, annotations map[string]string, kind, reason, action,
	note string, args ...any) {
	ref, err := reference.GetReference(r.scheme, regarding)
	if err != nil {
		r.log.Error(err, "cannot record an event: its object has no reference", "reason", reason)
		return
	}
	e := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace,
			Name: util.GenerateEventName(ref.Name, r.sequence.Add(1)), Annotations: annotations},
		EventTime: metav1.NowMicro(), ReportingController: "sluice", ReportingInstance: r.instance,
		Type: kind, Reason: reason, Action: action, Regarding: *ref, Note: fmt.Sprintf(note, args...),
	}
	if e.Namespace == "" {
		e.Namespace = corev1.NamespaceDefault
	}
	select {
	case r.queue <- e:
	default:
		r.log.Info("event dropped: the queue is full", "reason", reason, "object", ref.Namespace+"/"+ref.Name)
	}
}

// run writes events until stop is closed, and then the queued ones.
func (r *Recorder) run(ctx context.Context, stop <-chan struct{}) {
	for {
		select {
		case e := <-r.queue:
			r.write(ctx, e)
		case <-stop:
			for len(r.queue) > 0 && ctx.Err() == nil {
				r.write(ctx, <-r.queue)
			}
			return
		}
	}
}

// write creates an event, with retries if the error may be temporary.
func (r *Recorder) write(ctx context.Context, e *eventsv1.Event) {
	for attempt := 1; ; attempt++ {
		err := guard.Do("writing an event", func() error { return r.create(ctx, e) })
		if err == nil || apierrors.IsAlreadyExists(err) || ctx.Err() != nil {
			return
		}
		if m := r.moved(e, err); m != nil {
			e = m
			continue
		}
		if attempt == maxAttempts || !isTemporary(err) {
			r.log.Error(err, "event not written", "reason", e.Reason, "object",
				e.Regarding.Namespace+"/"+e.Regarding.Name)
			return
		}
		select {
		case <-time.After(r.retryDelay):
		case <-ctx.Done():
		}
	}
}

// moved returns a warning about an object whose namespace is being deleted, or is gone, as an event about the pod of
// the controllers: an event must be in the namespace of its object. It returns nil if the event needs not be moved.
func (r *Recorder) moved(e *eventsv1.Event, err error) *eventsv1.Event {
	isGone := apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
	if !isGone || r.home == nil || e.Type != corev1.EventTypeWarning || e.Namespace == r.home.Namespace {
		return nil
	}
	m := e.DeepCopy()
	m.Namespace, m.Regarding = r.home.Namespace, *r.home
	note := fmt.Sprintf("%s '%s/%s': %s", e.Regarding.Kind, e.Regarding.Namespace, e.Regarding.Name, e.Note)
	m.Note = excerpt.Bytes(note, maxNote)
	return m
}

// isTemporary reports whether a request may succeed later. Errors without a reason are those of the connection.
func isTemporary(err error) bool {
	return apierrors.ReasonForError(err) == metav1.StatusReasonUnknown || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsInternalError(err)
}
