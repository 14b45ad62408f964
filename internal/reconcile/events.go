package reconcile

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-gitops/sluice/internal/excerpt"
)

const (
	normal  = corev1.EventTypeNormal
	warning = corev1.EventTypeWarning
)

// eventMetadataPrefix marks the annotations of an object that are copied into the metadata of its events.
const eventMetadataPrefix = "event.toolkit.fluxcd.io/"

// maxNote is the API's bound on an event's note, in bytes.
const maxNote = 1024

// Event is something that happened to an object, for people and for alerts.
type Event struct {
	Type, Reason, Message string
	Metadata              map[string]string // keys without the group, such as revision
	Minor                 bool              // nothing was done: it is not worth a request to the cluster
}

// Events takes events. It must not block.
type Events interface {
	Emit(group string, obj Object, e Event)
}

// ToAll returns Events that go to each of several.
func ToAll(all ...Events) Events { return allEvents(all) }

type allEvents []Events

func (a allEvents) Emit(group string, obj Object, e Event) {
	for _, to := range a {
		to.Emit(group, obj, e)
	}
}

// Recorder writes Kubernetes events, as client-go's recorders do.
type Recorder interface {
	AnnotatedEventf(regarding, related runtime.Object, annotations map[string]string, kind, reason, action, note string,
		args ...any)
}

// ToCluster returns Events that become Kubernetes events, but for minor ones.
func ToCluster(r Recorder) Events { return clusterEvents{r} }

type clusterEvents struct{ recorder Recorder }

func (c clusterEvents) Emit(group string, obj Object, e Event) {
	if e.Minor {
		return
	}
	annotations := map[string]string{}
	for k, v := range e.Metadata {
		annotations[group+"/"+k] = v
	}
	for k, v := range obj.GetAnnotations() {
		if strings.HasPrefix(k, eventMetadataPrefix) {
			annotations[k] = v
		}
	}
	c.recorder.AnnotatedEventf(obj, nil, annotations, e.Type, e.Reason, "Reconcile", "%s",
		excerpt.Bytes(e.Message, maxNote))
}
