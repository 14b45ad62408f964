package v1

import (
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/sluice-gitops/sluice/api/meta"
)

// Finalizer of the kinds of this group. Its name must not change, so that objects can be moved between installations.
const Finalizer = "fluxcd.controlplane.io/finalizer"

// Annotations of the kinds of this group. ReconcileAnnotation with the value disabled (case-insensitive) suspends an
// object; the kinds have no fields for these settings.
const (
	ReconcileAnnotation        = "fluxcd.controlplane.io/reconcile"
	ReconcileEveryAnnotation   = "fluxcd.controlplane.io/reconcileEvery"
	ReconcileTimeoutAnnotation = "fluxcd.controlplane.io/reconcileTimeout"
)

// Values of annotations.
const (
	Enabled  = "enabled"
	Disabled = "disabled"
)

// RevisionAnnotation is the metadata of events that names the revision of an object.
const RevisionAnnotation = "fluxcd.controlplane.io/revision"

// InputSet maps the names of inputs to their values.
type InputSet map[string]apiextensionsv1.JSON

// scheduleOf returns the schedule that the annotations of an object set. Values that are not positive durations count
// as the defaults.
func scheduleOf(annotations map[string]string, every, timeout time.Duration) meta.Schedule {
	return meta.Schedule{
		Interval:  durationOf(annotations[ReconcileEveryAnnotation], every),
		Timeout:   durationOf(annotations[ReconcileTimeoutAnnotation], timeout),
		Suspended: strings.EqualFold(annotations[ReconcileAnnotation], Disabled),
	}
}

func durationOf(value string, standard time.Duration) time.Duration {
	if d, err := time.ParseDuration(value); err == nil && d > 0 {
		return d
	}
	return standard
}
