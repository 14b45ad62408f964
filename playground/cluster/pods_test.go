package cluster

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func pod(restart corev1.RestartPolicy, annotations ...string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "ns", UID: "1234", Generation: 3,
			Annotations: map[string]string{}},
		Spec: corev1.PodSpec{RestartPolicy: restart,
			Containers: []corev1.Container{{Name: "main", Image: "example/x:1"}}},
	}
	for i := 0; i < len(annotations); i += 2 {
		p.Annotations[annotations[i]] = annotations[i+1]
	}
	return p
}

func TestPodsBehaveAsTheyAsk(t *testing.T) {
	const always, never = corev1.RestartPolicyAlways, corev1.RestartPolicyNever
	for what, c := range map[string]struct {
		pod   *corev1.Pod
		age   time.Duration
		phase corev1.PodPhase
		ready bool
		state string // of its container: running, the reason of waiting, or the reason of its end
		again time.Duration
		event string
	}{
		"a pod is ready at once": {pod(always), 0, "Running", true, "running", 0, ""},
		"a delayed pod runs, and is not ready": {pod(always, DelayAnnotation, "2s"), time.Second, "Running", false,
			"running", time.Second, ""},
		"a delayed pod becomes ready": {pod(always, DelayAnnotation, "2s"), 2 * time.Second, "Running",
			true, "running", 0, ""},
		"a pod that ends runs first": {pod(never), 0, "Running", false, "running", jobTime, ""},
		"a pod that ends succeeds":   {pod(never), jobTime, "Succeeded", false, "Completed", 0, ""},
		"a longer one takes its time": {pod(never, DelayAnnotation, "5s"), jobTime, "Running", false,
			"running", 5*time.Second - jobTime, ""},
		"a pod that ends fails on request": {pod(never, FailAnnotation, "job-failed"), jobTime, "Failed", false,
			"Error", 0, ""},
		"a pod that does not end cannot fail so": {pod(always, FailAnnotation, "job-failed"), 0, "Pending", false,
			"CreateContainerConfigError", 0, "Failed"},
		"an image cannot be pulled": {pod(always, FailAnnotation, "image-pull"), 0, "Pending", false,
			"ImagePullBackOff", 0, "Failed"},
		"a container ends again and again": {pod(always, FailAnnotation, "crash-loop"), 0, "Running", false,
			"CrashLoopBackOff", 0, "BackOff"},
		"a pod is never ready": {pod(always, FailAnnotation, "not-ready"), time.Hour, "Running",
			false, "running", 0, ""},
		"unknown failure is reported": {pod(always, FailAnnotation, "bad-luck"), 0, "Pending", false,
			"CreateContainerConfigError", 0, "Failed"},
		"invalid delay is reported": {pod(always, DelayAnnotation, "soon"), 0, "Pending", false,
			"CreateContainerConfigError", 0, "Failed"},
		"a delay that is negative is none at all": {pod(always, DelayAnnotation, "-1s"), 0, "Running", true,
			"running", 0, ""},
	} {
		t.Run(what, func(t *testing.T) {
			got, again := run(c.pod, "172.18.0.2", c.age, time.Now())
			container := got.status.ContainerStatuses[0]
			if got.status.Phase != c.phase || container.Ready != c.ready || again != c.again || got.reason != c.event {
				t.Errorf("phase %s, ready %t, again %s, event %q; want %+v", got.status.Phase, container.Ready, again,
					got.reason, c)
			}
			if state := word(container.State); state != c.state {
				t.Errorf("its container is %s, want %s", state, c.state)
			}
			for _, condition := range got.status.Conditions {
				if is := condition.Status == corev1.ConditionTrue; condition.Type == corev1.PodReady && is != c.ready {
					t.Errorf("%+v, want %t", condition, c.ready)
				}
			}
			if got.status.ObservedGeneration != 3 || got.status.PodIP == "" || got.status.StartTime == nil {
				t.Errorf("incomplete: %+v", got.status)
			}
		})
	}
}

func word(s corev1.ContainerState) string {
	switch {
	case s.Waiting != nil:
		return s.Waiting.Reason
	case s.Terminated != nil:
		return s.Terminated.Reason
	default:
		return "running"
	}
}

func TestAStatusThatIsReportedStays(t *testing.T) {
	p := pod(corev1.RestartPolicyAlways)
	first, _ := run(p, "172.18.0.2", 0, time.Now())
	p.Status = first.status
	later, _ := run(p, "172.18.0.2", time.Hour, time.Now().Add(time.Hour))
	if !later.status.StartTime.Equal(first.status.StartTime) {
		t.Errorf("started at %s, then at %s", first.status.StartTime, later.status.StartTime)
	}
	for i, c := range later.status.Conditions {
		if before := first.status.Conditions[i]; c != before {
			t.Errorf("%+v became %+v", before, c)
		}
	}
}

func TestInitContainersHaveEndedAndSidecarsRun(t *testing.T) {
	sidecar := corev1.ContainerRestartPolicyAlways
	p := pod(corev1.RestartPolicyAlways)
	p.Spec.InitContainers = []corev1.Container{{Name: "once"}, {Name: "beside", RestartPolicy: &sidecar}}
	got, _ := run(p, "172.18.0.2", 0, time.Now())
	if s := got.status.InitContainerStatuses; len(s) != 2 || word(s[0].State) != "Completed" ||
		word(s[1].State) != "running" {
		t.Errorf("%+v", s)
	}
}

func TestConditionsOfOthersAreKept(t *testing.T) {
	p := pod(corev1.RestartPolicyAlways)
	p.Status.Conditions = []corev1.PodCondition{{Type: "example.com/gate", Status: corev1.ConditionTrue},
		{Type: corev1.PodReady}}
	if kept := foreignConditions(p); len(kept) != 1 || kept[0].Type != "example.com/gate" {
		t.Errorf("kept %+v", kept)
	}
}

func TestPodsOnTheNodesNetworkHaveItsAddress(t *testing.T) {
	p := pod(corev1.RestartPolicyAlways)
	if ip := podIP(p, "172.18.0.2"); !strings.HasPrefix(ip, "10.") {
		t.Errorf("address %s", ip)
	}
	p.Spec.HostNetwork = true
	if ip := podIP(p, "172.18.0.2"); ip != "172.18.0.2" {
		t.Errorf("address %s", ip)
	}
}

func TestSocketsHaveShortPaths(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 100))
	t.Setenv("TMPDIR", long)
	path, remove, err := socketPath(long)
	if err == nil {
		remove()
		t.Fatalf("it took the temporary directory %s, which is not there", path)
	}
	t.Setenv("TMPDIR", t.TempDir())
	if path, remove, err = socketPath(long); err != nil || len(path) > socketLength {
		t.Errorf("%s, %v", path, err)
	}
	remove()
	t.Setenv("TMPDIR", "")
	if path, remove, err = socketPath("/short"); err != nil || path != "/short/etcd.sock" {
		t.Errorf("%s, %v", path, err)
	}
	remove()
}
