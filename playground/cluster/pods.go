package cluster

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Annotations by which a pod asks for a behaviour.
const (
	FailAnnotation  = "playground.sluice.dev/fail"
	DelayAnnotation = "playground.sluice.dev/delay"
)

// Values of [FailAnnotation].
const (
	failImagePull = "image-pull"
	failCrashLoop = "crash-loop"
	failPending   = "pending"
	failNotReady  = "not-ready"
	failJob       = "job-failed"
)

// jobTime is how long a pod takes that runs to its end.
const jobTime = 500 * time.Millisecond

// pod takes a pod one step further.
func (s *simulator) pod(ctx context.Context, pod *corev1.Pod) (time.Duration, error) {
	switch {
	case pod.DeletionTimestamp != nil:
		s.started.Delete(pod.UID)
		if pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0 {
			return 0, nil // a finalizer holds it
		}
		now := int64(0)
		return 0, s.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &pod.UID},
		})
	case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		s.started.Delete(pod.UID)
		return 0, nil
	case pod.Spec.NodeName == "":
		return s.schedule(ctx, pod)
	}
	host := nodeSubnet + "2"
	if node, err := s.nodes.Get(pod.Spec.NodeName); err == nil && len(node.Status.Addresses) > 0 {
		host = node.Status.Addresses[0].Address
	}
	now := time.Now()
	since, _ := s.started.LoadOrStore(pod.UID, now)
	next, again := run(pod, host, now.Sub(since.(time.Time)), now)
	return again, s.report(ctx, pod, next)
}

// report writes a status that differs from the pod's, and records an event about its problem.
func (s *simulator) report(ctx context.Context, pod *corev1.Pod, v view) error {
	v.status.QOSClass = pod.Status.QOSClass
	v.status.Conditions = append(v.status.Conditions, foreignConditions(pod)...)
	if equality.Semantic.DeepEqual(pod.Status, v.status) {
		return nil
	}
	pod = pod.DeepCopy()
	pod.Status = v.status
	if _, err := s.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
		return err
	}
	if v.reason != "" {
		s.events.Event(pod, corev1.EventTypeWarning, v.reason, v.message)
	}
	return nil
}

// foreignConditions are those that others than the kubelet and the scheduler wrote.
func foreignConditions(pod *corev1.Pod) []corev1.PodCondition {
	var foreign []corev1.PodCondition
	for _, c := range pod.Status.Conditions {
		switch c.Type {
		case corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady:
		default:
			foreign = append(foreign, c)
		}
	}
	return foreign
}

// view is what a kubelet would say of a pod: its status, and the reason and message of what is wrong with it.
type view struct {
	status          corev1.PodStatus
	reason, message string
}

// run returns the view of a pod at a time, bound to a host for a while, and when to look again; 0 for when it changes.
func run(pod *corev1.Pod, host string, age time.Duration, now time.Time) (view, time.Duration) {
	started := metav1.NewTime(now).Rfc3339Copy() // as it is stored, in whole seconds
	if pod.Status.StartTime != nil {
		started = *pod.Status.StartTime
	}
	k := kubelet{pod: pod, host: host, started: started}
	fail, finite := pod.Annotations[FailAnnotation], pod.Spec.RestartPolicy != corev1.RestartPolicyAlways
	delay, err := time.ParseDuration(pod.Annotations[DelayAnnotation])
	if text := pod.Annotations[DelayAnnotation]; err != nil && text != "" {
		return k.refused(DelayAnnotation, text, "a duration such as 2s"), 0
	}
	if finite {
		delay = max(delay, jobTime)
	}
	left := delay - age
	switch {
	case fail == failImagePull:
		return k.imagePull(), 0
	case fail == failCrashLoop:
		return k.crashLoop(), 0
	case fail == failJob && !finite:
		return k.refused(FailAnnotation, fail, "another value: this pod does not run to an end"), 0
	case fail != "" && fail != failNotReady && fail != failJob:
		return k.refused(FailAnnotation, fail,
			strings.Join([]string{failImagePull, failCrashLoop, failPending, failNotReady, failJob}, ", ")), 0
	case fail == failNotReady || left > 0:
		return k.running(false), max(left, 0)
	case fail == failJob:
		return k.ended(corev1.PodFailed, 1, "Error"), 0
	case finite:
		return k.ended(corev1.PodSucceeded, 0, "Completed"), 0
	default:
		return k.running(true), 0
	}
}

// unschedulable is the view of a pod that no node takes.
func unschedulable(pod *corev1.Pod) view {
	c := corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		Message: "0 nodes are available: none matches what the pod asks for.", ObservedGeneration: pod.Generation,
	}
	c.LastTransitionTime = transition(pod, c)
	return view{
		status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{c},
			ObservedGeneration: pod.Generation},
		reason:  "FailedScheduling",
		message: c.Message,
	}
}

// podIP is an address in the pods' network, or the node's for a pod that uses its network.
func podIP(pod *corev1.Pod, host string) string {
	if pod.Spec.HostNetwork {
		return host
	}
	v := number(pod.UID)
	return fmt.Sprintf("10.%d.%d.%d", 244+(v>>24)%10, (v>>8)&0xff, 1+v%253)
}

// transition keeps the time of a condition that did not change.
func transition(pod *corev1.Pod, c corev1.PodCondition) metav1.Time {
	for _, old := range pod.Status.Conditions {
		if old.Type == c.Type && old.Status == c.Status {
			return old.LastTransitionTime
		}
	}
	return metav1.Now()
}
