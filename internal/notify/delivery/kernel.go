package delivery

import (
	"errors"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-gitops/sluice/internal/notify/event"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// FromKernel returns what takes up the events of our own controllers, but for minor ones. The instance is the
// name of this process.
func (b *Bus) FromKernel(scheme *runtime.Scheme, instance string) reconcile.Events {
	return &kernelEvents{b, scheme, instance}
}

type kernelEvents struct {
	bus      *Bus
	scheme   *runtime.Scheme
	instance string
}

// Emit implements [reconcile.Events]. It writes to a file, and waits for no disk.
func (k *kernelEvents) Emit(group string, obj reconcile.Object, e reconcile.Event) {
	if e.Minor {
		return
	}
	gvk, err := apiutil.GVKForObject(obj, k.scheme)
	if err == nil {
		err = k.bus.Post(event.Event{
			InvolvedObject: corev1.ObjectReference{
				APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Namespace: obj.GetNamespace(),
				Name: obj.GetName(),
				UID:  obj.GetUID(), ResourceVersion: obj.GetResourceVersion(),
			},
			Severity:            severity(e.Type),
			Timestamp:           metav1.NewTime(k.bus.Clock.Now().UTC()),
			Message:             e.Message,
			Reason:              e.Reason,
			Metadata:            metadata(obj, e.Metadata),
			ReportingController: controllerOf(group, gvk.Kind),
			ReportingInstance:   k.instance,
		}.Clean())
	}
	if err != nil && !errors.As(err, new(*RepeatedError)) {
		log.Log.WithName("notifications").Error(err, "nobody is notified of an event", "kind", gvk.Kind, "namespace",
			obj.GetNamespace(), "name", obj.GetName())
	}
}

func severity(eventType string) string {
	if eventType == corev1.EventTypeWarning {
		return event.Error
	}
	return event.Info
}

// metadata is what the step says, and what the object has annotations for.
func metadata(obj reconcile.Object, said map[string]string) map[string]string {
	all := maps.Clone(said)
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

// controllerOf is the name by which the controller of a kind has always reported.
func controllerOf(group, kind string) string {
	switch {
	case kind == "ImageUpdateAutomation":
		return "image-automation-controller"
	case strings.HasPrefix(group, "image."):
		return "image-reflector-controller"
	case group == "source.extensions.fluxcd.io":
		return "source-watcher"
	}
	part, _, _ := strings.Cut(group, ".")
	return part + "-controller"
}
