package state

import (
	"context"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Bounds of the pods of a workload.
const (
	maxPods     = 50
	maxJobs     = 500 // that are read to find those of a CronJob
	maxLastJobs = 3   // of a CronJob, whose pods are included
)

// Pods returns the pods that the selector of a workload selects, at most 50. Those of a CronJob are the pods of its
// last Jobs.
func Pods(ctx context.Context, c client.Reader, workload *unstructured.Unstructured) ([]corev1.Pod, error) {
	selector, err := selectorOf(ctx, c, workload)
	if err != nil || selector == nil {
		return nil, err
	}
	var pods corev1.PodList
	err = c.List(ctx, &pods, client.InNamespace(workload.GetNamespace()),
		client.MatchingLabelsSelector{Selector: selector}, client.Limit(maxPods))
	return pods.Items, err
}

// selectorOf returns what selects the pods of a workload, or nil if it has none.
func selectorOf(ctx context.Context, c client.Reader, workload *unstructured.Unstructured) (labels.Selector, error) {
	if workload.GetKind() == "CronJob" {
		return selectorOfJobs(ctx, c, workload)
	}
	raw, found, err := unstructured.NestedMap(workload.Object, "spec", "selector")
	if !found || err != nil {
		return nil, nil //nolint:nilerr,nilnil // another kind, which has no pods
	}
	return toSelector(raw), nil
}

// toSelector returns the selector of a workload; nil if it is another kind, whose selector means something else.
func toSelector(raw map[string]any) labels.Selector {
	parsed := &metav1.LabelSelector{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, parsed); err != nil {
		return nil
	}
	selector, err := metav1.LabelSelectorAsSelector(parsed)
	if err != nil || selector.Empty() {
		return nil
	}
	return selector
}

// selectorOfJobs returns what selects the pods of the last Jobs of a CronJob; nil if it has none.
func selectorOfJobs(ctx context.Context, c client.Reader, cron client.Object) (labels.Selector, error) {
	var jobs batchv1.JobList
	if err := c.List(ctx, &jobs, client.InNamespace(cron.GetNamespace()), client.Limit(maxJobs)); err != nil {
		return nil, err
	}
	own := slices.DeleteFunc(jobs.Items, func(j batchv1.Job) bool { return !metav1.IsControlledBy(&j, cron) })
	slices.SortFunc(own, func(a, b batchv1.Job) int {
		return b.CreationTimestamp.Compare(a.CreationTimestamp.Time)
	})
	var names []string
	for _, j := range own[:min(len(own), maxLastJobs)] {
		names = append(names, j.Name)
	}
	if len(names) == 0 {
		return nil, nil //nolint:nilnil // no pods; in a request, labels.Nothing would select all pods
	}
	r, err := labels.NewRequirement(batchv1.JobNameLabel, selection.In, names)
	if err != nil {
		return nil, err
	}
	return labels.NewSelector().Add(*r), nil
}
