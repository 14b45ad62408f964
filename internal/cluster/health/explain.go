package health

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

const (
	maxPods         = 50  // pods that are read for an explanation
	maxEvents       = 100 // events that are read for an explanation
	maxEventMessage = 400 // bytes
)

// Lister lists Pods or Events of a namespace, for explanations.
type Lister func(ctx context.Context, kind, namespace string, o metav1.ListOptions) ([]unstructured.Unstructured, error)

// list is the Lister of a Watcher.
func (w *Watcher) list(ctx context.Context, kind, namespace string, o metav1.ListOptions) ([]unstructured.Unstructured,
	error) {
	resource := schema.GroupVersionResource{Version: "v1", Resource: strings.ToLower(kind) + "s"}
	list, err := w.dynamic.Resource(resource).Namespace(namespace).List(ctx, o)
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// Explain returns the message of a result together with the reason that the object itself, its pods or its events give.
// It needs a few requests, so call it only when a failure is reported.
func (w *Watcher) Explain(ctx context.Context, r Result) string {
	if r.Status == NotFound {
		return r.Message
	}
	return withReason(r.Message, w.reason(ctx, r.Target))
}

// reason reads a target and returns why it is not healthy; empty if that is not known, and for objects without a
// namespace.
func (w *Watcher) reason(ctx context.Context, t Target) string {
	mapping, err := w.mapper.RESTMapping(t.groupKind(), t.Version)
	if err != nil || mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return ""
	}
	obj, err := w.dynamic.Resource(mapping.Resource).Namespace(t.Namespace).Get(ctx, t.Name, metav1.GetOptions{})
	if err != nil {
		return ""
	}
	return Reason(ctx, w.list, obj)
}

// Reason returns why an object is not healthy, by its pods, then its conditions, then its last warning event. It is
// empty if none of them gives a reason.
func Reason(ctx context.Context, list Lister, obj *unstructured.Unstructured) string {
	if obj.GroupVersionKind().GroupKind() == (schema.GroupKind{Kind: "Pod"}) {
		return cmp.Or(podReason(obj), list.lastWarning(ctx, obj))
	}
	return cmp.Or(list.podsReason(ctx, obj), conditionReason(obj), list.lastWarning(ctx, obj))
}

// lastWarning returns the last warning event about an object, such as that a volume cannot be provisioned or mounted.
func (list Lister) lastWarning(ctx context.Context, obj *unstructured.Unstructured) string {
	about := fields.SelectorFromSet(fields.Set{"involvedObject.uid": string(obj.GetUID()), "type": "Warning"}).String()
	warnings, err := list(ctx, "Event", obj.GetNamespace(), metav1.ListOptions{FieldSelector: about, Limit: maxEvents})
	if err != nil {
		return ""
	}
	last, reason := "", ""
	for i := range warnings {
		e := warnings[i].Object
		at := cmp.Or(stringField(e, "lastTimestamp"), stringField(e, "eventTime"),
			warnings[i].GetCreationTimestamp().UTC().Format(time.RFC3339))
		if at >= last {
			last, reason = at, reasonAndMessage(e)
		}
	}
	return excerpt.Bytes(reason, maxEventMessage)
}

func stringField(m map[string]any, field string) string {
	s, _ := m[field].(string)
	return s
}

func withReason(message, reason string) string {
	if reason == "" {
		return message
	}
	return fmt.Sprintf("%s (%s)", message, reason)
}

// conditionReason returns the reason of a condition that reports a failure, such as an exhausted quota.
func conditionReason(obj *unstructured.Unstructured) string {
	for _, c := range conditions(obj) {
		bad := c["type"] == "ReplicaFailure" || c["type"] == "Failed" || c["type"] == "FailureTarget"
		if bad && c["status"] == "True" || c["type"] == "Progressing" && c["status"] == "False" {
			return reasonAndMessage(c)
		}
	}
	return ""
}

// podsReason returns why one of the pods that the object selects is not ready.
func (list Lister) podsReason(ctx context.Context, obj *unstructured.Unstructured) string {
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
	pods, err := list(ctx, "Pod", obj.GetNamespace(),
		metav1.ListOptions{LabelSelector: parsed.String(), Limit: maxPods})
	if err != nil {
		return ""
	}
	for i := range pods {
		reason := podReason(&pods[i])
		if reason == notReady {
			reason = cmp.Or(list.lastWarning(ctx, &pods[i]), reason) // the kubelet quotes the answer of the probe
		}
		if reason != "" {
			return fmt.Sprintf("pod %s: %s", pods[i].GetName(), reason)
		}
	}
	for i := range pods {
		if phase, _, _ := unstructured.NestedString(pods[i].Object, "status", "phase"); phase != "Pending" {
			continue
		}
		// The pod waits for something that its status does not name, such as a volume.
		if reason := list.lastWarning(ctx, &pods[i]); reason != "" {
			return fmt.Sprintf("pod %s: %s", pods[i].GetName(), reason)
		}
		break
	}
	return ""
}

// notReady is the reason of a pod whose status gives no other.
const notReady = "the pod runs, but its readiness probe fails"

// podReason returns why a pod is not ready; empty if its status does not give a reason.
func podReason(pod *unstructured.Unstructured) string {
	for _, field := range []string{"initContainerStatuses", "containerStatuses"} {
		statuses, _, _ := unstructured.NestedSlice(pod.Object, "status", field) // nil if the field has another type
		for _, s := range statuses {
			if m, ok := s.(map[string]any); ok {
				if reason := containerReason(m); reason != "" {
					return reason
				}
			}
		}
	}
	for _, c := range conditions(pod) {
		if c["type"] == "PodScheduled" && c["status"] == "False" {
			return reasonAndMessage(c)
		}
	}
	if phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase"); phase == "Running" &&
		!hasCondition(pod, "Ready") {
		return notReady
	}
	return ""
}

func containerReason(status map[string]any) string {
	waiting, found, _ := unstructured.NestedMap(status, "state", "waiting")
	if found && waiting["reason"] != "ContainerCreating" && waiting["reason"] != "PodInitializing" {
		if last, found, _ := unstructured.NestedMap(status, "lastState", "terminated"); found {
			return fmt.Sprintf("container %v: %s; last exit code %v", status["name"], reasonAndMessage(waiting),
				last["exitCode"])
		}
		return fmt.Sprintf("container %v: %s", status["name"], reasonAndMessage(waiting))
	}
	if terminated, found, _ := unstructured.NestedMap(status, "state", "terminated"); found &&
		fmt.Sprint(terminated["exitCode"]) != "0" {
		return fmt.Sprintf("container %v exited with exit code %v", status["name"], terminated["exitCode"])
	}
	return ""
}
