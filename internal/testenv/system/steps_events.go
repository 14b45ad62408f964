package system

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// Emit implements [reconcile.Events]. It keeps the events that the cluster would have, with the same notes.
func (s *Steps) Emit(group string, obj reconcile.Object, e reconcile.Event) {
	reconcile.EmitToCluster(recorder{s}).Emit(group, obj, e)
}

// recorder is a [reconcile.Recorder] that keeps events in memory.
type recorder struct{ *Steps }

func (r recorder) AnnotatedEventf(regarding, _ runtime.Object, annotations map[string]string, kind, reason, action,
	note string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Annotations: annotations},
		Regarding:  corev1.ObjectReference{Name: regarding.(client.Object).GetName()},
		Type:       kind, Reason: reason, Action: action, Note: fmt.Sprintf(note, args...),
	})
}

// Events returns all events.
func (s *Steps) Events() []eventsv1.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.events)
}

// EventsAbout returns the events about an object.
func (s *Steps) EventsAbout(name string) (found []eventsv1.Event) {
	for _, e := range s.Events() {
		if e.Regarding.Name == name {
			found = append(found, e)
		}
	}
	return found
}

// HasEvent requires an event about an object whose note contains all texts, and returns the number of events with its
// reason.
func (s *Steps) HasEvent(name, reason string, texts ...string) int {
	s.Helper()
	count, err := countEvents(s.EventsAbout(name), reason, texts)
	if err != nil {
		s.Errorf("%s: %v", name, err)
	}
	return count
}
