package reconcile

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-gitops/sluice/internal/text/explain"
)

const (
	normal  = corev1.EventTypeNormal
	warning = corev1.EventTypeWarning
)

// eventMetadataPrefix is the prefix of annotations that are copied from an object to its events.
const eventMetadataPrefix = "event.toolkit.fluxcd.io/"

// maxNote is the maximum length of an event's note in bytes, as set by the Kubernetes API.
const maxNote = 1024

// Event is something that happened to an object, for Kubernetes events and alerts.
type Event struct {
	Type, Reason, Message string
	Metadata              map[string]string // keys have no group prefix, such as revision
	Minor                 bool              // nothing was changed; for commit statuses only
	ClusterOnly           bool              // not for alerts, as Flux's events of type Trace

	// Summary is what the pass changed, for an event of the cluster. Alerts have it by the event before.
	Summary string
	// Summarized is set for the event whose message is the summary of the next one.
	Summarized bool
}

// Events receives events. Emit must not block.
type Events interface {
	Emit(group string, obj Object, e Event)
}

// EmitToAll returns Events that emit to each of the given ones.
func EmitToAll(all ...Events) Events { return allEvents(all) }

type allEvents []Events

func (a allEvents) Emit(group string, obj Object, e Event) {
	for _, events := range a {
		events.Emit(group, obj, e)
	}
}

// Recorder writes Kubernetes events, as client-go's recorders do.
type Recorder interface {
	AnnotatedEventf(regarding, related runtime.Object, annotations map[string]string, kind, reason, action, note string,
		args ...any)
}

// EmitToCluster returns Events that write Kubernetes events. Minor events are not written, and a summary of changes is
// part of the event that it belongs to, as each event costs a request.
func EmitToCluster(r Recorder) Events { return clusterEvents{r} }

type clusterEvents struct{ recorder Recorder }

func (c clusterEvents) Emit(group string, obj Object, e Event) {
	if e.Minor || e.Summarized {
		return
	}
	if e.Summary != "" {
		e.Message += "\n" + e.Summary
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
	explained := "" // only problems have a code
	if e.Type == warning {
		explained = e.Reason
	}
	c.recorder.AnnotatedEventf(obj, nil, annotations, e.Type, e.Reason, "Reconcile", "%s",
		explain.WithCode(explained, e.Message, maxNote))
}
