package discover

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-gitops/sluice/internal/image/discover/plan"
)

// TestOnlyImagesOfWorkloadsAreKept checks that large workloads of a namespace take little memory.
func TestOnlyImagesOfWorkloadsAreKept(t *testing.T) {
	long := strings.Repeat("x", 1000)
	container := func(name string) corev1.Container {
		return corev1.Container{Name: name, Image: "web:1", Args: []string{long},
			Env: []corev1.EnvVar{{Name: "A", Value: long}}}
	}
	d := appsv1.Deployment{}
	d.Annotations = map[string]string{"fluxcd.io/automated": "true", "filter.fluxcd.io/web": "glob:*", "other": long}
	d.Spec.Template.Spec = corev1.PodSpec{
		InitContainers: []corev1.Container{container("init")}, Containers: []corev1.Container{container("web")},
		ServiceAccountName: "robot", ImagePullSecrets: []corev1.LocalObjectReference{{Name: "a"}, {Name: long}},
		Volumes: []corev1.Volume{{Name: long}},
	}
	want := plan.Workload{
		Annotations: map[string]string{"fluxcd.io/automated": "true", "filter.fluxcd.io/web": "glob:*"},
		Pod: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "init", Image: "web:1"}},
			Containers:     []corev1.Container{{Name: "web", Image: "web:1"}}, ServiceAccountName: "robot",
			ImagePullSecrets: []corev1.LocalObjectReference{{Name: "a"}},
		},
	}
	gvk := appsv1.SchemeGroupVersion.WithKind("Deployment")
	want.Owner.APIVersion, want.Owner.Kind = gvk.GroupVersion().String(), gvk.Kind
	got := workloadsOf(gvk, &appsv1.DeploymentList{Items: []appsv1.Deployment{d}})
	if diff := cmp.Diff([]plan.Workload{want}, got); diff != "" {
		t.Error(diff)
	}
}
