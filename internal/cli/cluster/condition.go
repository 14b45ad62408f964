package cluster

import (
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// ReadyCondition returns the Ready condition, or nil if there is none.
func ReadyCondition(o reconcile.Object) *metav1.Condition {
	return apimeta.FindStatusCondition(o.CommonStatus().Conditions, reconcile.TypeReady)
}

// Message returns the message of the Ready condition.
func Message(o reconcile.Object) string {
	if c := ReadyCondition(o); c != nil {
		return c.Message
	}
	return "not reconciled yet"
}

// ReconcileRequest returns the time at which someone last requested a reconcile, or "".
func ReconcileRequest(o client.Object) string {
	return o.GetAnnotations()[meta.ReconcileRequestAnnotation]
}

// isObserved reports whether the status is of the current generation and of the last requested reconcile.
func isObserved(o reconcile.Object) bool {
	s := o.CommonStatus()
	return s.ObservedGeneration == o.GetGeneration() && s.LastHandledReconcileAt == ReconcileRequest(o)
}

// IsSettled reports whether the current declaration of an object was reconciled: it is Ready, failed or held by a gate.
// A gate that is not evaluated yet decides in a moment, so an object that waits for it is not settled.
func IsSettled(o reconcile.Object) bool {
	held := HeldCondition(o)
	if held != nil && held.Reason == meta.GateNotEvaluatedReason {
		return false
	}
	if held != nil && o.CommonStatus().LastHandledReconcileAt == ReconcileRequest(o) {
		return true
	}
	c := ReadyCondition(o)
	return c != nil && c.Status != metav1.ConditionUnknown && isObserved(o)
}

// HeldCondition returns the condition of an object that a gate holds. It returns nil if no gate holds it, or if it is
// being reconciled.
func HeldCondition(o reconcile.Object) *metav1.Condition {
	if apimeta.IsStatusConditionTrue(o.CommonStatus().Conditions, reconcile.TypeReconciling) {
		return nil
	}
	return reconcile.HeldCondition(o)
}
