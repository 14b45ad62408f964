package migrate

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

const thingDefinition = "things.restore.example.com"

func thingGVK(version string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "restore.example.com", Version: version, Kind: "Thing"}
}

// newThingDefinition returns a CustomResourceDefinition that stores the last version.
func newThingDefinition(versions ...string) *unstructured.Unstructured {
	var all []any
	for i, name := range versions {
		all = append(all, map[string]any{"name": name, "served": true, "storage": i == len(versions)-1,
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object",
				"x-kubernetes-preserve-unknown-fields": true}}})
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"group": "restore.example.com", "scope": "Cluster", "versions": all,
		"names": map[string]any{"kind": "Thing", "plural": "things", "singular": "thing", "listKind": "ThingList"}}}}
	u.SetGroupVersionKind(definitionGVK)
	u.SetName(thingDefinition)
	return u
}

// TestRestoreStoresObjectsThatWereMissed restores a definition while the API server still stores objects in the removed
// version at first, as it does for a moment after a change. These objects could not be read, listed or deleted.
func TestRestoreStoresObjectsThatWereMissed(t *testing.T) {
	real, err := client.NewWithWatch(testenv.Cluster(t), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	missed := 0
	c := interceptor.NewClient(real, interceptor.Funcs{Update: func(ctx context.Context,
		c client.WithWatch, o client.Object, options ...client.UpdateOption,
	) error {
		if o.GetObjectKind().GroupVersionKind().Kind == "Thing" && missed == 0 {
			missed++
			return nil
		}
		return c.Update(ctx, o, options...)
	}})
	e := &Engine{Client: c, ReadyTimeout: time.Minute, PollInterval: 20 * time.Millisecond, Now: time.Now}
	if err := real.Create(t.Context(), newThingDefinition("v1beta1", "v1")); err != nil {
		t.Fatal(err)
	}
	thing := &unstructured.Unstructured{Object: map[string]any{"spec": "kept"}}
	thing.SetGroupVersionKind(thingGVK("v1"))
	thing.SetName("a")
	testenv.Eventually(t, "the kind is served", func() error { return real.Create(t.Context(), thing.DeepCopy()) })

	if err := e.restoreDefinition(t.Context(), newThingDefinition("v1beta1")); err != nil {
		t.Fatal(err)
	}
	if missed != 1 {
		t.Fatal("the object was not stored again")
	}
	thing.SetGroupVersionKind(thingGVK("v1beta1"))
	if err := real.Get(t.Context(), client.ObjectKey{Name: "a"}, thing); err != nil {
		t.Fatal(err)
	}
	if thing.Object["spec"] != "kept" {
		t.Errorf("the object is %v", thing.Object)
	}
	live, err := e.get(t.Context(), definitionRef(thingDefinition))
	if err != nil {
		t.Fatal(err)
	}
	if d := parseDefinition(live); len(d.Versions) != 1 || d.StorageVersion != "v1beta1" {
		t.Errorf("the definition is %+v", d.Definition)
	}
}
