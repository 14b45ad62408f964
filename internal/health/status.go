package health

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

// Statuses of kstatus.
const (
	Current     = string(status.CurrentStatus)
	InProgress  = string(status.InProgressStatus)
	Failed      = string(status.FailedStatus)
	NotFound    = string(status.NotFoundStatus)
	Terminating = string(status.TerminatingStatus)
	Unknown     = string(status.UnknownStatus)
)

// compute tells the health of an object by kstatus, but for what it calls current although nobody would call
// it healthy.
func compute(u *unstructured.Unstructured) seen {
	out := seen{version: u.GetResourceVersion()}
	r, err := status.Compute(u)
	if err != nil {
		out.status, out.message = Unknown, err.Error()
		return out
	}
	out.status, out.message = string(r.Status), r.Message
	switch u.GroupVersionKind().GroupKind() {
	case schema.GroupKind{Group: "batch", Kind: "Job"}: // kstatus: current as soon as it has begun
		suspended, _, _ := unstructured.NestedBool(u.Object, "spec", "suspend")
		switch {
		case out.status == InProgress && suspended:
			out.status, out.message = Current, "Job is suspended"
		case out.status == Current && !hasCondition(u, "Complete"):
			out.status = InProgress
		}
	case schema.GroupKind{Kind: "Pod"}: // kstatus: current once it has ended, however
		if phase, _, _ := unstructured.NestedString(u.Object, "status", "phase"); phase == "Failed" &&
			out.status == Current {
			out.status = Failed
		}
	}
	return out
}

// hasCondition tells whether a condition of the object is true.
func hasCondition(u *unstructured.Unstructured, kind string) bool {
	for _, c := range conditions(u) {
		if c["type"] == kind && c["status"] == "True" {
			return true
		}
	}
	return false
}

// conditions returns the conditions of an object; what is not one is left out.
func conditions(u *unstructured.Unstructured) []map[string]any {
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions") // none if there is something else
	var out []map[string]any
	for _, c := range list {
		if m, ok := c.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

// text words a reason with its message.
func text(m map[string]any) string {
	reason, message := m["reason"], m["message"]
	switch {
	case reason == nil || reason == "":
		return fmt.Sprint(message)
	case message == nil || message == "":
		return fmt.Sprint(reason)
	default:
		return fmt.Sprintf("%v: %v", reason, message)
	}
}
