package system

import (
	"errors"
	"fmt"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// NoTimeout is longer than a test may run: a test that waits for it fails.
const NoTimeout = 100 * time.Hour

// WaitForHealth makes a Kustomization wait for all that it applies.
func WaitForHealth(timeout time.Duration) func(*kustomizev1.Kustomization) {
	return func(k *kustomizev1.Kustomization) {
		k.Spec.Wait = true
		k.Spec.Timeout = &metav1.Duration{Duration: timeout}
	}
}

func WebDeployment(image, fail string) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}, annotations: {playground.sluice.dev/fail: %q}}
    spec: {containers: [{name: web, image: %q}]}
`, fail, image)
}

// Unhealthy waits until the condition Healthy of a Kustomization is of a status, and says something.
func (s *System) Unhealthy(name string, status metav1.ConditionStatus, says string) {
	s.Helper()
	testenv.Eventually(s, name+" waits", func() error {
		k := &kustomizev1.Kustomization{}
		if err := s.Get(k, name); err != nil {
			return err
		}
		c := apimeta.FindStatusCondition(k.Status.Conditions, meta.HealthyCondition)
		if c == nil || c.Status != status || !strings.Contains(c.Message, says) {
			return fmt.Errorf("%+v", k.Status.Conditions)
		}
		if reconcile.IsReady(k) {
			return errors.New("it is Ready")
		}
		return nil
	})
}
