package apply

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

func TestAnnotationsAndLabelsControlApply(t *testing.T) {
	for _, where := range []string{"annotations", "labels"} {
		t.Run(where, func(t *testing.T) { testPolicies(t, where) })
	}
}

// testPolicies applies objects with all policies, as annotations or as labels.
func testPolicies(t *testing.T, where string) {
	t.Helper()
	with := func(name, policy, data string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: %%s, %s: {%s/%s}}\n"+
			"data: {a: %q}\n", name, where, group, policy, data)
	}
	f := newFixture(t)
	ctx := context.Background()
	create := func(name string, policies map[string]any) {
		metadata := map[string]any{"name": name, where: policies}
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": metadata, "data": map[string]any{"a": "0"}}}
		if _, err := f.client(configMaps, f.ns).
			Create(ctx, o, metav1.CreateOptions{FieldManager: "kubectl-create"}); err != nil {
			t.Fatal(err)
		}
	}
	data := func(name string) any { return f.get(configMaps, name).Object["data"] }
	for _, name := range []string{"ignored", "present", "disabled", "merged", "overridden"} {
		create(name, nil)
	}
	create("live-disabled", map[string]any{group + "/reconcile": "disabled"})
	text := strings.Join([]string{
		with("ignored", "ssa: Ignore", "1"), with("present", "ssa: IfNotPresent", "1"),
		with("absent", "ssa: IfNotPresent", "1"),
		with("disabled", "reconcile: disabled", "1"), with("merged", "ssa: Merge", "1"), f.cm("live-disabled"),
		f.cm("overridden"),
	}, "---\n")
	for _, name := range []string{"merged", "overridden"} {
		if err := patched(types.MergePatchType, "kubectl-edit", `{"data":{"b":"2"}}`)(ctx, f.client(configMaps, f.ns),
			name); err != nil {
			t.Fatal(err)
		}
	}
	assertLines(t, "first apply", f.apply(text), []string{
		"ConfigMap/absent created", "ConfigMap/disabled skipped", "ConfigMap/ignored skipped",
		"ConfigMap/live-disabled skipped",
		"ConfigMap/merged configured", "ConfigMap/overridden configured", "ConfigMap/present skipped",
	})
	for name, want := range map[string]string{
		"absent": "map[a:1]", "disabled": "map[a:0]", "ignored": "map[a:0]", "live-disabled": "map[a:0]",
		"present": "map[a:0]",
		"merged":  "map[a:1 b:2]", "overridden": "map[a:1]",
	} {
		if got := fmt.Sprint(data(name)); got != want {
			t.Errorf("data of %s is %s, want %s", name, got, want)
		}
	}
	f.waitSynced()
	assertLines(t, "second apply", f.apply(text), []string{
		"ConfigMap/absent unchanged", "ConfigMap/disabled skipped", "ConfigMap/ignored skipped",
		"ConfigMap/live-disabled skipped",
		"ConfigMap/merged unchanged", "ConfigMap/overridden unchanged", "ConfigMap/present skipped",
	})
}

func TestExcludedObjectIsAppliedAgainAfterAnnotationIsRemoved(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := context.Background()
	text := f.cm("a")
	f.apply(text)
	f.waitSynced()
	annotate := func(value, data string) {
		body := `{"metadata":{"annotations":{"` + group + `/reconcile":` + value + `}},"data":{"a":"` + data + `"}}`
		if err := patched(types.MergePatchType, "person", body)(ctx, f.client(configMaps, f.ns), "a"); err != nil {
			t.Fatal(err)
		}
		f.waitDrift(f.owner)
	}
	annotate(`"disabled"`, "9")
	assertLines(t, "excluded", f.apply(text), []string{"ConfigMap/a skipped"})
	f.waitObserved(configMaps, "a")
	f.requests.take()
	assertLines(t, "second apply", f.apply(text), []string{"ConfigMap/a skipped"})
	assertLines(t, "requests", f.requests.take(), nil)
	restarted := f.restart()
	assertLines(t, "after a restart", restarted.apply(text), []string{"ConfigMap/a skipped"})
	restarted.waitSynced()
	f = restarted
	annotate("null", "9")
	assertLines(t, "included again", f.apply(text), []string{"ConfigMap/a configured"})
}
