package cluster

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// kubelet words the status of one pod as the real one would.
type kubelet struct {
	pod     *corev1.Pod
	host    string // address of the node
	started metav1.Time
}

// running is a pod whose containers run; they are ready, or not yet.
func (k kubelet) running(ready bool) view {
	return view{status: k.status(corev1.PodRunning, ready, func(s *corev1.ContainerStatus) {
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: k.started}
	})}
}

// ended is a pod that ran to its end.
func (k kubelet) ended(phase corev1.PodPhase, code int32, reason string) view {
	return view{status: k.status(phase, false,
		func(s *corev1.ContainerStatus) { s.State.Terminated = k.exit(code, reason) })}
}

// imagePull is a pod whose images cannot be had.
func (k kubelet) imagePull() view {
	image := k.pod.Spec.Containers[0].Image
	return view{
		status: k.status(corev1.PodPending, false,
			func(s *corev1.ContainerStatus) { k.waiting(s, "ImagePullBackOff", pullMessage(s.Image)) }),
		reason:  "Failed",
		message: pullMessage(image),
	}
}

func pullMessage(image string) string {
	return fmt.Sprintf("Back-off pulling image %q: ErrImagePull: %s: not found", image, image)
}

// crashLoop is a pod whose containers end as soon as they start.
func (k kubelet) crashLoop() view {
	message := func(container string) string {
		return fmt.Sprintf("back-off 5m0s restarting failed container=%s pod=%s_%s(%s)", container, k.pod.Name,
			k.pod.Namespace, k.pod.UID)
	}
	return view{
		status: k.status(corev1.PodRunning, false, func(s *corev1.ContainerStatus) {
			k.waiting(s, "CrashLoopBackOff", message(s.Name))
			s.RestartCount = 6
			s.LastTerminationState.Terminated = k.exit(1, "Error")
		}),
		reason:  "BackOff",
		message: message(k.pod.Spec.Containers[0].Name),
	}
}

// refused is a pod that asks for a behaviour that there is not.
func (k kubelet) refused(annotation, value, want string) view {
	message := fmt.Sprintf("annotation %s: %q is not known: give %s", annotation, value, want)
	return view{
		status: k.status(corev1.PodPending, false,
			func(s *corev1.ContainerStatus) { k.waiting(s, "CreateContainerConfigError", message) }),
		reason:  "Failed",
		message: message,
	}
}

func (k kubelet) waiting(s *corev1.ContainerStatus, reason, message string) {
	s.State.Waiting = &corev1.ContainerStateWaiting{Reason: reason, Message: message}
}

func (k kubelet) exit(code int32, reason string) *corev1.ContainerStateTerminated {
	return &corev1.ContainerStateTerminated{
		ExitCode: code, Reason: reason, StartedAt: k.started, FinishedAt: metav1.NewTime(k.started.Add(jobTime)).
				Rfc3339Copy(),
	}
}

// status is a pod's, with the state of its containers as set says. Init containers have ended well, unless
// they are sidecars.
func (k kubelet) status(phase corev1.PodPhase, ready bool, set func(*corev1.ContainerStatus)) corev1.PodStatus {
	ip := podIP(k.pod, k.host)
	started := k.started
	status := corev1.PodStatus{
		Phase: phase, StartTime: &started, ObservedGeneration: k.pod.Generation,
		HostIP: k.host, HostIPs: []corev1.HostIP{{IP: k.host}}, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
	}
	for _, c := range k.pod.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			status.InitContainerStatuses = append(status.InitContainerStatuses, k.container(c, ready, set))
			continue
		}
		status.InitContainerStatuses = append(status.InitContainerStatuses,
			k.container(c, true, func(s *corev1.ContainerStatus) {
				s.State.Terminated = k.exit(0, "Completed")
			}))
	}
	for _, c := range k.pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, k.container(c, ready, set))
	}
	for _, c := range []struct {
		of   corev1.PodConditionType
		true bool
	}{{corev1.PodScheduled, true}, {corev1.PodInitialized, true}, {corev1.ContainersReady, ready},
		{corev1.PodReady, ready}} {
		status.Conditions = append(status.Conditions, k.condition(c.of, c.true, phase))
	}
	return status
}

func (k kubelet) container(c corev1.Container, ready bool, set func(*corev1.ContainerStatus)) corev1.ContainerStatus {
	s := corev1.ContainerStatus{Name: c.Name, Image: c.Image, Ready: ready}
	set(&s)
	started := s.State.Running != nil
	s.Started = &started
	if s.State.Waiting == nil {
		s.ImageID, s.ContainerID = "simulated://"+c.Image, fmt.Sprintf("simulated://%s/%s", k.pod.UID, c.Name)
	}
	return s
}

func (k kubelet) condition(of corev1.PodConditionType, is bool, phase corev1.PodPhase) corev1.PodCondition {
	c := corev1.PodCondition{Type: of, Status: corev1.ConditionTrue, ObservedGeneration: k.pod.Generation}
	if !is {
		c.Status, c.Reason = corev1.ConditionFalse, "ContainersNotReady"
		c.Message = "containers with unready status"
		if phase == corev1.PodSucceeded {
			c.Reason, c.Message = "PodCompleted", ""
		}
	}
	c.LastTransitionTime = transition(k.pod, c)
	return c
}
