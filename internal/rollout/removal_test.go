package rollout

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

func TestRemoval(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(testenv.Cluster(t), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	removal := Removal{Reader: c, Namespace: testenv.Namespace(t)}
	says := func(when, namespace, want string) {
		t.Helper()
		got, err := removal.Of(t.Context(),
			reconcile.RefTo(schema.GroupKind{Group: "removal.test", Kind: "Widget"}, namespace, "w"))
		if err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", when, got, err, want)
		}
	}
	definition := widgets()
	if err := c.Create(t.Context(), definition); err != nil {
		t.Fatal(err)
	}
	says("an object of the controllers' namespace", removal.Namespace, "")
	own := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: removal.Namespace}}
	if err := c.Delete(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	says("an object of another namespace", "other", "")
	says("the namespace is deleted", removal.Namespace, "Namespace '"+removal.Namespace+"' is being deleted")
	if err := c.Delete(t.Context(), definition); err != nil {
		t.Fatal(err)
	}
	says("the definition is deleted", "other", "CustomResourceDefinition 'widgets.removal.test' is being deleted")
	release := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
	if err := c.Patch(t.Context(), definition, release); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
}

// widgets returns a definition that stays while it is deleted.
func widgets() *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.removal.test", Finalizers: []string{"removal.test/hold"}},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "removal.test", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget",
				Singular: "widget", ListKind: "WidgetList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}}}},
		},
	}
}
