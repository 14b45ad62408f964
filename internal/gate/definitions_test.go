package gate_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// redefine changes the schema of spec in all versions of the definition of Kustomizations.
func redefine(t *testing.T, change func(spec map[string]apiextensionsv1.JSONSchemaProps)) {
	t.Helper()
	c := apiextensions.NewForConfigOrDie(testenv.Cluster(t)).CustomResourceDefinitions()
	if err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		crd, err := c.Get(context.Background(), "kustomizations.kustomize.toolkit.fluxcd.io", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, v := range crd.Spec.Versions {
			change(v.Schema.OpenAPIV3Schema.Properties["spec"].Properties)
		}
		_, err = c.Update(context.Background(), crd, metav1.UpdateOptions{})
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// isNotReconciled waits for the event of an object whose gates are unknown.
func (s *harness) isNotReconciled(name, message string) {
	s.Helper()
	testenv.Eventually(s, name+" has the event GatesUnknown", func() error {
		var events corev1.EventList
		if err := s.Client.List(s.Context(), &events, client.InNamespace(s.Namespace)); err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.InvolvedObject.Name == name && e.Reason == "GatesUnknown" && strings.Contains(e.Message, message) {
				return nil
			}
		}
		return fmt.Errorf("%d events", len(events.Items))
	})
}

// watchesDefinitions sets the option without which the controllers need no right outside of their namespace.
func watchesDefinitions(o *options.Options) { o.WatchAllNamespaces = true }

// Definitions of Flux have no field for gates. While they are installed, the API server hides the gates of objects.
func TestDefinitionWithoutGates(t *testing.T) {
	s := newHarness(t, watchesDefinitions)
	var field apiextensionsv1.JSONSchemaProps
	restore := func() {
		redefine(t, func(spec map[string]apiextensionsv1.JSONSchemaProps) { spec["gates"] = field })
	}
	s.Gate("release")
	s.TurnGate("release", gatingv1.Opened)
	first := s.Git.Commit("app", map[string]string{"app/a.yaml": system.ConfigMap("a", "1"),
		"new/b.yaml": system.ConfigMap("b", "1")})
	s.GitRepository("app")
	s.Kustomization("app", "app", "app", func(k *kustomizev1.Kustomization) {
		k.Spec.Gates = system.GateRefs("release")
	})
	s.Ready("app", first)
	s.TurnGate("release", gatingv1.Closed)

	redefine(t, func(spec map[string]apiextensionsv1.JSONSchemaProps) {
		field = spec["gates"]
		delete(spec, "gates")
	})
	t.Cleanup(restore)
	k := &kustomizev1.Kustomization{}
	testenv.Eventually(t, "the API server hides the gates", func() error {
		if err := s.Get(k, "app"); err != nil || len(k.Spec.Gates) > 0 {
			return fmt.Errorf("%d gates, %w", len(k.Spec.Gates), err)
		}
		return nil
	})
	if !slices.ContainsFunc(k.ManagedFields, func(m metav1.ManagedFieldsEntry) bool {
		return m.FieldsV1 != nil && strings.Contains(m.FieldsV1.String(), `"f:gates"`)
	}) {
		t.Errorf("the owner of the hidden gates is unknown: %v", k.ManagedFields)
	}
	second := s.Git.Commit("app", map[string]string{"app/a.yaml": system.ConfigMap("a", "2")})
	s.RequestFetch("app")
	s.StoredArtifact("app", second)
	s.isNotReconciled("app", "CustomResourceDefinition 'kustomizations.kustomize.toolkit.fluxcd.io' lacks the field "+
		"spec.gates")
	s.ConfigMapHas("a", "1")

	t.Log("a process that starts now does not know that the object named gates")
	s.Stop()
	s.Start()
	s.Kustomization("new", "app", "new")
	s.isNotReconciled("new", "Run sluice install --force to restore it")
	s.ConfigMapHas("a", "1")

	restore()
	s.Ready("new", second)
	s.pending("app", second, 0, 1, 0)
	s.ConfigMapHas("a", "1")
	s.TurnGate("release", gatingv1.Opened)
	s.Ready("app", second)
}
