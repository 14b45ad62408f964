package state

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/cluster/health"
	"github.com/sluice-gitops/sluice/internal/model/lineage"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/ui/view"
)

// Bounds of a list of workloads.
const (
	workloadPage   = 500    // read at once
	maxPodsRead    = 10_000 // for restarts
	maxUsageBytes  = 16 << 20
	maxWorkloadRef = 20  // images of a workload
	maxImageBytes  = 512 // of one image
)

// WorkloadKinds are the kinds of workloads, with the versions of their APIs.
var WorkloadKinds = map[string]string{"Deployment": "apps/v1", "StatefulSet": "apps/v1", "DaemonSet": "apps/v1",
	"Job": "batch/v1", "CronJob": "batch/v1"}

// Workload is a workload that a Kustomization or a HelmRelease applied.
type Workload struct {
	ID          string          `json:"id"`
	Kind        string          `json:"kind"`
	Namespace   string          `json:"namespace"`
	Name        string          `json:"name"`
	Application string          `json:"application"` // ID
	State       reconcile.State `json:"state"`
	Message     string          `json:"message,omitempty"`
	Ready       int64           `json:"ready"` // replicas; of a Job completions, of a CronJob running Jobs
	Desired     int64           `json:"desired"`
	Images      []string        `json:"images,omitempty"`
	Schedule    string          `json:"schedule,omitempty"` // of a CronJob
	LastRun     string          `json:"lastRun,omitempty"`  // of a CronJob
	Usage

	selector labels.Selector
}

// Usage is what the pods of a workload are and use now.
type Usage struct {
	Pods        int       `json:"pods"`
	Restarts    int32     `json:"restarts"`
	RestartedAt time.Time `json:"restartedAt,omitzero"` // when a container last ended
	CPU         int64     `json:"cpu,omitempty"`        // in 1/1000 of a core; 0 if unknown
	Memory      int64     `json:"memory,omitempty"`     // bytes
}

