package rollout

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/reconcile"
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

// dependenciesOf returns the dependencies of the Kustomizations that a reader has.
func dependenciesOf(r client.Reader) *Dependencies[*kustomizev1.Kustomization] {
	d := &Dependencies[*kustomizev1.Kustomization]{Reader: r, Kind: schema.GroupKind{Kind: "Kustomization"},
		New:       func() *kustomizev1.Kustomization { return &kustomizev1.Kustomization{} },
		DependsOn: func(k *kustomizev1.Kustomization) []meta.DependencyReference { return k.Spec.DependsOn },
		Watch: &DependencyWatch{watched: map[reconcile.Ref]int{},
			kinds: map[schema.GroupKind]func(context.Context, types.NamespacedName) []reconcile.Ref{}}}
	d.register()
	return d
}

// cycle returns the cycle of a Kustomization.
func (g *graph) cycle(t *testing.T, name string) string {
	t.Helper()
	d := dependenciesOf(g)
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

func TestCyclesAcrossKindsAreNamed(t *testing.T) {
	release := reconcile.RefTo(schema.GroupKind{Group: "helm.toolkit.fluxcd.io", Kind: "HelmRelease"}, "team", "db")
	k := &kustomizev1.Kustomization{}
	k.Namespace, k.Name = "team", "app"
	g := &graph{dependsOn: map[string][]string{"middle": {"app"}}}
	d := dependenciesOf(g)
	d.Watch.kinds[release.GroupKind] = func(_ context.Context, name types.NamespacedName) []reconcile.Ref {
		if name.Name != "db" {
			return nil
		}
		return []reconcile.Ref{reconcile.RefTo(d.Kind, "team", "middle")}
	}
	on := meta.DependencyReference{APIVersion: "helm.toolkit.fluxcd.io/v2", Kind: "HelmRelease", Ready: true,
		NamespacedName: meta.NamespacedName{Name: "db"}}
	exists, other, expression := on, on, on
	exists.Ready, other.Name = false, "none"
	expression.Ready, expression.ReadyExpr = false, "status.history.size() > 0"
	cycle := "Kustomization/team/app HelmRelease/team/db Kustomization/team/middle Kustomization/team/app"
	for _, c := range []struct {
		on   meta.DependencyReference
		want string
	}{{on, cycle}, {expression, cycle}, {exists, ""}, {other, ""}} {
		k.Spec.DependsOn = []meta.DependencyReference{c.on}
		if got := strings.Join(d.cycle(t.Context(), k), " "); got != c.want {
			t.Errorf("%+v: the cycle is %q, want %q", c.on, got, c.want)
		}
	}
}

// TestCyclesOfRandomObjects compares the cycles of random objects of three kinds with those of the transitive closure
// of their dependencies.
func TestCyclesOfRandomObjects(t *testing.T) {
	t.Parallel()
	kinds := []schema.GroupKind{{Group: "kustomize.toolkit.fluxcd.io", Kind: "Kustomization"},
		{Group: "helm.toolkit.fluxcd.io", Kind: "HelmRelease"}, {Group: "fluxcd.controlplane.io", Kind: "ResourceSet"}}
	const objects, rounds = 9, 500
	found := 0
	for seed := range uint64(rounds) {
		r := rand.New(rand.NewPCG(seed, 0))
		dependsOn, waits := [objects][]meta.DependencyReference{}, [objects][objects]bool{}
		for from := range objects {
			for range r.IntN(3) {
				to := r.IntN(objects)
				on := meta.DependencyReference{NamespacedName: meta.NamespacedName{Name: fmt.Sprint(to)}}
				if from%len(kinds) != to%len(kinds) || r.IntN(2) == 0 {
					on.Kind, on.Ready = kinds[to%len(kinds)].Kind, r.IntN(3) > 0
				}
				waits[from][to] = waits[from][to] || on.Kind == "" || on.Ready
				dependsOn[from] = append(dependsOn[from], on)
			}
		}
		reaches := waits
		for via := range objects {
			for from := range objects {
				for to := range objects {
					reaches[from][to] = reaches[from][to] || reaches[from][via] && reaches[via][to]
				}
			}
		}
		all := make([]*Dependencies[*kustomizev1.Kustomization], len(kinds)) // the check does not depend on the type
		for n, kind := range kinds {
			all[n] = dependenciesOf(objectsOf(dependsOn[:]))
			all[n].Kind = kind
			all[n].Watch = all[0].Watch
			all[n].register()
		}
		for n := range objects {
			obj := &kustomizev1.Kustomization{Spec: kustomizev1.KustomizationSpec{DependsOn: dependsOn[n]}}
			obj.Namespace, obj.Name = "team", fmt.Sprint(n)
			cycle := all[n%len(kinds)].cycle(t.Context(), obj)
			if (cycle != nil) != reaches[n][n] {
				t.Fatalf("seed %d: the cycle of %d is %q: %+v", seed, n, cycle, dependsOn)
			}
			for i := range max(len(cycle)-1, 0) {
				from := cycle[i][strings.LastIndex(cycle[i], "/")+1:]
				to := cycle[i+1][strings.LastIndex(cycle[i+1], "/")+1:]
				if !waits[from[0]-'0'][to[0]-'0'] {
					t.Fatalf("seed %d: %s does not wait for %s: %+v", seed, from, to, dependsOn)
				}
				found++
			}
		}
	}
	if found < rounds {
		t.Errorf("only %d dependencies were part of a cycle", found)
	}
}

// objectsOf has objects by their number.
type objectsOf [][]meta.DependencyReference

// Get implements [client.Reader].
func (o objectsOf) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	n, err := strconv.Atoi(key.Name)
	if err != nil {
		return err
	}
	obj.(*kustomizev1.Kustomization).Spec.DependsOn = o[n]
	obj.SetNamespace(key.Namespace)
	obj.SetName(key.Name)
	return nil
}

