package gate

import (
	"cmp"
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/fault"
)

// maxVisited bounds how many gates are visited to find a cycle.
const maxVisited = 1000

// checkCycle returns a fault if the gate depends on itself through checks of gates.
func (c *Controller) checkCycle(ctx context.Context, g *gatingv1.Gate) error {
	start := client.ObjectKeyFromObject(g)
	seen, next := map[types.NamespacedName]bool{}, checkedGates(g)
	for len(next) > 0 {
		key := next[0]
		next = next[1:]
		if key == start {
			return fault.New(gatingv1.CheckCycleReason, "the checks of gate '%s' form a cycle", start).
				WithHint("Remove one check of a gate from the cycle").Final()
		}
		if seen[key] {
			continue
		}
		seen[key] = true
		if len(seen) > maxVisited {
			return fault.New(gatingv1.CheckCycleReason, "gate '%s' depends on more than %d gates through its checks",
				start, maxVisited).Final()
		}
		var other gatingv1.Gate
		if err := c.Client.Get(ctx, key, &other); err == nil {
			next = append(next, checkedGates(&other)...)
		}
	}
	return nil
}

// checkedGates returns the gates that the checks of a gate read.
func checkedGates(g *gatingv1.Gate) []types.NamespacedName {
	var gates []types.NamespacedName
	for _, c := range g.Spec.Checks {
		o := c.Object
		if o == nil || o.Kind != gatingv1.GateKind {
			continue
		}
		if schema.FromAPIVersionAndKind(o.APIVersion, o.Kind).Group == gatingv1.GroupVersion.Group {
			gates = append(gates, types.NamespacedName{Namespace: cmp.Or(o.Namespace, g.Namespace), Name: o.Name})
		}
	}
	return gates
}
