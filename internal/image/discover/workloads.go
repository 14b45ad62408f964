package discover

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/image/discover/plan"
)

// page is how many workloads are listed at once.
const page = 250

// kinds are the workloads that are looked at. Pods and what else controllers make of them are not.
var kinds = map[schema.GroupVersionKind]func() client.ObjectList{
	appsv1.SchemeGroupVersion.WithKind("Deployment"):  func() client.ObjectList { return &appsv1.DeploymentList{} },
	appsv1.SchemeGroupVersion.WithKind("StatefulSet"): func() client.ObjectList { return &appsv1.StatefulSetList{} },
	appsv1.SchemeGroupVersion.WithKind("DaemonSet"):   func() client.ObjectList { return &appsv1.DaemonSetList{} },
	batchv1.SchemeGroupVersion.WithKind("CronJob"):    func() client.ObjectList { return &batchv1.CronJobList{} },
}

// workloads reads those of a namespace.
func (d *Discovery) workloads(ctx context.Context, namespace string) ([]plan.Workload, error) {
	var all []plan.Workload
	for gvk, list := range kinds {
		for next := ""; ; {
			found := list()
			if err := d.Workloads.List(ctx, found, client.InNamespace(namespace), client.Limit(page),
				client.Continue(next)); err != nil {
				return nil, err
			}
			all = append(all, of(gvk, found)...)
			if next = found.GetContinue(); next == "" {
				break
			}
		}
	}
	return all, nil
}

// of reads the workloads of a list; those that go are left out.
func of(gvk schema.GroupVersionKind, list client.ObjectList) []plan.Workload {
	var all []plan.Workload
	add := func(o metav1.ObjectMeta, pod corev1.PodSpec) {
		if o.DeletionTimestamp.IsZero() {
			owner := metav1.OwnerReference{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Name: o.Name,
				UID: o.UID}
			all = append(all, plan.Workload{Owner: owner, Annotations: o.Annotations, Pod: pod})
		}
	}
	switch list := list.(type) {
	case *appsv1.DeploymentList:
		for _, w := range list.Items {
			add(w.ObjectMeta, w.Spec.Template.Spec)
		}
	case *appsv1.StatefulSetList:
		for _, w := range list.Items {
			add(w.ObjectMeta, w.Spec.Template.Spec)
		}
	case *appsv1.DaemonSetList:
		for _, w := range list.Items {
			add(w.ObjectMeta, w.Spec.Template.Spec)
		}
	case *batchv1.CronJobList:
		for _, w := range list.Items {
			add(w.ObjectMeta, w.Spec.JobTemplate.Spec.Template.Spec)
		}
	}
	return all
}

// metadata is an object of a kind of which only the metadata are watched.
func metadata(gvk schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(gvk)
	return o
}
