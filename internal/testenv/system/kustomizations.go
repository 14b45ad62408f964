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
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// Kustomization creates a Kustomization of a path in a GitRepository.
func (s *System) Kustomization(name, source, path string, change ...func(*kustomizev1.Kustomization)) {
	s.Helper()
	k := &kustomizev1.Kustomization{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name},
		Spec: kustomizev1.KustomizationSpec{
			Interval: meta.Duration{Duration: time.Hour}, Path: path, Prune: true, TargetNamespace: s.Namespace,
			SourceRef: kustomizev1.SourceReference{Kind: "GitRepository",
				NamespacedName: meta.NamespacedName{Name: source}},
			Timeout: &meta.Duration{Duration: 2 * time.Minute},
		},
	}
	for _, c := range change {
		c(k)
	}
	s.Create(k)
}

// Ready waits until a Kustomization is Ready at a commit, and returns it.
func (s *System) Ready(name, commit string) *kustomizev1.Kustomization {
	s.Helper()
	k := &kustomizev1.Kustomization{}
	s.eventually(name+" is Ready", func() error {
		if err := s.Get(k, name); err != nil {
			return err
		}
		if !reconcile.IsReady(k) || !strings.HasSuffix(k.Status.LastAppliedRevision, commit) {
			return fmt.Errorf("%s %+v", k.Status.LastAppliedRevision, k.Status.Conditions)
		}
		return nil
	})
	return k
}

// NoTimeout is longer than any test may run.
const NoTimeout = 100 * time.Hour

// WaitForHealth makes a Kustomization wait for the health of all applied objects.
func WaitForHealth(timeout time.Duration) func(*kustomizev1.Kustomization) {
	return func(k *kustomizev1.Kustomization) {
		k.Spec.Wait = true
		k.Spec.Timeout = &meta.Duration{Duration: timeout}
	}
}

// WebDeployment returns the manifest of a Deployment. The playground's pods fail with the message fail,
// unless it is empty.
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

// Unhealthy waits until a Kustomization is not Ready and its condition Healthy has a status and a message
// that contains a text.
func (s *System) Unhealthy(name string, status metav1.ConditionStatus, message string) {
	s.Helper()
	s.eventually(name+" is not healthy", func() error {
		k := &kustomizev1.Kustomization{}
		if err := s.Get(k, name); err != nil {
			return err
		}
		c := apimeta.FindStatusCondition(k.Status.Conditions, meta.HealthyCondition)
		if c == nil || c.Status != status || !strings.Contains(c.Message, message) {
			return fmt.Errorf("%+v", k.Status.Conditions)
		}
		if reconcile.IsReady(k) {
			return errors.New("it is Ready")
		}
		return nil
	})
}

// WaitsFor waits until a Kustomization reports a pending commit.
func (s *System) WaitsFor(name, commit string) {
	s.Helper()
	s.eventually(name+" waits for "+commit, func() error {
		k := &kustomizev1.Kustomization{}
		if err := s.Get(k, name); err != nil {
			return err
		}
		if p := k.Status.Pending; p == nil || !strings.HasSuffix(p.Revision, commit) {
			return fmt.Errorf("%+v", p)
		}
		return nil
	})
}

// AllNamespaces configures the controllers to watch all namespaces, but only objects with the label of the test.
func AllNamespaces(o *options.Options) {
	o.WatchAllNamespaces = true
	o.WatchLabelSelector = "test=" + o.RuntimeNamespace
}

// Contended waits until an object has the condition Contended with the texts; without texts, until it has none.
func (s *System) Contended(o reconcile.Object, name string, texts ...string) {
	s.Helper()
	s.eventually("condition Contended of "+name, func() error {
		if err := s.Get(o, name); err != nil {
			return err
		}
		c := apimeta.FindStatusCondition(o.CommonStatus().Conditions, meta.ContendedCondition)
		if len(texts) == 0 && c != nil || len(texts) > 0 && c == nil {
			return fmt.Errorf("%+v", c)
		}
		for _, text := range texts {
			if c.Status != metav1.ConditionTrue || !strings.Contains(c.Message, text) {
				return fmt.Errorf("lacks %q: %+v", text, c)
			}
		}
		return nil
	})
}
