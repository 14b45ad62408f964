package kustomization

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/apply"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// maxHeirs bounds how many Kustomizations are built to see whether they take over an object.
const maxHeirs = 100

// inherited returns which of the objects that are no longer declared another Kustomization of the namespace
// declares at the same revision of the source, but did not get to yet. They are left for it to take over, as
// deleting them would be an outage for nothing, and are looked at again when it got there.
func (r *run) inherited(ctx context.Context, stale apply.Inventory) apply.Inventory {
	heirs := r.heirs(ctx)
	if len(heirs) == 0 {
		return nil
	}
	refs := r.References(r.obj)
	for _, h := range heirs {
		refs = append(refs, reconcile.RefTo(KustomizationGroupKind, h.Namespace, h.Name))
	}
	r.Clusters.Edges.Set(reconcile.RefTo(KustomizationGroupKind, r.obj.Namespace, r.obj.Name), refs)
	var left apply.Inventory
	for _, h := range heirs {
		for _, o := range r.declares(ctx, h) {
			for _, e := range stale {
				if names(e, o) && !left.Has(e) {
					left = append(left, e)
				}
			}
		}
	}
	return left
}

// heirs lists the Kustomizations that the revision makes apply something else, and that did not to the end yet.
func (r *run) heirs(ctx context.Context) []*kustomizev1.Kustomization {
	var list kustomizev1.KustomizationList
	if err := r.Client.List(ctx, &list, client.InNamespace(r.obj.Namespace)); err != nil {
		return nil // nobody is known
	}
	var heirs []*kustomizev1.Kustomization
	for n := range list.Items {
		k := &list.Items[n]
		pending := k.UID != r.obj.UID && k.DeletionTimestamp == nil && !k.Spec.Suspend &&
			k.Status.LastAppliedRevision != r.source.Revision
		if pending && sameSource(k, r.obj) && equality.Semantic.DeepEqual(k.Spec.KubeConfig, r.obj.Spec.KubeConfig) &&
			!r.untouched(ctx, k, r.source) && len(heirs) < maxHeirs {
			heirs = append(heirs, k)
		}
	}
	return heirs
}

// declares builds another Kustomization, and applies nothing. One that cannot be built declares nothing.
func (r *run) declares(ctx context.Context, obj *kustomizev1.Kustomization) []*unstructured.Unstructured {
	other := &run{Kustomization: r.Kustomization, obj: obj, source: r.source, memory: &memory{}}
	in, err := other.inputs(ctx)
	if err != nil {
		return nil
	}
	tree, err := r.Artifacts.Fetch(ctx, *r.source)
	if err != nil {
		return nil
	}
	built, err := other.make(ctx, tree, in)
	if err != nil {
		return nil
	}
	return built.Objects
}

// names tells whether an entry of an inventory is of an object as it is declared: its namespace may be left out.
func names(e apply.Entry, o *unstructured.Unstructured) bool {
	ref, err := e.Ref()
	gvk := o.GroupVersionKind()
	if err != nil || ref.Group != gvk.Group || ref.Kind != gvk.Kind || ref.Name != o.GetName() {
		return false
	}
	namespace := o.GetNamespace()
	return ref.Namespace == namespace || ref.Namespace == "" ||
		namespace == "" && ref.Namespace == metav1.NamespaceDefault
}
