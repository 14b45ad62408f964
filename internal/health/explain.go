package health

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// maxPods bounds how many pods an explanation looks at.
const maxPods = 50

var pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// Explain says in the object's own words why it is not healthy: of a workload, what its pods wait for. It costs a
// request or two, so ask it once a failure is told.
func (w *Watcher) Explain(ctx context.Context, r Result) string {
	mapping, err := w.mapper.RESTMapping(schema.GroupKind{Group: r.Target.Group, Kind: r.Target.Kind}, r.Target.Version)
	if err != nil || mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return r.Message
	}
	obj, err := w.dynamic.Resource(mapping.Resource).Namespace(r.Target.Namespace).Get(ctx, r.Target.Name, metav1.GetOptions{})
	if err != nil {
		return r.Message
	}
	labels, found, err := unstructured.NestedStringMap(obj.Object, "spec", "selector", "matchLabels")
	if err != nil || !found {
		return r.Message
	}
	list, err := w.dynamic.Resource(pods).Namespace(r.Target.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: labels}), Limit: maxPods,
	})
	if err != nil {
		return r.Message
	}
	for i := range list.Items {
		if why := podProblem(&list.Items[i]); why != "" {
			return fmt.Sprintf("%s (pod %s: %s)", r.Message, list.Items[i].GetName(), why)
		}
	}
	return r.Message
}

// podProblem says what keeps a pod from being ready, or nothing.
func podProblem(pod *unstructured.Unstructured) string {
	for _, field := range []string{"initContainerStatuses", "containerStatuses"} {
		statuses, _, err := unstructured.NestedSlice(pod.Object, "status", field)
		if err != nil {
			continue
		}
		for _, s := range statuses {
			if why := containerProblem(s); why != "" {
				return why
			}
		}
	}
	conditions, _, err := unstructured.NestedSlice(pod.Object, "status", "conditions")
	if err != nil {
		return ""
	}
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok && m["type"] == "PodScheduled" && m["status"] == "False" {
			return text(m)
		}
	}
	return ""
}

func containerProblem(status any) string {
	m, ok := status.(map[string]any)
	if !ok {
		return ""
	}
	if w, found, err := unstructured.NestedMap(m, "state", "waiting"); err == nil && found && w["reason"] != "ContainerCreating" && w["reason"] != "PodInitializing" {
		return text(w)
	}
	if t, found, err := unstructured.NestedMap(m, "state", "terminated"); err == nil && found && fmt.Sprint(t["exitCode"]) != "0" {
		return fmt.Sprintf("container %v ended with exit code %v", m["name"], t["exitCode"])
	}
	return ""
}

func text(m map[string]any) string {
	reason, _ := m["reason"].(string)
	message, _ := m["message"].(string)
	return strings.TrimSuffix(reason+": "+message, ": ")
}
