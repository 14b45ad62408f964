package health

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sluice-gitops/sluice/internal/excerpt"
)

const (
	maxPods   = 50  // that an explanation looks at
	maxEvents = 100 // as many
	maxWords  = 400 // bytes of what somebody else wrote
)

var (
	pods   = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	events = schema.GroupVersionResource{Version: "v1", Resource: "events"}
)

// Explain says in the object's own words why it is not healthy: of a workload, what its pods wait for. It costs a
// request or two, so ask it once a failure is told.
func (w *Watcher) Explain(ctx context.Context, r Result) string {
	mapping, err := w.mapper.RESTMapping(r.Target.groupKind(), r.Target.Version)
	if err != nil || r.Status == NotFound || mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return r.Message
	}
	obj, err := w.dynamic.Resource(mapping.Resource).Namespace(r.Target.Namespace).
		Get(ctx, r.Target.Name, metav1.GetOptions{})
	if err != nil {
		return r.Message
	}
	return withReason(r.Message, w.problem(ctx, r.Target.groupKind(), obj))
}

// problem asks the object's pods, its own conditions, then what was last warned of it.
func (w *Watcher) problem(ctx context.Context, kind schema.GroupKind, obj *unstructured.Unstructured) string {
	if kind == (schema.GroupKind{Kind: "Pod"}) {
		return cmp.Or(podProblem(obj), w.warned(ctx, obj))
	}
	return cmp.Or(w.podsProblem(ctx, obj), ownProblem(obj), w.warned(ctx, obj))
}

// warned returns the last warning about an object that is not older than it, such as that a volume cannot be
// provisioned or mounted.
func (w *Watcher) warned(ctx context.Context, obj *unstructured.Unstructured) string {
	about := fields.SelectorFromSet(fields.Set{"involvedObject.uid": string(obj.GetUID()), "type": "Warning"}).String()
	list, err := w.dynamic.Resource(events).Namespace(obj.GetNamespace()).
		List(ctx, metav1.ListOptions{FieldSelector: about, Limit: maxEvents})
	if err != nil {
		return ""
	}
	last, why := "", ""
	for i := range list.Items {
		e := list.Items[i].Object
		at := cmp.Or(textOf(e, "lastTimestamp"), textOf(e, "eventTime"), list.Items[i].GetCreationTimestamp().UTC().
			Format(time.RFC3339))
		if at >= last {
			last, why = at, text(e)
		}
	}
	return excerpt.Bytes(why, maxWords)
}

func textOf(m map[string]any, field string) string {
	s, _ := m[field].(string)
	return s
}

func withReason(message, why string) string {
	if why == "" {
		return message
	}
	return fmt.Sprintf("%s (%s)", message, why)
}

// ownProblem returns what a condition of the object says that speaks of failure, such as a quota that admits no pod.
func ownProblem(obj *unstructured.Unstructured) string {
	for _, c := range conditions(obj) {
		bad := c["type"] == "ReplicaFailure" || c["type"] == "Failed" || c["type"] == "FailureTarget"
		if bad && c["status"] == "True" || c["type"] == "Progressing" && c["status"] == "False" {
			return text(c)
		}
	}
	return ""
}

// podsProblem returns what keeps one of the pods that the object selects from being ready.
func (w *Watcher) podsProblem(ctx context.Context, obj *unstructured.Unstructured) string {
	raw, found, err := unstructured.NestedMap(obj.Object, "spec", "selector")
	if err != nil || !found {
		return ""
	}
	var selector metav1.LabelSelector
	if runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &selector) != nil {
		return ""
	}
	parsed, err := metav1.LabelSelectorAsSelector(&selector)
	if err != nil || parsed.Empty() || parsed.String() == labels.Nothing().String() {
		return ""
	}
	list, err := w.dynamic.Resource(pods).Namespace(obj.GetNamespace()).
		List(ctx, metav1.ListOptions{LabelSelector: parsed.String(), Limit: maxPods})
	if err != nil {
		return ""
	}
	for i := range list.Items {
		if why := podProblem(&list.Items[i]); why != "" {
			return fmt.Sprintf("pod %s: %s", list.Items[i].GetName(), why)
		}
	}
	for i := range list.Items {
		if phase, _, _ := unstructured.NestedString(list.Items[i].Object, "status", "phase"); phase != "Pending" {
			continue
		}
		// it waits for something that its status does not name, such as a volume
		if why := w.warned(ctx, &list.Items[i]); why != "" {
			return fmt.Sprintf("pod %s: %s", list.Items[i].GetName(), why)
		}
		break
	}
	return ""
}

// podProblem says what keeps a pod from being ready, or nothing.
func podProblem(pod *unstructured.Unstructured) string {
	for _, field := range []string{"initContainerStatuses", "containerStatuses"} {
		statuses, _, _ := unstructured.NestedSlice(pod.Object, "status", field) // none if there is something else
		for _, s := range statuses {
			if m, ok := s.(map[string]any); ok {
				if why := containerProblem(m); why != "" {
					return why
				}
			}
		}
	}
	for _, c := range conditions(pod) {
		if c["type"] == "PodScheduled" && c["status"] == "False" {
			return text(c)
		}
	}
	if phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase"); phase == "Running" &&
		!hasCondition(pod, "Ready") {
		return "it runs, but its readiness probe does not pass"
	}
	return ""
}

func containerProblem(status map[string]any) string {
	waiting, found, _ := unstructured.NestedMap(status, "state", "waiting")
	if found && waiting["reason"] != "ContainerCreating" && waiting["reason"] != "PodInitializing" {
		if last, found, _ := unstructured.NestedMap(status, "lastState", "terminated"); found {
			return fmt.Sprintf("container %v: %s; it last ended with exit code %v", status["name"], text(waiting),
				last["exitCode"])
		}
		return fmt.Sprintf("container %v: %s", status["name"], text(waiting))
	}
	if ended, found, _ := unstructured.NestedMap(status, "state", "terminated"); found &&
		fmt.Sprint(ended["exitCode"]) != "0" {
		return fmt.Sprintf("container %v ended with exit code %v", status["name"], ended["exitCode"])
	}
	return ""
}