// List implements [client.Reader].
func (objectsOf) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

func TestInvalidDependencies(t *testing.T) {
	d := dependenciesOf(&graph{})
	for _, c := range []struct {
		on   meta.DependencyReference
		want string
	}{
		{on: meta.DependencyReference{Kind: "Deployment"}},
		{on: meta.DependencyReference{Kind: "ResourceSet", Ready: true}},
		{on: meta.DependencyReference{Kind: "Gadget"}, want: "spec.dependsOn[0] is missing or invalid"},
		{on: meta.DependencyReference{Kind: "Gadget", APIVersion: "a/b/c"}, want: "is missing or invalid"},
		{on: meta.DependencyReference{APIVersion: "v1"}, want: "but no kind. Set kind, or remove apiVersion"},
		{on: meta.DependencyReference{Kind: "Pod", ReadyExpr: "status +"}, want: "dependsOn[0].readyExpr is invalid"},
		{on: meta.DependencyReference{Kind: "Secret", ReadyExpr: "has(data.x)",
			NamespacedName: meta.NamespacedName{Namespace: "other"}},
			want: "Use another object, or conditions without data"},
		{on: meta.DependencyReference{ReadyExpr: "dep.status +"}, want: "the readyExpr of dependency"},
	} {
		k := &kustomizev1.Kustomization{}
		k.Spec.DependsOn = []meta.DependencyReference{c.on}
		got := fmt.Sprint(d.CheckSpec(k))
		if (got == "<nil>") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%+v: %s, want %q", c.on, got, c.want)
		}
	}
}

func TestDependenciesOfOtherKindsStayInTheNamespace(t *testing.T) {
	d := dependenciesOf(&graph{})
	d.Policy.NoCrossNamespace = true
	k := &kustomizev1.Kustomization{}
	k.Namespace, k.Name = "team", "app"
	k.Spec.DependsOn = []meta.DependencyReference{{Kind: "ConfigMap",
		NamespacedName: meta.NamespacedName{Namespace: "other", Name: "c"}}}
	outcome := d.Check(t.Context(), k, "", nil)
	if got := fmt.Sprint(outcome); !strings.Contains(got, "cross-namespace references have been blocked") {
		t.Error(got)
	}
}
