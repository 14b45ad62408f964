package delivery

import (
	"errors"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/sluice-gitops/sluice/internal/notify/event"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// KernelEvents returns a sink that posts the events of the controllers in this process. Of minor ones it posts only
// successes with a revision, for commit statuses. The instance is the name of this process.
func (d *Dispatcher) KernelEvents(scheme *runtime.Scheme, instance string) reconcile.Events {
	return &kernelEvents{dispatcher: d, scheme: scheme, instance: instance}
}

type kernelEvents struct {
	dispatcher *Dispatcher
	scheme     *runtime.Scheme
	instance   string
}

// Emit implements [reconcile.Events]. It writes to a file but does not wait for the disk.
func (k *kernelEvents) Emit(group string, obj reconcile.Object, e reconcile.Event) {
	if e.ClusterOnly || e.Minor && !setsCommitStatus(e) {
		return
	}
	gvk, err := apiutil.GVKForObject(obj, k.scheme)
	if err == nil {
		err = k.dispatcher.Post(event.Event{
			InvolvedObject: corev1.ObjectReference{
				APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind,
				Namespace: obj.GetNamespace(), Name: obj.GetName(),
				UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion(),
			},
			Severity:            severity(e.Type),
			Timestamp:           metav1.NewTime(k.dispatcher.Clock.Now().UTC()),
			Message:             e.Message,
			Reason:              e.Reason,
			Metadata:            metadata(obj, e.Metadata),
			ReportingController: controllerOf(group, gvk.Kind),
			ReportingInstance:   k.instance,
		}.Clean())
	}
	if err != nil && !errors.As(err, new(*DuplicateError)) {
		logger().Error(err, "cannot accept an event, no notification is sent",
			"kind", gvk.Kind, "namespace", obj.GetNamespace(), "name", obj.GetName())
	}
}

// setsCommitStatus reports whether a minor event gives a commit the status that its object has: a revision that changes
// nothing is applied as well.
func setsCommitStatus(e reconcile.Event) bool {
	return e.Metadata[event.CommitStatus] == event.CommitStatusUpdate &&
		(e.Metadata[event.Revision] != "" || e.Metadata[event.OriginRevision] != "")
}

func severity(eventType string) string {
	if eventType == corev1.EventTypeWarning {
		return event.Error
	}
	return event.Info
}

// metadata returns the metadata of the event and the event annotations of the object.
func metadata(obj reconcile.Object, fromEvent map[string]string) map[string]string {
	all := maps.Clone(fromEvent)
	if all == nil {
		all = map[string]string{}
	}
	for k, v := range obj.GetAnnotations() {
		if strings.HasPrefix(k, event.AnnotationGroup+"/") && len(all) < event.MaxMetadata {
			all[k] = v
		}
	}
	return all
}

// controllerOf returns the documented name of the controller of a kind.
func controllerOf(group, kind string) string {
	switch {
	case kind == "ImageUpdateAutomation":
		return "image-automation-controller"
	case strings.HasPrefix(group, "image."):
		return "image-reflector-controller"
	case group == "source.extensions.fluxcd.io":
		return "source-watcher"
	case group == "fluxcd.controlplane.io":
		return "flux-operator"
	}
	part, _, _ := strings.Cut(group, ".")
	return part + "-controller"
}
