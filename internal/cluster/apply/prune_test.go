package apply

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

func TestPrune(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := context.Background()
	keep := strings.ReplaceAll(f.cm("kept"), "name: kept", "name: kept, annotations: {"+group+"/prune: disabled}")
	f.apply(strings.Join([]string{f.cm("a"), f.cm("b"), f.cm("gone"), f.cm("taken"), f.cm("live-kept"), keep}, "---\n"))
	all := f.inventory
	f.waitSynced()
	for name, body := range map[string]string{
		"taken":     `{"metadata":{"labels":{"` + group + `/name":"another"}}}`,
		"live-kept": `{"metadata":{"annotations":{"` + group + `/prune":"Disabled"}}}`,
	} {
		if err := patched(types.MergePatchType, "other", body)(ctx, f.client(configMaps, f.ns), name); err != nil {
			t.Fatal(err)
		}
	}
	if err := deleted(ctx, f.client(configMaps, f.ns), "gone"); err != nil {
		t.Fatal(err)
	}
	f.apply(f.cm("a"))
	changes, err := f.Prune(ctx, f.owner, append(all.Without(f.inventory),
		Ref{Group: "example.com", Version: "v1", Kind: "Never", Namespace: f.ns, Name: "n"}.Entry()))
	if err != nil {
		t.Fatal(err)
	}
	assertLines(t, "changes", describe(changes), []string{"ConfigMap/live-kept skipped", "ConfigMap/kept skipped",
		"ConfigMap/b deleted"})
	for name, want := range map[string]bool{"a": true, "b": false, "gone": false, "taken": true, "live-kept": true,
		"kept": true} {
		if f.has(configMaps, f.ns, name) != want {
			t.Errorf("%s exists: %v, want %v", name, !want, want)
		}
	}
	if changes, err := f.Prune(ctx, f.owner, all); err != nil || len(changes) != 3 {
		t.Errorf("again: %v, %v", changes, err)
	}
	if _, err := f.Prune(ctx, f.owner, Inventory{{ID: "nonsense", Version: "v1"}}); err == nil ||
		!strings.Contains(err.Error(), "nonsense") {
		t.Errorf("an invalid entry causes no error: %v", err)
	}
}

func TestPruneIsNoDrift(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.apply(f.cm("a") + "---\n" + f.cm("b"))
	f.waitSynced()
	all := f.inventory
	f.apply(f.cm("a"))
	if _, err := f.Prune(context.Background(), f.owner, all.Without(f.inventory)); err != nil {
		t.Fatal(err)
	}
	if err := f.WaitUntilDeleted(context.Background(), f.owner, all.Without(f.inventory)); err != nil {
		t.Fatal(err)
	}
	f.waitObserved(configMaps, "a")
	if f.Drifted(f.owner) || len(f.notified) > 0 {
		t.Error("the deletion counts as drift")
	}
}

func TestWaitUntilDeletedNamesFinalizers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := context.Background()
	f.apply(f.cm("held"))
	f.options.WaitTimeout = shortTimeout
	if err := patched(types.MergePatchType, "holder", `{"metadata":{"finalizers":["example.com/hold"]}}`)(ctx,
		f.client(configMaps, f.ns), "held"); err != nil {
		t.Fatal(err)
	}
	f.pruneAll()
	testenv.Eventually(t, "error with the finalizer", func() error {
		if err := f.WaitUntilDeleted(ctx, f.owner, f.inventory); err == nil ||
			!strings.Contains(err.Error(), "example.com/hold") {
			return fmt.Errorf("error %w does not name the finalizer", err)
		}
		return nil
	})
	if err := patched(types.MergePatchType, "holder", `{"metadata":{"finalizers":null}}`)(ctx,
		f.client(configMaps, f.ns), "held"); err != nil {
		t.Fatal(err)
	}
	f.options.WaitTimeout = longTimeout
	if err := f.WaitUntilDeleted(ctx, f.owner, f.inventory); err != nil {
		t.Error(err)
	}
}

func TestWaitForANamespaceWithObjects(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	name := f.ns + "-full"
	f.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: " + name + "}\n")
	held := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": "held", "finalizers": []any{"example.com/hold"}}}}
	if _, err := f.client(configMaps, name).Create(t.Context(), held, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	f.options.WaitTimeout = shortTimeout
	f.pruneAll()
	const want = "It may only need time, as a Namespace with objects; its conditions say what blocks the deletion"
	testenv.Eventually(t, "error with the hint", func() error {
		if err := f.WaitUntilDeleted(t.Context(), f.owner, f.inventory); err == nil ||
			!strings.HasSuffix(err.Error(), want) {
			return fmt.Errorf("got %w, want the hint %q", err, want)
		}
		return nil
	})
	if err := patched(types.MergePatchType, "holder", `{"metadata":{"finalizers":null}}`)(t.Context(),
		f.client(configMaps, name), "held"); err != nil {
		t.Error(err)
	}
}

func TestPruneDeletesDefinitionsAfterTheirObjects(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.apply(definition + "---\n" + gadget)
	changes, err := f.Prune(context.Background(), f.owner, f.inventory)
	if err != nil {
		t.Fatal(err)
	}
	assertLines(t, "changes", describe(changes),
		[]string{"Gadget/g deleted", "CustomResourceDefinition/gadgets." + f.ns +
			".example.com deleted"})
	testenv.Eventually(t, "deletion of the kind", func() error {
		_, err := f.dynamic.Resource(f.gadgets()).Namespace(f.ns).List(context.Background(), metav1.ListOptions{})
		if err == nil {
			return fmt.Errorf("still served")
		}
		return nil
	})
	if changes, err := f.Prune(context.Background(), f.owner, f.inventory); err != nil || len(changes) != 0 {
		t.Errorf("prune after the deletion of the kind: %v, %v", changes, err)
	}
	// The cached discovery still has the kind. It is created again in one set.
	assertLines(t, "second apply", f.apply(definition+"---\n"+gadget),
		[]string{"CustomResourceDefinition/gadgets." + f.ns + ".example.com created", "Gadget/g created"})
	f.pruneAll()
}
