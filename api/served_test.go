package api_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// serve installs the definitions on a real API server.
func serve(t *testing.T) dynamic.Interface {
	t.Helper()
	cfg := testenv.Cluster(t)
	crds := apiextensions.NewForConfigOrDie(cfg).ApiextensionsV1().CustomResourceDefinitions()
	for _, crd := range definitions(t) {
		if _, err := crds.Create(t.Context(), crd, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
		testenv.Eventually(t, crd.Name+" established", func() error {
			now, err := crds.Get(t.Context(), crd.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			for _, c := range now.Status.Conditions {
				if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
					return nil
				}
			}
			return fmt.Errorf("conditions are %v", now.Status.Conditions)
		})
	}
	return dynamic.NewForConfigOrDie(cfg)
}

func resource(gvk schema.GroupVersionKind, version string) schema.GroupVersionResource {
	plural, _ := apimeta.UnsafeGuessKindToResource(gvk)
	plural.Version = version
	return plural
}

// TestServedAsDeclared creates every example on a real API server: what was declared in an older version is there in the
// current one, outlives a controller's status in the current one, and is read back in the older one.
func TestServedAsDeclared(t *testing.T) {
	client := serve(t)
	namespace := testenv.Namespace(t)
	for name, example := range examples(t) {
		t.Run(name, func(t *testing.T) {
			gvk := example.GroupVersionKind()
			own := client.Resource(resource(gvk, gvk.Version)).Namespace(namespace)
			current := client.Resource(resource(gvk, "v1")).Namespace(namespace)
			// The server may not be serving a definition that was established a moment ago.
			testenv.Eventually(t, "created", func() error {
				_, err := own.Create(t.Context(), example, metav1.CreateOptions{FieldValidation: "Strict"})
				return err
			})
			patch := []byte(`{"status":{"observedGeneration":1,"conditions":[{"type":"Ready","status":"True","reason":"Succeeded",` +
				`"message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`)
			if _, err := current.Patch(t.Context(), example.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
				t.Fatalf("the current version's status is refused: %v", err)
			}
			for version, resource := range map[string]dynamic.ResourceInterface{"current": current, "own": own} {
				got, err := resource.Get(t.Context(), example.GetName(), metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(example.Object["spec"], got.Object["spec"], cmp.FilterPath(addedDefault, cmp.Ignore())); diff != "" {
					t.Errorf("declared (-) and stored (+) differ in the %s version:\n%s", version, diff)
				}
				if g, _, _ := unstructured.NestedInt64(got.Object, "status", "observedGeneration"); g != 1 {
					t.Errorf("the %s version shows observedGeneration %d, want 1", version, g)
				}
			}
		})
	}
}

// addedDefault tells whether a path is a key that only the stored side has: the server's defaults.
func addedDefault(p cmp.Path) bool {
	i, ok := p.Last().(cmp.MapIndex)
	if !ok {
		return false
	}
	declared, _ := i.Values()
	return !declared.IsValid()
}

// TestRefused checks what the API server refuses before a controller sees it, and that it names the field.
func TestRefused(t *testing.T) {
	client := serve(t)
	namespace := testenv.Namespace(t)
	repository := schema.GroupVersionKind{Group: "source.toolkit.fluxcd.io", Version: "v1", Kind: "GitRepository"}
	kustomization := schema.GroupVersionKind{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Kind: "Kustomization"}
	source := map[string]any{"kind": "GitRepository", "name": "app"}
	for name, c := range map[string]struct {
		gvk  schema.GroupVersionKind
		spec map[string]any
		says string
	}{
		"a URL that is no HTTP or SSH URL":      {repository, map[string]any{"url": "git@example.com:a/b", "interval": "1m"}, "spec.url"},
		"no URL":                                {repository, map[string]any{"interval": "1m"}, "spec.url"},
		"an interval without a unit":            {repository, map[string]any{"url": "https://example.com", "interval": "1"}, "spec.interval"},
		"a timeout in hours":                    {repository, map[string]any{"url": "https://example.com", "interval": "1m", "timeout": "1h"}, "spec.timeout"},
		"an account without a provider for it":  {repository, map[string]any{"url": "https://example.com", "interval": "1m", "serviceAccountName": "a"}, "provider is 'azure' or 'aws'"},
		"a source of a kind that is none":       {kustomization, map[string]any{"interval": "1m", "prune": true, "sourceRef": map[string]any{"kind": "Secret", "name": "a"}}, "spec.sourceRef.kind"},
		"no word on pruning":                    {kustomization, map[string]any{"interval": "1m", "sourceRef": source}, "spec.prune"},
		"a remote cluster from two places":      {kustomization, map[string]any{"interval": "1m", "prune": true, "sourceRef": source, "kubeConfig": map[string]any{"secretRef": map[string]any{"name": "a"}, "configMapRef": map[string]any{"name": "a"}}}, "exactly one of"},
		"a remote cluster from nowhere":         {kustomization, map[string]any{"interval": "1m", "prune": true, "sourceRef": source, "kubeConfig": map[string]any{}}, "exactly one of"},
		"a target namespace that is too long":   {kustomization, map[string]any{"interval": "1m", "prune": true, "sourceRef": source, "targetNamespace": strings.Repeat("a", 64)}, "spec.targetNamespace"},
		"a deletion policy that does not exist": {kustomization, map[string]any{"interval": "1m", "prune": true, "sourceRef": source, "deletionPolicy": "Burn"}, "spec.deletionPolicy"},
	} {
		t.Run(name, func(t *testing.T) {
			obj := &unstructured.Unstructured{Object: map[string]any{"spec": runtime.DeepCopyJSON(c.spec)}}
			obj.SetGroupVersionKind(c.gvk)
			obj.SetName("bad")
			var err error
			testenv.Eventually(t, "served", func() error {
				_, err = client.Resource(resource(c.gvk, "v1")).Namespace(namespace).Create(context.Background(), obj, metav1.CreateOptions{})
				if apierrors.IsNotFound(err) {
					return err // established, but not served yet
				}
				return nil
			})
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want an Invalid that names %s", err, c.says)
			}
		})
	}
}
