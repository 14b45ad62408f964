package reconcile

import (
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
)

// State is the state of an object in one word, for people.
type State string

// States, worst first.
const (
	StateFailed      State = "failed"
	StateWaiting     State = "waiting" // at a gate, or for a dependency
	StateProgressing State = "progressing"
	StateSuspended   State = "suspended"
	StateReady       State = "ready"
)

// States lists all states, worst first.
var States = []State{StateFailed, StateWaiting, StateProgressing, StateSuspended, StateReady}

// HeldCondition returns the condition that says which gates hold the change of an object and why, or nil if none does.
func HeldCondition(o Object) *metav1.Condition {
	conditions := o.CommonStatus().Conditions
	for i := range conditions {
		if c := &conditions[i]; c.Type == meta.ApprovedCondition && c.Status == metav1.ConditionFalse ||
			c.Type == meta.BlockedCondition && c.Status == metav1.ConditionTrue {
			return c
		}
	}
	return nil
}

// isWaiting reports whether a change of the object waits at a gate. A closed gate alone holds nothing.
func isWaiting(o Object) bool {
	if g, ok := o.(Gated); ok && g.Held().Pending == nil {
		return false
	}
	return HeldCondition(o) != nil
}

// StateOf returns the state of an object, from its spec and its status.
func StateOf(o Object) State {
	conditions := o.CommonStatus().Conditions
	ready := apimeta.FindStatusCondition(conditions, TypeReady)
	switch {
	case o.Schedule().Suspended:
		return StateSuspended
	case ready != nil && ready.Status == metav1.ConditionFalse && ready.Reason != meta.DependencyNotReadyReason:
		return StateFailed
	case isWaiting(o), ready != nil && ready.Status == metav1.ConditionFalse:
		return StateWaiting
	case ready == nil, ready.Status == metav1.ConditionUnknown,
		apimeta.IsStatusConditionTrue(conditions, TypeReconciling):
		return StateProgressing
	default:
		return StateReady
	}
}
