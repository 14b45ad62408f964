package kustomization

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/apply"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// maxSuccessors is the maximum number of Kustomizations that are built to find out whether they adopt an object.
const maxSuccessors = 100

// handover is a set of objects that other Kustomizations are about to adopt.
type handover struct {
	objects apply.Inventory
	to      []string // names of the Kustomizations
}

// handover returns which stale objects of a Kustomization other Kustomizations of the namespace declare at the same
// revision of the source but have not applied yet. These objects must not be deleted, which would cause an outage. The
// Kustomization is enqueued when one of the others changes.
func (c *Controller) handover(ctx context.Context, obj *kustomizev1.Kustomization, source *meta.Artifact,
	stale apply.Inventory) handover {
	var h handover
	for _, s := range c.successors(ctx, obj, source) {
		c.Clusters.Edges.Add(refOf(obj), refOf(s))
		before := len(h.objects)
		for _, o := range c.declaredBy(ctx, s, source) {
			for _, e := range stale {
				if isSameObject(e, o) && !h.objects.Has(e) {
					h.objects = append(h.objects, e)
				}
			}
		}
		if len(h.objects) > before {
			h.to = append(h.to, s.Name)
		}
	}
	return h
}

// successors returns the Kustomizations that have not applied the revision yet and for which it changes the build.
func (c *Controller) successors(ctx context.Context, obj *kustomizev1.Kustomization,
	source *meta.Artifact) []*kustomizev1.Kustomization {
	var list kustomizev1.KustomizationList
	if err := c.Client.List(ctx, &list, client.InNamespace(obj.Namespace)); err != nil {
		return nil
	}
	var successors []*kustomizev1.Kustomization
	for n := range list.Items {
		k := &list.Items[n]
		pending := k.UID != obj.UID && k.DeletionTimestamp == nil && !k.Spec.Suspend &&
			k.Status.LastAppliedRevision != source.Revision
		if pending && haveSameSource(k, obj) && meta.Equal(k.Spec.KubeConfig, obj.Spec.KubeConfig) &&
			!c.isUnaffected(ctx, k, source) && len(successors) < maxSuccessors {
			successors = append(successors, k)
		}
	}
	return successors
}

// declaredBy returns the objects that a Kustomization builds from the source; none if the build fails.
func (c *Controller) declaredBy(ctx context.Context, obj *kustomizev1.Kustomization,
	source *meta.Artifact) []*unstructured.Unstructured {
	in, err := c.readInputs(ctx, obj)
	if err != nil {
		return nil
	}
	tree, err := c.fetch(ctx, obj, source)
	if err != nil {
		return nil
	}
	built, err := c.buildTree(ctx, obj, tree, in)
	if err != nil {
		return nil
	}
	return built.Objects
}

// isSameObject reports whether an inventory entry is the entry of a declared object, which may omit its namespace.
func isSameObject(e apply.Entry, o *unstructured.Unstructured) bool {
	ref, err := e.Ref()
	gvk := o.GroupVersionKind()
	if err != nil || ref.Group != gvk.Group || ref.Kind != gvk.Kind || ref.Name != o.GetName() {
		return false
	}
	return ref.Namespace == o.GetNamespace() || ref.Namespace == "" || o.GetNamespace() == ""
}

var _ reconcile.Step[*kustomizev1.Kustomization] = &Controller{}
