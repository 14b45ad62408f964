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

// maxCircle bounds how many gates are looked at for a circle.
const maxCircle = 1000

// circle returns a fault if the gate waits for itself, by way of checks of gates.
func (s *Gate) circle(ctx context.Context, g *gatingv1.Gate) error {
	start := client.ObjectKeyFromObject(g)
	seen, next := map[types.NamespacedName]bool{}, checked(g)
	for len(next) > 0 {
		key := next[0]
		next = next[1:]
		if key == start {
			return fault.New(gatingv1.CheckCycleReason, "the checks of gate '%s' lead back to it", start).
				WithHint("Take the check of a gate out of one of those in the circle").Final()
		}
		if seen[key] {
			continue
		}
		seen[key] = true
		if len(seen) > maxCircle {
			return fault.New(gatingv1.CheckCycleReason, "the checks of gate '%s' lead to more than %d gates", start,
				maxCircle).Final()
		}
		var other gatingv1.Gate
		if err := s.Client.Get(ctx, key, &other); err == nil {
			next = append(next, checked(&other)...)
		}
	}
	return nil
}

// checked returns the gates that a gate's checks are about.
func checked(g *gatingv1.Gate) []types.NamespacedName {
	var gates []types.NamespacedName
	for _, c := range g.Spec.Checks {
		if o := c.Object; o != nil && o.Kind == gatingv1.GateKind && schema.FromAPIVersionAndKind(o.APIVersion, o.Kind).
			Group == gatingv1.GroupVersion.Group {
			gates = append(gates, types.NamespacedName{Namespace: cmp.Or(o.Namespace, g.Namespace), Name: o.Name})
		}
	}
	return gates
}
