package state

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/ui/view"
)

// TestWhyFindsObjectsByWord asks for applied objects as kubectl names them.
func TestWhyFindsObjectsByWord(t *testing.T) {
	t.Parallel()
	c, err := client.New(testenv.Cluster(t), client.Options{Scheme: kubeclient.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	one, two := testenv.Namespace(t), testenv.Namespace(t)
	once, twice := one+"-once", one+"-twice"
	for _, key := range []client.ObjectKey{{Namespace: one, Name: once}, {Namespace: one, Name: twice},
		{Namespace: two, Name: twice}} {
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name,
			Labels: map[string]string{"kustomize.toolkit.fluxcd.io/name": "apps",
				"kustomize.toolkit.fluxcd.io/namespace": one}}}
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	applier := &view.Item{ID: view.ID("Kustomization", one, "apps"), Kind: "Kustomization", Namespace: one,
		Name: "apps"}
	for query, want := range map[string]struct{ object, note string }{
		"cm/" + once:                   {object: "ConfigMap/" + one + "/" + once},
		"configmaps/" + once:           {object: "ConfigMap/" + one + "/" + once},
		"ConfigMap/" + once:            {object: "ConfigMap/" + one + "/" + once},
		"cm/" + one + "/" + once:       {object: "ConfigMap/" + one + "/" + once},
		"cm/" + two + "/" + once:       {note: "ConfigMap '" + once + "' does not exist in namespace '" + two + "'."},
		"cm/" + once + "-none":         {note: "ConfigMap '" + once + "-none' does not exist in any namespace."},
		"cm/" + twice:                  {note: "Several namespaces have a ConfigMap '" + twice + "'. Ask"},
		"ns/" + one:                    {object: "Namespace/" + one},
		"ns/" + one + "-none":          {note: "Namespace '" + one + "-none' does not exist."},
		"nothing-of-this-kind/" + once: {note: "Nothing that deploys matches."},
	} {
		t.Run(query, func(t *testing.T) {
			a, err := Why(t.Context(), c, []*view.Item{applier}, query)
			if err != nil {
				t.Fatal(err)
			}
			object := ""
			if a.Object != nil {
				object = strings.ReplaceAll(a.Object.Object, "//", "/")
			}
			if object != want.object || !strings.Contains(a.Note, want.note) {
				t.Errorf("object %q, note %q", object, a.Note)
			}
			if isApplied := strings.HasPrefix(want.object, "ConfigMap/"); isApplied != (len(a.Chains) == 1) {
				t.Errorf("%d chains", len(a.Chains))
			}
		})
	}
}
