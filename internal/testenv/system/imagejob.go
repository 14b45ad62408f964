package system

import (
	"fmt"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	imagev1alpha1 "github.com/sluice-gitops/sluice/api/image/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// DeploymentWithImages is a Deployment with containers by name, in the order of their images.
func DeploymentWithImages(name string, images ...string) string {
	text := "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: " + name +
		"\nspec:\n  template:\n    spec:\n      containers:\n"
	for i, image := range images {
		text += fmt.Sprintf("        - name: c%d\n          image: %s # as it runs\n", i, image)
	}
	return text
}

// ImageUpdateJob makes a job.
func (s *System) ImageUpdateJob(name string, spec imagev1alpha1.ImageUpdateJobSpec) {
	s.Helper()
	spec.AutomationRef.Name = "update"
	s.Create(&imagev1alpha1.ImageUpdateJob{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name},
		Spec: spec})
}

// ImageUpdateJobReady waits until a job says something, being Ready or not.
func (s *System) ImageUpdateJobReady(name string, status metav1.ConditionStatus,
	says string) *imagev1alpha1.ImageUpdateJob {
	s.Helper()
	j := &imagev1alpha1.ImageUpdateJob{}
	testenv.Eventually(s, fmt.Sprintf("%s says %s", name, says), func() error {
		*j = imagev1alpha1.ImageUpdateJob{}
		if err := s.Get(j, name); err != nil {
			return err
		}
		c := apimeta.FindStatusCondition(j.Status.Conditions, reconcile.TypeReady)
		if c == nil || c.Status != status || !strings.Contains(c.Message, says) {
			return fmt.Errorf("%+v", j.Status)
		}
		return nil
	})
	return j
}

func Containers(names ...string) (all []imagev1.WorkloadContainer) {
	for _, name := range names {
		name, container, _ := strings.Cut(name, ":")
		all = append(all, imagev1.WorkloadContainer{Kind: "Deployment", Name: name, Container: container})
	}
	return all
}
