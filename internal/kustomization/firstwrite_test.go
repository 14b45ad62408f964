package kustomization_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// TestInvalidSpecAppliesNothing has an error in each part of the spec that only steps after the apply, or no step yet,
// would use.
func TestInvalidSpecAppliesNothing(t *testing.T) {
	s := newSteps(t)
	s.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1")})
	for name, c := range map[string]struct {
		change          func(*kustomizev1.KustomizationSpec)
		reason, message string
	}{
		"health": {func(k *kustomizev1.KustomizationSpec) {
			k.HealthCheckExprs = []meta.HealthCheckExpr{{APIVersion: "ex.io/v1", Kind: "MyCR", Current: "has(status)"}}
		}, "InvalidCELExpression", "spec.healthCheckExprs for MyCR"},
		"failing": {func(k *kustomizev1.KustomizationSpec) {
			k.HealthCheckExprs = []meta.HealthCheckExpr{{APIVersion: "ex.io/v1", Kind: "MyCR", Current: "true",
				Failed: "1 +"}}
		}, "InvalidCELExpression", "spec.healthCheckExprs for MyCR"},
		"ready-expr": {func(k *kustomizev1.KustomizationSpec) {
			k.DependsOn = []kustomizev1.DependencyReference{{NamespacedName: meta.NamespacedName{Name: "missing"},
				ReadyExpr: "dep.status."}}
		}, "InvalidCELExpression", "readyExpr of dependency"},
		"ready-number": {func(k *kustomizev1.KustomizationSpec) {
			k.DependsOn = []kustomizev1.DependencyReference{{NamespacedName: meta.NamespacedName{Name: "missing"},
				ReadyExpr: "1 + 1"}}
		}, "InvalidCELExpression", "readyExpr of dependency"},
		"ignore": {func(k *kustomizev1.KustomizationSpec) {
			k.Ignore = []meta.IgnoreRule{{Paths: []string{"spec.replicas"}}}
		}, "ReconciliationFailed", "is not a JSON pointer"},
		"variable": {func(k *kustomizev1.KustomizationSpec) {
			k.PostBuild = &kustomizev1.PostBuild{Substitute: map[string]string{"not a name": "x"}}
		}, "BuildFailed", "not a name"},
		"variables": {func(k *kustomizev1.KustomizationSpec) {
			k.PostBuild = &kustomizev1.PostBuild{SubstituteFrom: []meta.SubstituteReference{
				{Kind: "ConfigMap", Name: "missing"}}}
		}, "BuildFailed", "missing"},
		"patch": {func(k *kustomizev1.KustomizationSpec) {
			k.Patches = []kustomizev1.Patch{{Patch: "- op: nothing"}}
		}, "BuildFailed", ""},
	} {
		s.apply(name, "app", "", func(k *kustomizev1.Kustomization) {
			k.Spec.NamePrefix, k.Spec.Wait = name+"-", true
			c.change(&k.Spec)
		})
		s.NotReady(&kustomizev1.Kustomization{}, name, c.reason, c.message)
		if err := s.Get(&corev1.ConfigMap{}, name+"-a"); !apierrors.IsNotFound(err) {
			t.Errorf("%s: applied: %v", name, err)
		}
	}
}

// TestEventsOfSuccess compares the messages of a successful pass with the ones of kustomize-controller. The cluster has
// one event for that the revision was applied and that the pass finished.
func TestEventsOfSuccess(t *testing.T) {
	s := newHarness(t)
	commit := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1")})
	s.GitRepository("app")
	s.Kustomization("app", "app", "", system.WaitForHealth(system.NoTimeout))
	s.Ready("app", commit)
	s.HasEvent("app", "Progressing", "Health check passed in ")
	s.HasEvent("app", meta.ReconciliationSucceededReason, "Applied revision: main@sha1:"+commit,
		"\nReconciliation finished in ", ", next run in 1h0m0s")
	for _, e := range events(s, "app") {
		if e.Type != corev1.EventTypeNormal {
			t.Errorf("%s event '%s'", e.Type, e.Note)
		}
	}
	if n := countEvents(s, "app", "Reconciliation finished in "); n != 1 {
		t.Errorf("%d events that the reconciliation finished", n)
	}
}

// events returns the events of the cluster about an object.
func events(s *harness, name string) (found []eventsv1.Event) {
	s.Helper()
	var list eventsv1.EventList
	if err := s.Client.List(s.Context(), &list, client.InNamespace(s.Namespace)); err != nil {
		s.Fatal(err)
	}
	for _, e := range list.Items {
		if e.Regarding.Name == name {
			found = append(found, e)
		}
	}
	return found
}

// countEvents returns how many events of the cluster about an object contain a text.
func countEvents(s *harness, name, text string) (n int) {
	s.Helper()
	for _, e := range events(s, name) {
		if strings.Contains(e.Note, text) {
			n++
		}
	}
	return n
}

// TestEmptiedDirectoryIsPrunedOnceAllowed follows the message of the refusal.
func TestEmptiedDirectoryIsPrunedOnceAllowed(t *testing.T) {
	s := newSteps(t)
	commit := s.Commit("app", map[string]string{"app/a.yaml": system.ConfigMap("kept", "1"), "other.md": "x"})
	s.apply("app", "app", "app")
	s.Ready("app", commit)
	commit = s.Commit("app", map[string]string{"app/a.yaml": "", "app/readme.md": "moved"})
	s.Pass("app")
	s.NotReady(&kustomizev1.Kustomization{}, "app", "BuildFailed", kustomizev1.AllowEmptyAnnotation+"=")
	s.ConfigMapHas("kept", "1")
	k := &kustomizev1.Kustomization{}
	if err := s.Get(k, "app"); err != nil {
		t.Fatal(err)
	}
	revision := k.Status.LastAttemptedRevision
	s.Update(k, "app", func() {
		k.Annotations = map[string]string{kustomizev1.AllowEmptyAnnotation: revision,
			meta.ReconcileRequestAnnotation: revision}
	})
	s.Pass("app")
	s.Ready("app", commit)
	s.Gone(&corev1.ConfigMap{}, "kept")
}
