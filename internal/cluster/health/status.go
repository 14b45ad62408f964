package health

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/sluice-gitops/sluice/internal/guard"
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

// observation is what a watch stores of an object.
type observation struct{ version, status, message string }

// observeWith returns the projection for a check when it is its turn, or for kstatus if the check is nil. An
// object that makes it panic has the status Unknown: a cluster of a tenant may return anything.
func observeWith(c *Check, t *turns) func(*unstructured.Unstructured) observation {
	return func(u *unstructured.Unstructured) (o observation) {
		err := guard.Do("checking the health of an object", func() error {
			switch {
			case c == nil:
				o = observe(u)
			case c.isBrief():
				o = c.observe(u)
			default:
				t.run(func() { o = c.observe(u) })
			}
			return nil
		})
		if err != nil {
			o = observation{version: u.GetResourceVersion(), status: Unknown, message: err.Error()}
		}
		return o
	}
}

// observe returns the health of an object by kstatus. It corrects Jobs and Pods, which kstatus calls current although
// they are not healthy.
func observe(u *unstructured.Unstructured) observation {
	out := observation{version: u.GetResourceVersion()}
	r, err := status.Compute(u)
	if err != nil {
		out.status, out.message = Unknown, err.Error()
		return out
	}
	out.status, out.message = string(r.Status), r.Message
	switch u.GroupVersionKind().GroupKind() {
	case schema.GroupKind{Group: "batch", Kind: "Job"}: // kstatus: current as soon as the Job has started
		suspended, _, _ := unstructured.NestedBool(u.Object, "spec", "suspend")
		switch {
		case out.status == InProgress && suspended:
			out.status, out.message = Current, "Job is suspended"
		case out.status == Current && !hasCondition(u, "Complete"):
			out.status = InProgress
		}
	case schema.GroupKind{Kind: "Pod"}: // kstatus: current after the Pod ended, whether or not it failed
		if phase, _, _ := unstructured.NestedString(u.Object, "status", "phase"); phase == "Failed" &&
			out.status == Current {
			out.status = Failed
		}
	}
	return out
}

// hasCondition reports whether a condition of the object is true.
func hasCondition(u *unstructured.Unstructured, kind string) bool {
	for _, c := range conditions(u) {
		if c["type"] == kind && c["status"] == "True" {
			return true
		}
	}
	return false
}

// conditions returns the conditions of an object. Entries that are not objects are left out.
func conditions(u *unstructured.Unstructured) []map[string]any {
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions") // nil if the field has another type
	var out []map[string]any
	for _, c := range list {
		if m, ok := c.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

// reasonAndMessage returns "<reason>: <message>" of a condition, an event or a container state.
func reasonAndMessage(m map[string]any) string {
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

// Of returns the health of one object as it is, with the status of kstatus and its message. It reads nothing from the
// cluster.
func Of(u *unstructured.Unstructured) (status, message string) {
	o := observeWith(nil, nil)(u)
	return o.status, o.message
}
