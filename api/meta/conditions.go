package meta

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Conditions of an object.
//
// Decoding never fails, for the reason that [Duration] gives: a client with write access to the status may
// write a transition time that Go rejects. Such a condition is kept without its time.
type Conditions []metav1.Condition

// UnmarshalJSON implements [json.Unmarshaler]. The error is always nil.
func (c *Conditions) UnmarshalJSON(b []byte) error {
	var plain []metav1.Condition
	if json.Unmarshal(b, &plain) == nil {
		*c = plain
		return nil
	}
	var lenient []struct {
		Type               string                 `json:"type"`
		Status             metav1.ConditionStatus `json:"status"`
		ObservedGeneration int64                  `json:"observedGeneration"`
		LastTransitionTime Time                   `json:"lastTransitionTime"`
		Reason             string                 `json:"reason"`
		Message            string                 `json:"message"`
	}
	_ = json.Unmarshal(b, &lenient) // what can be read is kept
	*c = nil
	for _, l := range lenient {
		*c = append(*c, metav1.Condition{
			Type: l.Type, Status: l.Status, ObservedGeneration: l.ObservedGeneration,
			LastTransitionTime: metav1.Time{Time: l.LastTransitionTime.Time}, Reason: l.Reason, Message: l.Message,
		})
	}
	return nil
}
