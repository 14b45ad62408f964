package cluster

import (
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// jobTime is how long a pod of a Job takes.
const jobTime = 500 * time.Millisecond

// cut splits "kind/namespace/name".
func cut(key string) (kind, name string) {
	kind, name, _ = strings.Cut(key, "/")
	return kind, name
}

// next returns the status that a bound pod has at a time, and when to look again; 0 for when it changes.
func next(pod *corev1.Pod, now time.Time) (*corev1.PodStatus, time.Duration) {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return nil, 0
	}
	started := metav1.NewTime(now)
	if pod.Status.StartTime != nil {
		started = *pod.Status.StartTime
	}
	status := &corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: &started, HostIP: "172.18.0.2", PodIP: podIP(pod),
		HostIPs: []corev1.HostIP{{IP: "172.18.0.2"}}, PodIPs: []corev1.PodIP{{IP: podIP(pod)}},
		ObservedGeneration: pod.Generation,
	}
	delay, _ := time.ParseDuration(pod.Annotations[DelayAnnotation])
	finite := ownedByJob(pod)
	if finite {
		delay = max(delay, jobTime)
	}
	left := started.Add(delay).Sub(now)
	fail := pod.Annotations[FailAnnotation]
	switch {
	case fail == "image-pull":
		status.Phase = corev1.PodPending
		return withContainers(pod, status, false, waiting("ImagePullBackOff", "Back-off pulling image %q: not found")), 0
	case fail == "crash-loop":
		return withContainers(pod, status, false, waiting("CrashLoopBackOff", "back-off 10s restarting failed container of image %q")), 0
	case left > 0:
		return withContainers(pod, status, false, running(started)), left
	case fail == "not-ready":
		return withContainers(pod, status, false, running(started)), 0
	case finite && fail == "job-failed":
		status.Phase = corev1.PodFailed
		return withContainers(pod, status, false, terminated(started, 1, "Error")), 0
	case finite:
		status.Phase = corev1.PodSucceeded
		return withContainers(pod, status, false, terminated(started, 0, "Completed")), 0
	default:
		return withContainers(pod, status, true, running(started)), 0
	}
}

func ownedByJob(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "Job"
}

type containerState func(image string) corev1.ContainerState

func waiting(reason, format string) containerState {
	return func(image string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: fmt.Sprintf(format, image)}}
	}
}

func running(since metav1.Time) containerState {
	return func(string) corev1.ContainerState {
		return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: since}}
	}
}

func terminated(since metav1.Time, code int32, reason string) containerState {
	return func(string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: code, Reason: reason, StartedAt: since, FinishedAt: metav1.NewTime(since.Add(jobTime)),
		}}
	}
}

func withContainers(pod *corev1.Pod, status *corev1.PodStatus, ready bool, state containerState) *corev1.PodStatus {
	for _, c := range pod.Spec.Containers {
		s := state(c.Image)
		started := s.Running != nil
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, ImageID: "simulated://" + c.Image, Ready: ready, Started: &started, State: s,
		})
	}
	is := func(b bool) corev1.ConditionStatus {
		if b {
			return corev1.ConditionTrue
		}
		return corev1.ConditionFalse
	}
	for _, c := range []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
		{Type: corev1.PodInitialized, Status: corev1.ConditionTrue},
		{Type: corev1.ContainersReady, Status: is(ready)},
		{Type: corev1.PodReady, Status: is(ready)},
	} {
		c.LastTransitionTime = transition(pod, c)
		c.ObservedGeneration = pod.Generation
		status.Conditions = append(status.Conditions, c)
	}
	return status
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

// unschedulable is the status of a pod that no node takes.
func unschedulable() *corev1.PodStatus {
	return &corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		Message: "0 nodes are available: insufficient cpu.",
	}}}
}

func podIP(pod *corev1.Pod) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(pod.UID)) // never fails
	v := h.Sum32()
	return fmt.Sprintf("10.%d.%d.%d", 244+v>>24%10, v>>8&0xff, 1+v%253)
}

func sameStatus(a, b *corev1.PodStatus) bool {
	x, y := a.DeepCopy(), b.DeepCopy()
	x.QOSClass, y.QOSClass = "", ""
	return equality.Semantic.DeepEqual(x, y)
}
