package apply

import (
	"context"
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// staleObject is an object of an inventory that is no longer declared.
type staleObject struct {
	ref      Ref
	resource schema.GroupVersionResource
	action   Action                     // Deleted or Skipped; empty if there is nothing to do
	heldBy   []string                   // finalizers of a deleted object, which exists until they are removed
	before   *unstructured.Unstructured // of a preview that inspects
}

func (o *staleObject) reference() Ref { return o.ref }

func staleChanges(stale []*staleObject) []Change {
	var out []Change
	for _, o := range stale {
		if o.action != "" {
			out = append(out, Change{Ref: o.ref, Action: o.action, HeldBy: o.heldBy, Before: o.before})
		}
	}
	return out
}

// Prune deletes the objects of an inventory that carry the owner's labels, in the reverse order of applying, with
// background propagation. Objects that do not exist, or belong to another owner, are not in the changes. Objects that
// must not be pruned are skipped.
func (c *Cluster) Prune(ctx context.Context, owner Owner, inventory Inventory) ([]Change, error) {
	stale, problems := c.options.staleObjects(inventory)
	for _, o := range stale {
		c.untrack(owner, o.ref) // the deletion is not drift
	}
	for _, stage := range stages(c.options, stale) {
		found := each(ctx, c.options.Concurrency, stage,
			func(ctx context.Context, o *staleObject) error { return c.prune(ctx, owner, o) })
		if slices.ContainsFunc(found, func(err error) bool { return err != nil }) {
			problems = append(problems, found...)
			break // objects that others depend on stay until those are deleted
		}
	}
	if err := join(problems, "%d objects could not be deleted"); err != nil {
		return staleChanges(stale), fault.New(meta.PruneFailedReason, "pruning failed").Because(err)
	}
	return staleChanges(stale), nil
}

// Owned returns the entries of an inventory whose objects exist, carry the owner's labels, and are not being deleted.
func (c *Cluster) Owned(ctx context.Context, owner Owner, inventory Inventory) (Inventory, error) {
	stale, problems := c.options.staleObjects(inventory)
	problems = append(problems, each(ctx, c.options.Concurrency, stale,
		func(ctx context.Context, o *staleObject) error {
			_, err := c.checkStale(ctx, owner, o)
			return err
		})...)
	var owned Inventory
	for _, o := range stale {
		if o.action != "" {
			owned = append(owned, o.ref.Entry())
		}
	}
	return owned, join(problems, "%d objects could not be read")
}

// staleObjects returns the objects of an inventory in the order of deletion, and the errors of invalid entries.
func (o ClusterOptions) staleObjects(inventory Inventory) (stale []*staleObject, problems []error) {
	for _, e := range inventory {
		if ref, err := e.Ref(); err != nil {
			problems = append(problems, err)
		} else {
			stale = append(stale, &staleObject{ref: ref})
		}
	}
	slices.SortFunc(stale, byRank[*staleObject](o))
	slices.Reverse(stale)
	return stale, problems
}

// helmPolicy is the annotation by which Helm keeps an object of a release that is uninstalled.
const (
	helmPolicy = "helm.sh/resource-policy"
	helmGroup  = "helm.toolkit.fluxcd.io"
)

// maxPruneAttempts is the number of attempts to delete an object that changes between the check and the deletion.
const maxPruneAttempts = 10

var errKeepsChanging = errors.New("the object keeps changing")

// prune deletes an object. If the object changes between the check and the deletion, it is checked again, because
// another owner may have taken it over.
func (c *Cluster) prune(ctx context.Context, owner Owner, o *staleObject) error {
	for range maxPruneAttempts {
		live, err := c.checkStale(ctx, owner, o)
		if err != nil || o.action != Deleted {
			return err
		}
		policy := metav1.DeletePropagationBackground
		err = c.metadata.Resource(o.resource).Namespace(o.ref.Namespace).Delete(ctx, o.ref.Name, metav1.DeleteOptions{
			PropagationPolicy: &policy, Preconditions: &metav1.Preconditions{UID: &live.UID,
				ResourceVersion: &live.ResourceVersion},
		})
		switch {
		case err == nil:
			o.heldBy = live.Finalizers
			return nil
		case apierrors.IsNotFound(err):
			o.action = ""
			return nil
		case !apierrors.IsConflict(err):
			o.action = ""
			return cannotDelete(o, err)
		}
	}
	o.action = ""
	return cannotDelete(o, errKeepsChanging)
}

// checkStale sets the action for an object that is no longer declared. It returns the live object if there is one.
func (c *Cluster) checkStale(ctx context.Context, owner Owner, o *staleObject) (*metav1.PartialObjectMetadata, error) {
	o.action = ""
	live, err := c.metadataOf(ctx, o)
	switch {
	case err != nil:
		return nil, cannotDelete(o, err)
	case live == nil, !owner.owns(live.Labels), live.DeletionTimestamp != nil:
		return nil, nil
	case IsExcluded(live, owner), hasPolicy(live, owner, pruneKey, "disabled"),
		live.Annotations[helmPolicy] == "keep" && owner.Group == helmGroup:
		o.action = Skipped
	default:
		o.action = Deleted
	}
	return live, nil
}

// metadataOf returns the metadata of a live object; nil if it does not exist. It sets the resource of the object.
func (c *Cluster) metadataOf(ctx context.Context, o *staleObject) (*metav1.PartialObjectMetadata, error) {
	resource, served, err := c.resourceOf(o.ref)
	if err != nil || !served {
		return nil, err // objects of a kind that is not served do not exist
	}
	o.resource = resource
	live, err := c.metadata.Resource(resource).Namespace(o.ref.Namespace).Get(ctx, o.ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return live, err
}

func cannotDelete(o *staleObject, err error) error {
	return fault.New(meta.PruneFailedReason, "cannot delete %s", o.ref).Because(err)
}

// WaitUntilDeleted waits until no object of the inventory that carries the owner's labels is being deleted any more. It
// waits until the context or the cluster's WaitTimeout ends; see [IsWaiting].
func (c *Cluster) WaitUntilDeleted(ctx context.Context, owner Owner, inventory Inventory) error {
	stale, _ := c.options.staleObjects(inventory) // objects of invalid entries were never applied
	r := &run{Cluster: c}
	return join(each(ctx, c.options.Concurrency, stale, func(ctx context.Context, o *staleObject) error {
		live, err := c.metadataOf(ctx, o)
		if err == nil && (live == nil || live.DeletionTimestamp == nil || !owner.owns(live.Labels)) {
			return nil
		}
		if o.resource.Empty() {
			return err
		}
		return r.waitDeleted(ctx, o.resource, o.ref)
	}), "%d objects still exist")
}

// resourceOf returns the resource of a kind. It reports false only if the cluster certainly does not serve the kind. If
// discovery fails for some groups, as it does while an aggregated API is down, it returns an error.
func (c *Cluster) resourceOf(ref Ref) (schema.GroupVersionResource, bool, error) {
	mapping, err := c.mapper.RESTMapping(ref.groupKind(), ref.Version)
	if apimeta.IsNoMatchError(err) {
		c.mapper.Reset()
		mapping, err = c.mapper.RESTMapping(ref.groupKind()) // in any version
	}
	if err == nil {
		return mapping.Resource, true, nil
	}
	if !apimeta.IsNoMatchError(err) {
		return schema.GroupVersionResource{}, false, err
	}
	_, err = c.discovery.ServerResourcesForGroupVersion(schema.GroupVersion{Group: ref.Group,
		Version: ref.Version}.String())
	if err != nil && !apierrors.IsNotFound(err) {
		return schema.GroupVersionResource{}, false, err
	}
	return schema.GroupVersionResource{}, false, nil
}
