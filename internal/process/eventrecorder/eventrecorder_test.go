package eventrecorder

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
)

// All events have the same object and reason. One needs a retry, one is forbidden, and the last one does not fit in
// the queue.
func TestRecorderWritesEventsInOrder(t *testing.T) {
	const size = 100
	var written []string
	names := map[string]bool{}
	failed := false
	r := &Recorder{scheme: clientgoscheme.Scheme, log: logr.Discard(), queue: make(chan *eventsv1.Event, size),
		create: func(_ context.Context, e *eventsv1.Event) error {
			switch {
			case e.Note == "event 7" && !failed:
				failed = true
				return errors.New("connection refused")
			case e.Note == "event 8":
				return apierrors.NewForbidden(schema.GroupResource{}, e.Name, nil)
			}
			written = append(written, e.Note)
			names[e.Name] = true
			return nil
		}}
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "app", ResourceVersion: "1"}}
	var want []string
	for i := range size + 1 {
		r.AnnotatedEventf(obj, nil, nil, corev1.EventTypeNormal, "Succeeded", "Reconcile", "event %d", i)
		if i != 8 && i != size {
			want = append(want, fmt.Sprintf("event %d", i))
		}
	}
	stop := make(chan struct{})
	close(stop)
	r.run(t.Context(), stop)
	if !slices.Equal(written, want) || len(names) != len(want) {
		t.Errorf("wrote %q with %d unique names, want %q", written, len(names), want)
	}
}