// Workloads lists the workloads that objects of Sluice applied, in a namespace, or in all that the user may see.
func Workloads(ctx context.Context, c client.Reader, visible []*view.Item, only string) ([]*Workload, []string, error) {
	var found []*Workload
	notes, err := inNamespaces(visible, only, func(namespace string) error {
		for kind, version := range WorkloadKinds {
			err := eachWorkload(ctx, c, kind, version, namespace, func(o *unstructured.Unstructured) {
				if m := lineage.ManagerOf(o); m != nil {
					found = append(found, newWorkload(o, view.ID(m.Kind, m.Namespace, m.Name)))
				}
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	slices.SortFunc(found, func(a, b *Workload) int {
		return cmp.Or(slices.Index(reconcile.States, a.State)-slices.Index(reconcile.States, b.State),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
	})
	return slices.CompactFunc(found, func(a, b *Workload) bool { return a.ID == b.ID }), notes, err
}

func eachWorkload(ctx context.Context, c client.Reader, kind, version, namespace string,
	visit func(*unstructured.Unstructured)) error {
	for token := ""; ; {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(version)
		list.SetKind(kind + "List")
		err := c.List(ctx, list, client.InNamespace(namespace), client.Limit(workloadPage), client.Continue(token))
		if err != nil {
			return err
		}
		for i := range list.Items {
			visit(&list.Items[i])
		}
		if token = list.GetContinue(); token == "" {
			return nil
		}
	}
}

// states are the states of objects by their status of kstatus.
var states = map[string]reconcile.State{health.Current: reconcile.StateReady, health.Failed: reconcile.StateFailed,
	health.InProgress: reconcile.StateProgressing, health.Terminating: reconcile.StateWaiting}

func newWorkload(o *unstructured.Unstructured, application string) *Workload {
	w := &Workload{ID: view.ID(o.GetKind(), o.GetNamespace(), o.GetName()), Kind: o.GetKind(),
		Namespace: o.GetNamespace(), Name: o.GetName(), Application: application}
	status, message := health.Of(o)
	w.State = cmp.Or(states[status], reconcile.StateProgressing)
	if w.State != reconcile.StateReady {
		w.Message = excerpt.Bytes(message, maxHealthBytes)
	}
	number := func(byDefault int64, fields ...string) int64 {
		n, found, err := unstructured.NestedInt64(o.Object, fields...)
		if !found || err != nil {
			return byDefault
		}
		return n
	}
	template := []string{"spec", "template", "spec", "containers"}
	switch w.Kind {
	case "DaemonSet":
		w.Ready, w.Desired = number(0, "status", "numberReady"), number(0, "status", "desiredNumberScheduled")
	case "Job":
		w.Ready, w.Desired = number(0, "status", "succeeded"), number(1, "spec", "completions")
	case "CronJob":
		w.setSchedule(o)
		template = append([]string{"spec", "jobTemplate"}, template...)
	default:
		w.Ready, w.Desired = number(0, "status", "readyReplicas"), number(1, "spec", "replicas")
	}
	w.setImages(o, template)
	if raw, found, err := unstructured.NestedMap(o.Object, "spec", "selector"); found && err == nil {
		w.selector = toSelector(raw)
	}
	return w
}

func (w *Workload) setSchedule(o *unstructured.Unstructured) {
	w.Schedule, _, _ = unstructured.NestedString(o.Object, "spec", "schedule")
	w.LastRun, _, _ = unstructured.NestedString(o.Object, "status", "lastScheduleTime")
	active, _, _ := unstructured.NestedSlice(o.Object, "status", "active")
	w.Ready, w.Desired = int64(len(active)), int64(len(active))
	if suspended, _, _ := unstructured.NestedBool(o.Object, "spec", "suspend"); suspended {
		w.State = reconcile.StateSuspended
	}
}

func (w *Workload) setImages(o *unstructured.Unstructured, template []string) {
	containers, _, _ := unstructured.NestedSlice(o.Object, template...)
	for _, c := range containers[:min(len(containers), maxWorkloadRef)] {
		if fields, ok := c.(map[string]any); ok {
			if image, ok := fields["image"].(string); ok {
				w.Images = append(w.Images, excerpt.Bytes(image, maxImageBytes))
			}
		}
	}
}

// Matches reports whether the workload contains all words, which are in lower case.
func (w *Workload) Matches(words []string) bool {
	text := strings.ToLower(strings.Join(append([]string{w.ID, w.Application, w.Message}, w.Images...), " "))
	return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) })
}

// AddUsage adds what the pods of workloads are, and what they use where metrics.k8s.io is served, as far as the user
// may see it. It returns whether usage is known.
func AddUsage(ctx context.Context, c client.Reader, clients kubernetes.Interface, all []*Workload) (bool, error) {
	byNamespace := map[string][]*Workload{}
	for _, w := range all {
		if w.selector != nil {
			byNamespace[w.Namespace] = append(byNamespace[w.Namespace], w)
		}
	}
	reads, isServed, isKnown := 0, true, false
	for namespace, workloads := range byNamespace {
		var used map[string]Usage
		if isServed {
			used, isServed = usageOf(ctx, clients, namespace)
			isKnown = isKnown || isServed
		}
		for token := ""; reads < maxPodsRead; {
			var pods corev1.PodList
			err := c.List(ctx, &pods, client.InNamespace(namespace), client.Limit(workloadPage),
				client.Continue(token))
			if apierrors.IsForbidden(err) {
				break
			}
			if err != nil {
				return false, err
			}
			reads += len(pods.Items)
			addPods(workloads, pods.Items, used)
			if token = pods.Continue; token == "" {
				break
			}
		}
	}
	return isKnown, nil
}

func addPods(workloads []*Workload, pods []corev1.Pod, used map[string]Usage) {
	for i := range pods {
		p := &pods[i]
		for _, w := range workloads {
			if !w.selector.Matches(labels.Set(p.Labels)) || !isOf(p, w.Kind) {
				continue
			}
			w.Pods++
			w.CPU += used[p.Name].CPU
			w.Memory += used[p.Name].Memory
			for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
				w.Restarts += s.RestartCount
				if t := s.LastTerminationState.Terminated; t != nil && t.FinishedAt.After(w.RestartedAt) {
					w.RestartedAt = t.FinishedAt.Time
				}
			}
			break
		}
	}
}

// isOf reports whether the controller of a pod is what workloads of a kind create: selectors of different kinds can
// match the same labels.
func isOf(p *corev1.Pod, kind string) bool {
	owner := metav1.GetControllerOf(p)
	if owner == nil {
		return false
	}
	if kind == "Deployment" {
		return owner.Kind == "ReplicaSet"
	}
	return owner.Kind == kind
}

// podMetrics is a list of PodMetrics of metrics.k8s.io/v1beta1.
type podMetrics struct {
	Items []struct {
		Metadata   struct{ Name string }
		Containers []struct{ Usage corev1.ResourceList }
	}
}

// usageOf returns what the pods of a namespace use, by name. It returns false if metrics.k8s.io is not served, or if
// the user may not read it.
func usageOf(ctx context.Context, clients kubernetes.Interface, namespace string) (map[string]Usage, bool) {
	stream, err := clients.Discovery().RESTClient().Get().
		AbsPath("/apis/metrics.k8s.io/v1beta1/namespaces", namespace, "pods").Stream(ctx)
	if err != nil {
		return nil, false
	}
	defer stream.Close()
	var list podMetrics
	if err := json.NewDecoder(io.LimitReader(stream, maxUsageBytes)).Decode(&list); err != nil {
		return nil, false
	}
	used := map[string]Usage{}
	for _, p := range list.Items {
		var u Usage
		for _, c := range p.Containers {
			u.CPU += c.Usage.Cpu().MilliValue()
			u.Memory += c.Usage.Memory().Value()
		}
		used[p.Metadata.Name] = u
	}
	return used, true
}
