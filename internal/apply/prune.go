package apply

import (
	"context"
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/fault"
)

// Prune deletes the objects of an inventory that still carry the owner's labels, in the reverse order of applying; what
// they own goes in the background. What is gone already is no error, and no change. What another owner took
// over is left, and so is what says that it is not to be pruned, which the changes list as skipped.
func (c *Cluster) Prune(ctx context.Context, owner Owner, stale Inventory) ([]Change, error) {
	items, problems := c.options.staleItems(stale)
	for _, i := range items {
		c.dropRef(owner, i.ref) // its end is no drift
	}
	r := &run{Cluster: c, req: Request{Owner: owner}, items: items}
	for _, stage := range c.options.stages(items) {
		if found := r.each(ctx, stage, r.prune); slices.ContainsFunc(found,
			func(err error) bool { return err != nil }) {
			problems = append(problems, found...)
			break // what others build on stays until they are gone
		}
	}
	if err := join(problems, "%d objects could not be deleted"); err != nil {
		return changes(items), fault.New(meta.PruneFailedReason, "pruning failed").Because(err)
	}
	return changes(items), nil
}

// Owned returns those of an inventory that are there and carry the owner's labels, but for what is on its way out.
func (c *Cluster) Owned(ctx context.Context, owner Owner, of Inventory) (Inventory, error) {
	items, problems := c.options.staleItems(of)
	r := &run{Cluster: c, req: Request{Owner: owner}, items: items}
	problems = append(problems, r.each(ctx, items, func(ctx context.Context, i *item) error {
		_, err := r.stale(ctx, i)
		return err
	})...)
	var owned Inventory
	for _, i := range items {
		if i.done {
			owned = append(owned, i.ref.Entry())
		}
	}
	return owned, join(problems, "%d objects cannot be looked at")
}

// staleItems returns items in the order of deleting them, and what of the inventory cannot be read.
func (o ClusterOptions) staleItems(stale Inventory) (items []*item, problems []error) {
	for _, e := range stale {
		if ref, err := e.Ref(); err != nil {
			problems = append(problems, err)
		} else {
			items = append(items, &item{ref: ref})
		}
	}
	slices.SortFunc(items, func(a, b *item) int { return o.byRank(b, a) })
	return items, problems
}

// pruneAttempts is how often an object that changes all the time is tried to be deleted as it was looked at.
const pruneAttempts = 10

var errBusy = errors.New("it changes all the time")

// prune deletes an item. What changes between a look at it and its deletion is looked at again: another owner may have
// taken it over.
func (r *run) prune(ctx context.Context, i *item) error {
	for range pruneAttempts {
		live, err := r.stale(ctx, i)
		if err != nil || i.action != Deleted {
			return err
		}
		policy := metav1.DeletePropagationBackground
		err = r.metadata.Resource(i.resource).Namespace(i.ref.Namespace).Delete(ctx, i.ref.Name, metav1.DeleteOptions{
			PropagationPolicy: &policy, Preconditions: &metav1.Preconditions{UID: &live.UID,
				ResourceVersion: &live.ResourceVersion},
		})
		switch {
		case err == nil:
			return nil
		case apierrors.IsNotFound(err):
			i.done = false
			return nil
		case !apierrors.IsConflict(err):
			i.done = false
			return cannotDelete(i, err)
		}
	}
	i.done = false
	return cannotDelete(i, errBusy)
}

// stale finds out what is to be done about an item that is no longer declared: it is Deleted or Skipped, or not done if
// there is nothing to do.
func (r *run) stale(ctx context.Context, i *item) (*metav1.PartialObjectMetadata, error) {
	i.done, i.action = false, ""
	resource, served, err := r.resource(i.ref)
	if err != nil {
		return nil, cannotDelete(i, err)
	}
	if !served {
		return nil, nil // the kind is gone, and its objects with it
	}
	i.resource = resource
	live, err := r.metadata.Resource(resource).Namespace(i.ref.Namespace).Get(ctx, i.ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, cannotDelete(i, err)
	case !r.req.Owner.owns(live.Labels) || live.DeletionTimestamp != nil:
		return nil, nil
	}
	i.done = true
	if leftAlone(live, r.req.Owner) || steered(live, r.req.Owner, pruneKey, "disabled") {
		return live, i.found(Skipped)
	}
	return live, i.found(Deleted)
}

func cannotDelete(i *item, err error) error {
	return fault.New(meta.PruneFailedReason, "cannot delete %s", i.ref).Because(err)
}

// WaitUntilDeleted waits, woken by their changes, until none of the inventory's objects that carry the owner's
// labels and are on their way out is there any more, for as long as the context and the cluster's patience
// last.
func (c *Cluster) WaitUntilDeleted(ctx context.Context, owner Owner, gone Inventory) error {
	items, _ := c.options.staleItems(gone) // what cannot be read was never applied
	r := &run{Cluster: c, req: Request{Owner: owner}, items: items}
	return join(r.each(ctx, items, func(ctx context.Context, i *item) error {
		resource, served, err := r.resource(i.ref)
		if err != nil || !served {
			return err
		}
		live, err := c.metadata.Resource(resource).Namespace(i.ref.Namespace).Get(ctx, i.ref.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && (live.DeletionTimestamp == nil || !owner.owns(live.Labels)) {
			return nil
		}
		return c.gone(ctx, resource, i.ref)
	}), "%d objects are still there")
}

// resource finds what serves a kind. It reports false only if the cluster is sure that nothing does: a discovery that
// failed in part, as it does while an aggregated API is down, says nothing of the kinds behind it.
func (c *Cluster) resource(ref Ref) (schema.GroupVersionResource, bool, error) {
	mapping, err := c.mapper.RESTMapping(ref.groupKind(), ref.Version)
	if apimeta.IsNoMatchError(err) {
		c.mapper.Reset()
		mapping, err = c.mapper.RESTMapping(ref.groupKind()) // any version will do
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
