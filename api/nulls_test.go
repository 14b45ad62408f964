package api_test

import (
	"maps"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// TestNullsAreAbsent sets the spec of each kind of Flux, and each field of it, to null. The API server drops such a
// field, so it must accept what it accepts without the field. No definition of Flux requires a spec.
func TestNullsAreAbsent(t *testing.T) {
	client := serve(t)
	namespace := testenv.Namespace(t)
	for name, example := range examples(t) {
		gvk := example.GroupVersionKind()
		if !slices.Contains(complete, gvk.Group) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			r := client.Resource(resource(gvk, gvk.Version)).Namespace(namespace)
			try := func(spec any, present bool) error {
				o := example.DeepCopy()
				o.SetName("nulls")
				if o.Object["spec"] = spec; !present {
					delete(o.Object, "spec")
				}
				return dryCreate(t, r, o)
			}
			if err := try(nil, true); err != nil {
				t.Errorf("spec: null is refused: %v", err)
			}
			if err := try(nil, false); err != nil {
				t.Errorf("an object without a spec is refused: %v", err)
			}
			spec := example.Object["spec"].(map[string]any)
			for field := range spec {
				without := maps.Clone(spec)
				delete(without, field)
				null := maps.Clone(spec)
				null[field] = nil
				if a, b := try(null, true), try(without, true); (a == nil) != (b == nil) {
					t.Errorf("%s: null gives %v, but without it %v", field, a, b)
				}
			}
		})
	}
}

// dryCreate dry-runs the creation of an object, once its definition is served.
func dryCreate(t *testing.T, r dynamic.ResourceInterface, o *unstructured.Unstructured) (err error) {
	t.Helper()
	testenv.Eventually(t, "served", func() error {
		_, err = r.Create(t.Context(), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if apierrors.IsNotFound(err) {
			return err
		}
		return nil
	})
	return err
}

// TestOIDCProvidersAreMergedByIssuer applies two parts of a Receiver by two managers, as Flux's definition allows.
func TestOIDCProvidersAreMergedByIssuer(t *testing.T) {
	client := serve(t)
	r := client.Resource(resource(receiverKind, "v1")).Namespace(testenv.Namespace(t))
	provider := func(issuer string) map[string]any {
		return map[string]any{"issuerURL": issuer, "validations": []any{map[string]any{
			"expression": "true", "message": "none"}}}
	}
	receiver := func(providers ...any) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"type": "generic-oidc",
			"resources":     []any{map[string]any{"kind": "GitRepository", "name": "app"}},
			"oidcProviders": providers}}}
		o.SetGroupVersionKind(receiverKind)
		o.SetName("oidc")
		return o
	}
	const a, b = "https://a.example.com", "https://b.example.com"
	apply := func(manager string, providers ...any) error {
		_, err := r.Apply(t.Context(), "oidc", receiver(providers...), metav1.ApplyOptions{FieldManager: manager})
		return err
	}
	testenv.Eventually(t, "served", func() error { return apply("one", provider(a)) })
	if err := apply("two", provider(b)); err != nil {
		t.Fatal(err)
	}
	live, err := r.Get(t.Context(), "oidc", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if list, _, _ := unstructured.NestedSlice(live.Object, "spec", "oidcProviders"); len(list) != 2 {
		t.Errorf("the providers are %v, want both", list)
	}
	if err := dryCreate(t, r, receiver(provider(a), provider(a))); err == nil {
		t.Error("two providers with one issuer were accepted")
	}
}
