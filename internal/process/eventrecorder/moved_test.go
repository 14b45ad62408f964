package eventrecorder

import (
	"context"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
)

// TestWarningsOfDeletedNamespacesAreWritten records events about an object whose namespace is being deleted, or gone.
// What is left in the cluster is written in the namespace of the controllers.
func TestWarningsOfDeletedNamespacesAreWritten(t *testing.T) {
	terminating := apierrors.NewForbidden(schema.GroupResource{}, "x", nil)
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, refusal := range map[string]error{
		"terminating": terminating,
		"gone":        apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "apps"),
	} {
		var written []*eventsv1.Event
		r := &Recorder{scheme: clientgoscheme.Scheme, log: logr.Discard(), queue: make(chan *eventsv1.Event, 10),
			home: &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "flux-system", Name: "sluice-0"},
			create: func(_ context.Context, e *eventsv1.Event) error {
				if e.Namespace == "apps" {
					return refusal
				}
				written = append(written, e)
				return nil
			}}
		obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "app"}}
		long := strings.Repeat("x", maxNote)
		r.AnnotatedEventf(obj, nil, nil, corev1.EventTypeNormal, "Progressing", "Reconcile", "deleted")
		r.AnnotatedEventf(obj, nil, nil, corev1.EventTypeWarning, "PruneFailed", "Reconcile", "ClusterRole/a is left")
		r.AnnotatedEventf(obj, nil, nil, corev1.EventTypeWarning, "PruneFailed", "Reconcile", "%s", long)
		stop := make(chan struct{})
		close(stop)
		r.run(t.Context(), stop)
		if len(written) != 2 || written[0].Note != "ConfigMap 'apps/app': ClusterRole/a is left" ||
			written[0].Regarding.Namespace != "flux-system" || len(written[1].Note) > maxNote {
			t.Errorf("%s: %+v", name, written)
		}
	}
}
