package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sluice-gitops/sluice/playground/cluster"
)

func TestClusterIsAlive(t *testing.T) {
	p := launch(t)
	a := &alive{p.config(t), p.client(t)}
	for what, check := range map[string]func(*testing.T){
		"it states the version of Kubernetes":                    a.version,
		"a Deployment becomes available":                         a.deployment,
		"a DaemonSet has a pod on each node that it selects":     a.daemonSet,
		"a StatefulSet has pods and bound claims":                a.statefulSet,
		"a Job completes":                                        a.job,
		"a Job fails on request":                                 a.failedJob,
		"pods fail on request":                                   a.failures,
		"a delay comes before a pod is ready":                    a.delay,
		"a Service has endpoints, and a load balancer's address": a.service,
		"a deleted namespace goes with all that is in it":        a.namespace,
		"a deleted namespace leaves nothing of any kind":         a.everyKind,
		"an abandoned namespace goes in spite of finalizers":     a.abandoned,
		"an object goes with its owner, custom ones as well":     a.owners,
		"a service account may do what its roles say":            a.rbac,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			check(t)
		})
	}
}

type alive struct {
	config *rest.Config
	client kubernetes.Interface
}

func (a *alive) newNamespace(t *testing.T) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	ns, err := a.client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return ns.Name
}

// must takes what a client returned.
func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func pods(restart corev1.RestartPolicy, annotations map[string]string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "x"}, Annotations: annotations},
		Spec: corev1.PodSpec{RestartPolicy: restart,
			Containers: []corev1.Container{{Name: "main", Image: "example/x:1"}}},
	}
}

var (
	selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}
	named    = metav1.ObjectMeta{Name: "x"}
	create   = metav1.CreateOptions{}
	get      = metav1.GetOptions{}
	list     = metav1.ListOptions{}
)

func (a *alive) version(t *testing.T) {
	v, err := a.client.Discovery().ServerVersion()
	if err != nil || v.Major != "1" || !strings.HasPrefix(v.GitVersion, "v1."+v.Minor+".") {
		t.Errorf("got %+v, %v", v, err)
	}
}

func (a *alive) deployment(t *testing.T) {
	ns, replicas := a.newNamespace(t), int32(3)
	d := &appsv1.Deployment{ObjectMeta: named, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: selector, Template: pods(corev1.RestartPolicyAlways, nil),
	}}
	must[*appsv1.Deployment](t)(a.client.AppsV1().Deployments(ns).Create(t.Context(), d, create))
	eventually(t, func(ctx context.Context) error {
		d, err := a.client.AppsV1().Deployments(ns).Get(ctx, "x", get)
		if err != nil || d.Status.AvailableReplicas != replicas {
			return fmt.Errorf("%+v, %w", d.Status, err)
		}
		return nil
	})
}

func (a *alive) daemonSet(t *testing.T) {
	ns, template := a.newNamespace(t), pods(corev1.RestartPolicyAlways, nil)
	template.Spec.Affinity = &corev1.Affinity{
		NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{"node-1", "node-3"}},
			}}},
		}}}
	d := &appsv1.DaemonSet{ObjectMeta: named, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template}}
	must[*appsv1.DaemonSet](t)(a.client.AppsV1().DaemonSets(ns).Create(t.Context(), d, create))
	eventually(t, func(ctx context.Context) error {
		d, err := a.client.AppsV1().DaemonSets(ns).Get(ctx, "x", get)
		if err != nil || d.Status.NumberReady != 2 || d.Status.DesiredNumberScheduled != 2 {
			return fmt.Errorf("%+v, %w", d.Status, err)
		}
		return nil
	})
	var nodes []string
	for _, pod := range must[*corev1.PodList](t)(a.client.CoreV1().Pods(ns).List(t.Context(), list)).Items {
		nodes = append(nodes, pod.Spec.NodeName)
	}
	if slices.Sort(nodes); !slices.Equal(nodes, []string{"node-1", "node-3"}) {
		t.Errorf("its pods are on %q", nodes)
	}
}

func (a *alive) statefulSet(t *testing.T) {
	ns, replicas := a.newNamespace(t), int32(2)
	s := &appsv1.StatefulSet{ObjectMeta: named, Spec: appsv1.StatefulSetSpec{
		Replicas: &replicas, Selector: selector, Template: pods(corev1.RestartPolicyAlways, nil),
		VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			}}},
	}}
	must[*appsv1.StatefulSet](t)(a.client.AppsV1().StatefulSets(ns).Create(t.Context(), s, create))
	eventually(t, func(ctx context.Context) error {
		s, err := a.client.AppsV1().StatefulSets(ns).Get(ctx, "x", get)
		if err != nil || s.Status.ReadyReplicas != replicas {
			return fmt.Errorf("%+v, %w", s.Status, err)
		}
		claim, err := a.client.CoreV1().PersistentVolumeClaims(ns).Get(ctx, "data-x-1", get)
		if err != nil || claim.Status.Phase != corev1.ClaimBound {
			return fmt.Errorf("%+v, %w", claim.Status, err)
		}
		return nil
	})
}

func (a *alive) startJob(t *testing.T, annotations map[string]string) (namespace string) {
	t.Helper()
	ns, none := a.newNamespace(t), int32(0)
	j := &batchv1.Job{ObjectMeta: named, Spec: batchv1.JobSpec{BackoffLimit: &none,
		Template: pods(corev1.RestartPolicyNever, annotations)}}
	must[*batchv1.Job](t)(a.client.BatchV1().Jobs(ns).Create(t.Context(), j, create))
	return ns
}

