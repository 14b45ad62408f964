package health

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// maxPods bounds how many pods an explanation looks at.
const maxPods = 50

var pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// Explain says in the object's own words why it is not healthy: of a workload, what its pods wait for. It costs a
// request or two, so ask it once a failure is told.
func (w *Watcher) Explain(ctx context.Context, r Result) string {
	mapping, err := w.mapper.RESTMapping(r.Target.groupKind(), r.Target.Version)
	if err != nil || r.Status == NotFound || mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return r.Message
	}
	obj, err := w.dynamic.Resource(mapping.Resource).Namespace(r.Target.Namespace).Get(ctx, r.Target.Name, metav1.GetOptions{})
	if err != nil {
		return r.Message
	}
	if r.Target.groupKind() == (schema.GroupKind{Kind: "Pod"}) {
		return withReason(r.Message, podProblem(obj))
	}
	if why := w.podsProblem(ctx, obj); why != "" {
		return withReason(r.Message, why)
	}
	return withReason(r.Message, ownProblem(obj))
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
	list, err := w.dynamic.Resource(pods).Namespace(obj.GetNamespace()).List(ctx, metav1.ListOptions{LabelSelector: parsed.String(), Limit: maxPods})
	if err != nil {
		return ""
	}
	for i := range list.Items {
		if why := podProblem(&list.Items[i]); why != "" {
			return fmt.Sprintf("pod %s: %s", list.Items[i].GetName(), why)
		}
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
	if phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase"); phase == "Running" && !hasCondition(pod, "Ready") {
		return "it runs, but its readiness probe does not pass"
	}
	return ""
}

func containerProblem(status map[string]any) string {
	waiting, found, _ := unstructured.NestedMap(status, "state", "waiting")
	if found && waiting["reason"] != "ContainerCreating" && waiting["reason"] != "PodInitializing" {
		if last, found, _ := unstructured.NestedMap(status, "lastState", "terminated"); found {
			return fmt.Sprintf("container %v: %s; it last ended with exit code %v", status["name"], text(waiting), last["exitCode"])
		}
		return fmt.Sprintf("container %v: %s", status["name"], text(waiting))
	}
	if ended, found, _ := unstructured.NestedMap(status, "state", "terminated"); found && fmt.Sprint(ended["exitCode"]) != "0" {
		return fmt.Sprintf("container %v ended with exit code %v", status["name"], ended["exitCode"])
	}
	return ""
}
