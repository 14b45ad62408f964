package rollout

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/cluster/health"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// Declared is what later steps of a pass need to know about declared objects.
type Declared struct {
	HasTTL     map[health.Target]bool // objects that are deleted automatically when they are done
	IsExcluded map[health.Target]bool // objects that are declared but not applied
	Yields     map[string]bool        // IDs of objects whose fields are left to others
}

// DeclaredBy returns what an owner declares. The namespace is that of objects which declare none; it may be empty.
func DeclaredBy(owner apply.Owner, objects []*unstructured.Unstructured, namespace string) Declared {
	d := Declared{map[health.Target]bool{}, map[health.Target]bool{}, map[string]bool{}}
	for _, o := range objects {
		gvk := o.GroupVersionKind()
		t := health.Target{Group: gvk.Group, Kind: gvk.Kind, Namespace: o.GetNamespace(), Name: o.GetName()}
		if apply.IsExcluded(o, owner) {
			d.IsExcluded[t] = true
		}
		if apply.Yields(o, owner) {
			ref := apply.Ref{Group: t.Group, Kind: t.Kind, Namespace: t.Namespace, Name: t.Name}
			d.Yields[ref.Entry().ID] = true
		}
		if t.Namespace = cmp.Or(t.Namespace, namespace); apply.HasTTL(o) {
			d.HasTTL[t] = true
		}
	}
	return d
}

// WithoutOwnNamespace returns an inventory without the namespace that the owner is in, and a message if it was there:
// its deletion would delete the owner, and everything else in the namespace.
func WithoutOwnNamespace(owner reconcile.Ref, inventory apply.Inventory) (apply.Inventory, string) {
	own := apply.Inventory{apply.Ref{Kind: "Namespace", Name: owner.Namespace, Version: "v1"}.Entry()}
	rest := inventory.Without(own)
	if len(rest) == len(inventory) {
		return inventory, ""
	}
	return rest, fmt.Sprintf("Namespace '%s' is kept, since the %s is in it. To delete it with everything "+
		"in it, run 'kubectl delete namespace %s'", owner.Namespace, owner.Kind, owner.Namespace)
}
