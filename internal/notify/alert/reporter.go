package alert

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// EventReporter records problems of delivery as Kubernetes Events of the Alert. They cause no notifications. It
// implements delivery.Reporter.
type EventReporter struct {
	Alerts   client.Reader
	Recorder reconcile.Recorder
}

// Report implements delivery.Reporter.
func (r *EventReporter) Report(alert, provider types.NamespacedName, reason, message string) {
	a := &notificationv1.Alert{}
	if err := r.Alerts.Get(context.Background(), alert, a); err != nil {
		return // the Alert was deleted
	}
	r.Recorder.AnnotatedEventf(a, nil, nil, corev1.EventTypeWarning, reason, "Notify", "Provider '%s': %s", provider,
		message)
}
