package apply

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// pretend creates large ConfigMaps in a namespace that have the labels of the owner.
func (f *fixture) pretend(namespace string, count int) {
	f.t.Helper()
	labels := map[string]any{}
	for key, value := range f.owner.Labels() {
		labels[key] = value
	}
	for n := range count {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"name": fmt.Sprintf("large-%d", n), "labels": labels},
			"data":     map[string]any{"k": strings.Repeat("x", 900<<10)}}}
		if _, err := f.client(configMaps, namespace).Create(f.t.Context(), o, metav1.CreateOptions{}); err != nil {
			f.t.Fatal(err)
		}
	}
}

// TestObjectsWithTheLabelsOfAnotherTakeNoMemory starts a process beside many large objects with the labels of an owner:
// in the namespace of another tenant, and in its own.
func TestObjectsWithTheLabelsOfAnotherTakeNoMemory(t *testing.T) {
	f := newFixture(t)
	maps := strings.ReplaceAll(threeMaps, `"KEY"`, "k")
	f.apply(maps)
	f.pretend(testenv.Namespace(t), 5)
	budget := guard.NewBudget(24 << 20) // 3 MiB of memory for a list
	ctx := guard.WithBudget(t.Context(), budget)
	apply := func() []string {
		t.Helper()
		f = f.restart()
		f.requests.take()
		result, err := f.Apply(ctx, f.request(maps))
		if err != nil {
			t.Fatal(err)
		}
		assertLines(t, "changes", describe(result.Changes),
			[]string{"ConfigMap/a unchanged", "ConfigMap/b unchanged", "ConfigMap/c unchanged"})
		return f.verbs()
	}
	assertLines(t, "requests", apply(), []string{"GET"}) // one list
	f.pretend(f.ns, 5)
	assertLines(t, "requests with large objects in the namespace", apply(), []string{"GET", "GET", "GET", "GET"})
	r, err := f.newRun(f.request(maps))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.list(ctx, r.steps[0].place()); !guard.IsAnswerTooLarge(err) {
		t.Errorf("the list was read: %v", err)
	}
}
