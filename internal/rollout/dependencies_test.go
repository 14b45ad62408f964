package rollout

import (
	"context"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
)

// graph has the names that each Kustomization of a namespace depends on, and counts reads.
type graph struct {
	client.Reader
	dependsOn map[string][]string
	reads     int
}

// Get implements [client.Reader].
func (g *graph) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	g.reads++
	names, ok := g.dependsOn[key.Name]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	k := o.(*kustomizev1.Kustomization)
	k.Namespace, k.Name = key.Namespace, key.Name
	for _, name := range names {
		k.Spec.DependsOn = append(k.Spec.DependsOn,
			meta.DependencyReference{NamespacedName: meta.NamespacedName{Name: name}})
	}
	return nil
}

// cycle returns the cycle of a Kustomization.
func (g *graph) cycle(t *testing.T, name string) string {
	t.Helper()
	d := &Dependencies[*kustomizev1.Kustomization]{Reader: g,
		New:       func() *kustomizev1.Kustomization { return &kustomizev1.Kustomization{} },
		DependsOn: func(k *kustomizev1.Kustomization) []meta.DependencyReference { return k.Spec.DependsOn }}
	k := d.New()
	if err := g.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: name}, k); err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(strings.Join(d.cycle(t.Context(), k), " "), "team/", "")
}

func TestCyclesAreNamed(t *testing.T) {
	g := &graph{dependsOn: map[string][]string{"a": {"missing", "b", "x"}, "b": {"c"}, "c": {"a"}, "x": {"y"},
		"y": {"x"}, "self": {"self"}, "none": {"x"}}}
	for name, want := range map[string]string{"a": "a b c a", "b": "b c a b", "self": "self self", "x": "x y x",
		"none": ""} {
		if got := g.cycle(t, name); got != want {
			t.Errorf("the cycle of %s is %q, want %q", name, got, want)
		}
	}
}

// TestLongChainsOfDependenciesAreBounded checks that a long row of objects that depend on each other costs a pass
// little.
func TestLongChainsOfDependenciesAreBounded(t *testing.T) {
	g := &graph{dependsOn: map[string][]string{}}
	for n := range 20_000 {
		g.dependsOn[fmt.Sprint(n)] = []string{fmt.Sprint(n + 1)}
	}
	var got string
	allocated := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			g.reads = 0
			got = g.cycle(t, "0")
		}
	}).AllocedBytesPerOp()
	if got != "" || g.reads > maxWalk+1 || allocated > 8<<20 {
		t.Errorf("cycle %q, %d reads, %d bytes", got, g.reads, allocated)
	}
}
