package gate

import (
	"cmp"
	"context"
	"slices"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const (
	maxVisited = 1000 // bounds how many gates are visited to find a cycle
	maxPath    = 8    // bounds how many steps of a cycle a message names
)

// dependency is a gate that another one depends on.
type dependency struct {
	gate types.NamespacedName
	path []string // how it was reached, for messages
}

// checkCycle returns a fault if the gate depends on itself: through checks of gates, or as it allows only revisions of
// objects that it holds back itself, directly or through other gates.
func (c *Controller) checkCycle(ctx context.Context, g *gatingv1.Gate) error {
	start := client.ObjectKeyFromObject(g)
	seen, next := map[types.NamespacedName]bool{}, c.dependencies(ctx, g, nil)
	for len(next) > 0 {
		d := next[0]
		next = next[1:]
		if d.gate == start {
			path := append(slices.Clone(d.path[:min(len(d.path), maxPath)]), "gate '"+start.String()+"'")
			return fault.New(gatingv1.CheckCycleReason, "the checks of gate '%s' form a cycle: %s", start,
				strings.Join(path, " → ")).WithHint("Remove one check of a gate from the cycle").Final()
		}
		if seen[d.gate] {
			continue
		}
		seen[d.gate] = true
		if len(seen) > maxVisited {
			return fault.New(gatingv1.CheckCycleReason, "gate '%s' depends on more than %d gates through its checks",
				start, maxVisited).Final()
		}
		var other gatingv1.Gate
		if err := c.Client.Get(ctx, d.gate, &other); err == nil {
			next = append(next, c.dependencies(ctx, &other, d.path)...)
		}
	}
	return nil
}

// dependencies returns the gates that a gate depends on through its checks. Path is how it was reached.
func (c *Controller) dependencies(ctx context.Context, g *gatingv1.Gate, path []string) []dependency {
	var out []dependency
	path = append(slices.Clone(path), "gate '"+client.ObjectKeyFromObject(g).String()+"'")
	for _, check := range g.Spec.Checks {
		if o := check.Object; o != nil && o.Kind == gatingv1.GateKind &&
			schema.FromAPIVersionAndKind(o.APIVersion, o.Kind).Group == gatingv1.GroupVersion.Group {
			key := types.NamespacedName{Namespace: cmp.Or(o.Namespace, g.Namespace), Name: o.Name}
			out = append(out, dependency{gate: key, path: path})
		}
		s := newMemberSelector(g, check.Revision)
		if s == nil || c.GatesOfMembers == nil {
			continue
		}
		c.GatesOfMembers(ctx, s, func(ref, gate reconcile.Ref) {
			member := ref.Kind + " '" + ref.NamespacedName.String() + "'"
			out = append(out, dependency{gate: gate.NamespacedName, path: append(slices.Clone(path), member)})
		})
	}
	return out
}

// GatesOfMembers returns a function that visits the gates which hold the objects of a check. It reads from the cache.
func GatesOfMembers(cache client.Reader, x *Index, kinds []GatedKind) func(ctx context.Context, s *memberSelector,
	visit func(member, gate reconcile.Ref)) {
	return func(ctx context.Context, s *memberSelector, visit func(member, gate reconcile.Ref)) {
		i := slices.IndexFunc(kinds, func(k GatedKind) bool { return k.Kind == string(s.kind) })
		if i < 0 {
			return // such objects are behind gates of another process
		}
		list := kinds[i].List.DeepCopyObject().(client.ObjectList)
		if cache.List(ctx, list, client.InNamespace(s.namespace), client.UnsafeDisableDeepCopy) != nil {
			return // the process stops
		}
		_ = apimeta.EachListItem(list, func(o runtime.Object) error { // the function returns no error
			obj, ok := o.(reconcile.Gated)
			if !ok || !s.selects(obj) {
				return nil
			}
			ref := reconcile.RefTo(kinds[i].GroupKind, obj.GetNamespace(), obj.GetName())
			for _, gate := range x.GatesFor(ref, obj) {
				visit(ref, gate)
			}
			return nil
		})
	}
}
