package reconcile

import (
	"cmp"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/text/explain"
)

// Condition types that the kernel sets on every kind, by the kstatus contract.
const (
	TypeReady       = "Ready"
	TypeReconciling = "Reconciling"
	TypeStalled     = "Stalled"
)

// maxMessage bounds condition messages, in bytes. The API server allows 32,768 characters.
const maxMessage = 20000

// Mark sets a condition of the object. An empty reason becomes [ReasonFailed].
func Mark(obj Object, conditionType string, status metav1.ConditionStatus, reason, message string) {
	message = excerpt.Bytes(message, maxMessage)
	if reason == "" {
		reason = ReasonFailed
	}
	apimeta.SetStatusCondition((*[]metav1.Condition)(&obj.CommonStatus().Conditions), metav1.Condition{
		Type: conditionType, Status: status, Reason: reason, Message: message, ObservedGeneration: obj.GetGeneration(),
	})
}

// Unmark removes a condition.
func Unmark(obj Object, conditionType string) {
	apimeta.RemoveStatusCondition((*[]metav1.Condition)(&obj.CommonStatus().Conditions), conditionType)
}

// IsReady reports whether the object is Ready for its current generation.
func IsReady(obj Object) bool {
	c := apimeta.FindStatusCondition(obj.CommonStatus().Conditions, TypeReady)
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == obj.GetGeneration()
}

// IsStalled reports whether the object is Stalled: it will not recover without a change.
func IsStalled(obj Object) bool {
	return apimeta.IsStatusConditionTrue(obj.CommonStatus().Conditions, TypeStalled)
}

// setConditions sets the conditions that follow from an outcome.
func setConditions(obj Object, o Outcome) {
	if o.state == held {
		setHeld(obj, o)
		return
	}
	if o.keepReady && apimeta.FindStatusCondition(obj.CommonStatus().Conditions, TypeReady) != nil {
		Mark(obj, TypeReconciling, metav1.ConditionTrue, ReasonProgressing, o.message)
		return
	}
	obj.CommonStatus().ObservedGeneration = obj.GetGeneration()
	switch o.state {
	case ready:
		Mark(obj, TypeReady, metav1.ConditionTrue, o.reason, o.message)
		Unmark(obj, TypeReconciling)
		Unmark(obj, TypeStalled)
	case progressing:
		setProgressing(obj, o.message)
	case waiting, failed:
		message := o.message
		if o.state == failed {
			message = explain.WithCode(o.reason, message, maxMessage)
		}
		Mark(obj, TypeReady, metav1.ConditionFalse, o.reason, message)
		Mark(obj, TypeReconciling, metav1.ConditionTrue, ReasonProgressingWithRetry, message)
		Unmark(obj, TypeStalled)
	case stalled:
		message := explain.WithCode(o.reason, o.message, maxMessage)
		Mark(obj, TypeReady, metav1.ConditionFalse, o.reason, message)
		Mark(obj, TypeStalled, metav1.ConditionTrue, cmp.Or(o.stalledBy, o.reason), message)
		Unmark(obj, TypeReconciling)
	}
}

// setHeld keeps Ready of an object that a gate holds, whether True or False. The observed generation is not updated, so
// that a spec that waits does not look applied. Ready becomes Unknown if no pass has completed yet, or if the
// object was waiting for another one.
func setHeld(obj Object, o Outcome) {
	Unmark(obj, TypeReconciling)
	c := apimeta.FindStatusCondition(obj.CommonStatus().Conditions, TypeReady)
	if c == nil || c.Status == metav1.ConditionUnknown || c.Reason == ReasonDependencyNotReady ||
		c.Reason == meta.ArtifactFailedReason {
		Mark(obj, TypeReady, metav1.ConditionUnknown, o.reason, o.message)
	}
}

// setProgressing sets the conditions of an object whose work continues.
func setProgressing(obj Object, message string) {
	Mark(obj, TypeReady, metav1.ConditionUnknown, ReasonProgressing, message)
	Mark(obj, TypeReconciling, metav1.ConditionTrue, ReasonProgressing, message)
	Unmark(obj, TypeStalled)
}
