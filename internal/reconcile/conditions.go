package reconcile

import (
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/excerpt"
)

// Condition types that the kernel owns on every kind; they follow the kstatus contract.
const (
	TypeReady       = "Ready"
	TypeReconciling = "Reconciling"
	TypeStalled     = "Stalled"
)

// maxMessage keeps conditions readable; the API server allows 32,768 characters.
const maxMessage = 20000

// Mark sets a condition of a kind's own on the object.
func Mark(obj Object, conditionType string, status metav1.ConditionStatus, reason, message string) {
	message = excerpt.Bytes(message, maxMessage)
	if reason == "" {
		reason = ReasonFailed
	}
	apimeta.SetStatusCondition(&obj.CommonStatus().Conditions, metav1.Condition{
		Type: conditionType, Status: status, Reason: reason, Message: message, ObservedGeneration: obj.GetGeneration(),
	})
}

// Unmark removes a condition.
func Unmark(obj Object, conditionType string) {
	apimeta.RemoveStatusCondition(&obj.CommonStatus().Conditions, conditionType)
}

// IsReady tells whether the object is Ready for the generation at hand.
func IsReady(obj Object) bool {
	c := apimeta.FindStatusCondition(obj.CommonStatus().Conditions, TypeReady)
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == obj.GetGeneration()
}

// IsStalled tells whether the object waits for somebody to change something.
func IsStalled(obj Object) bool {
	return apimeta.IsStatusConditionTrue(obj.CommonStatus().Conditions, TypeStalled)
}

// conclude turns an outcome into the conditions that the kernel owns.
func conclude(obj Object, o Outcome) {
	if o.state == held {
		rest(obj, o)
		return
	}
	obj.CommonStatus().ObservedGeneration = obj.GetGeneration()
	switch o.state {
	case ready:
		Mark(obj, TypeReady, metav1.ConditionTrue, o.reason, o.message)
		Unmark(obj, TypeReconciling)
		Unmark(obj, TypeStalled)
	case progressing:
		progress(obj, o.message)
	case waiting, failed:
		Mark(obj, TypeReady, metav1.ConditionFalse, o.reason, o.message)
		Mark(obj, TypeReconciling, metav1.ConditionTrue, ReasonProgressingWithRetry, o.message)
		Unmark(obj, TypeStalled)
	case stalled:
		Mark(obj, TypeReady, metav1.ConditionFalse, o.reason, o.message)
		Mark(obj, TypeStalled, metav1.ConditionTrue, o.reason, o.message)
		Unmark(obj, TypeReconciling)
	}
}

// rest leaves an object that a gate holds as it is: what is Ready stays so, and so does a failure. A spec
// that waits is not observed, so that nobody takes it for applied. An object that was never brought to an
// end, or waited for something else, is Unknown.
func rest(obj Object, o Outcome) {
	Unmark(obj, TypeReconciling)
	c := apimeta.FindStatusCondition(obj.CommonStatus().Conditions, TypeReady)
	if c == nil || c.Status == metav1.ConditionUnknown || c.Reason == ReasonDependencyNotReady ||
		c.Reason == meta.ArtifactFailedReason {
		Mark(obj, TypeReady, metav1.ConditionUnknown, o.reason, o.message)
	}
}

// progress marks the object as under way.
func progress(obj Object, message string) {
	Mark(obj, TypeReady, metav1.ConditionUnknown, ReasonProgressing, message)
	Mark(obj, TypeReconciling, metav1.ConditionTrue, ReasonProgressing, message)
	Unmark(obj, TypeStalled)
}