func (a *alive) waitJob(t *testing.T, ns string, want batchv1.JobConditionType) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		j, err := a.client.BatchV1().Jobs(ns).Get(ctx, "x", get)
		if err != nil {
			return err
		}
		for _, c := range j.Status.Conditions {
			if c.Type == want && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("%+v", j.Status)
	})
}

func (a *alive) job(t *testing.T) { a.waitJob(t, a.startJob(t, nil), batchv1.JobComplete) }

func (a *alive) failedJob(t *testing.T) {
	a.waitJob(t, a.startJob(t, map[string]string{cluster.FailAnnotation: "job-failed"}), batchv1.JobFailed)
}

func (a *alive) failures(t *testing.T) {
	waits := func(reason string, restarts int32) func(*corev1.PodStatus) bool {
		return func(s *corev1.PodStatus) bool {
			return len(s.ContainerStatuses) == 1 && s.ContainerStatuses[0].State.Waiting != nil &&
				s.ContainerStatuses[0].State.Waiting.Reason == reason && s.ContainerStatuses[0].RestartCount == restarts
		}
	}
	for fail, c := range map[string]struct {
		event string
		holds func(*corev1.PodStatus) bool
	}{
		"image-pull": {"Failed", waits("ImagePullBackOff", 0)},
		"crash-loop": {"BackOff", waits("CrashLoopBackOff", 6)},
		"unheard-of": {"Failed", waits("CreateContainerConfigError", 0)},
		"pending": {"FailedScheduling", func(s *corev1.PodStatus) bool {
			return s.Phase == corev1.PodPending && len(s.Conditions) == 1 &&
				s.Conditions[0].Reason == corev1.PodReasonUnschedulable
		}},
		"not-ready": {"", func(s *corev1.PodStatus) bool {
			return s.Phase == corev1.PodRunning && s.ContainerStatuses[0].State.Running != nil &&
				!s.ContainerStatuses[0].Ready
		}},
	} {
		t.Run(fail, func(t *testing.T) {
			ns, template := a.newNamespace(t),
				pods(corev1.RestartPolicyAlways, map[string]string{cluster.FailAnnotation: fail})
			pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
			pod.Name = "x"
			eventually(t, func(ctx context.Context) error { // its service account takes a moment
				_, err := a.client.CoreV1().Pods(ns).Create(ctx, pod, create)
				return err
			})
			eventually(t, func(ctx context.Context) error {
				pod, err := a.client.CoreV1().Pods(ns).Get(ctx, "x", get)
				if err != nil || !c.holds(&pod.Status) {
					return fmt.Errorf("%+v, %w", pod.Status, err)
				}
				events, err := a.client.CoreV1().Events(ns).
					List(ctx, metav1.ListOptions{FieldSelector: "type=Warning,reason=" + c.event})
				if c.event != "" && (err != nil || len(events.Items) == 0) {
					return fmt.Errorf("no event %s, %w", c.event, err)
				}
				return nil
			})
		})
	}
}

func (a *alive) delay(t *testing.T) {
	ns, template := a.newNamespace(t), pods(corev1.RestartPolicyAlways,
		map[string]string{cluster.DelayAnnotation: "5s"})
	w, err := a.client.CoreV1().Pods(ns).Watch(t.Context(), list)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	d := &appsv1.ReplicaSet{ObjectMeta: named, Spec: appsv1.ReplicaSetSpec{Selector: selector, Template: template}}
	must[*appsv1.ReplicaSet](t)(a.client.AppsV1().ReplicaSets(ns).Create(t.Context(), d, create))
	var seen []string
	for e := range w.ResultChan() {
		pod, ok := e.Object.(*corev1.Pod)
		if !ok || pod.Status.Phase != corev1.PodRunning {
			continue
		}
		ready := fmt.Sprint("ready: ", pod.Status.ContainerStatuses[0].Ready)
		if seen = append(seen, ready); ready == "ready: true" {
			break
		}
	}
	if !slices.Equal(slices.Compact(seen), []string{"ready: false", "ready: true"}) {
		t.Errorf("seen of the running pod: %q", seen)
	}
}

func (a *alive) service(t *testing.T) {
	ns := a.newNamespace(t)
	s := &corev1.Service{ObjectMeta: named, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, Selector: selector.MatchLabels, Ports: []corev1.ServicePort{{Port: 80}},
	}}
	must[*corev1.Service](t)(a.client.CoreV1().Services(ns).Create(t.Context(), s, create))
	r := &appsv1.ReplicaSet{ObjectMeta: named,
		Spec: appsv1.ReplicaSetSpec{Selector: selector, Template: pods(corev1.RestartPolicyAlways, nil)}}
	must[*appsv1.ReplicaSet](t)(a.client.AppsV1().ReplicaSets(ns).Create(t.Context(), r, create))
	eventually(t, func(ctx context.Context) error {
		s, err := a.client.CoreV1().Services(ns).Get(ctx, "x", get)
		if err != nil || len(s.Status.LoadBalancer.Ingress) != 1 {
			return fmt.Errorf("%+v, %w", s.Status, err)
		}
		slices, err := a.client.DiscoveryV1().EndpointSlices(ns).List(ctx, list)
		if err != nil || len(slices.Items) != 1 || len(slices.Items[0].Endpoints) != 1 {
			return fmt.Errorf("%+v, %w", slices.Items, err)
		}
		return nil
	})
}
