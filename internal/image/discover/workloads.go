package discover

import (
	"context"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/image/discover/plan"
)

// pageSize is the number of workloads per list request. A workload may have more than a megabyte.
const pageSize = 100

// kinds is the supported kinds of workloads. Pods and other objects that controllers create are ignored.
var kinds = map[schema.GroupVersionKind]func() client.ObjectList{
	appsv1.SchemeGroupVersion.WithKind("Deployment"):  func() client.ObjectList { return &appsv1.DeploymentList{} },
	appsv1.SchemeGroupVersion.WithKind("StatefulSet"): func() client.ObjectList { return &appsv1.StatefulSetList{} },
	appsv1.SchemeGroupVersion.WithKind("DaemonSet"):   func() client.ObjectList { return &appsv1.DaemonSetList{} },
	batchv1.SchemeGroupVersion.WithKind("CronJob"):    func() client.ObjectList { return &batchv1.CronJobList{} },
}

// workloads lists the workloads of a namespace.
func (d *Discovery) workloads(ctx context.Context, namespace string) ([]plan.Workload, error) {
	var all []plan.Workload
	for gvk, list := range kinds {
		for next := ""; ; {
			found := list()
			if err := d.Workloads.List(ctx, found, client.InNamespace(namespace), client.Limit(pageSize),
				client.Continue(next)); err != nil {
				return nil, err
			}
			all = append(all, workloadsOf(gvk, found)...)
			if next = found.GetContinue(); next == "" {
				break
			}
		}
	}
	return all, nil
}

// workloadsOf returns the workloads of a list, except those that are being deleted.
func workloadsOf(gvk schema.GroupVersionKind, list client.ObjectList) []plan.Workload {
	var all []plan.Workload
	add := func(o metav1.ObjectMeta, pod corev1.PodSpec) {
		if o.DeletionTimestamp.IsZero() {
			owner := metav1.OwnerReference{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Name: o.Name,
				UID: o.UID}
			all = append(all, plan.Workload{Owner: owner, Annotations: annotationsOf(o), Pod: imagesOf(pod)})
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

// annotationsOf returns the annotations that can be of discovery. Others may be large.
func annotationsOf(o metav1.ObjectMeta) map[string]string {
	kept := map[string]string{}
	for key, value := range o.Annotations {
		if strings.Contains(key, plan.AnnotationPart) {
			kept[key] = value
		}
	}
	return kept
}

// imagesOf returns what discovery needs of a pod: the images and how they are pulled. The whole pods of a namespace
// could take much memory.
func imagesOf(pod corev1.PodSpec) corev1.PodSpec {
	kept := corev1.PodSpec{ServiceAccountName: pod.ServiceAccountName,
		ImagePullSecrets: pod.ImagePullSecrets[:min(len(pod.ImagePullSecrets), 1)]}
	for _, c := range pod.InitContainers {
		kept.InitContainers = append(kept.InitContainers, corev1.Container{Name: c.Name, Image: c.Image})
	}
	for _, c := range pod.Containers {
		kept.Containers = append(kept.Containers, corev1.Container{Name: c.Name, Image: c.Image})
	}
	return kept
}

// metadata returns an object of a kind for metadata-only requests.
func metadata(gvk schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(gvk)
	return o
}
