package apply

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/fault"
)

// Prune deletes the objects of an inventory that still carry the owner's labels, in the reverse order of applying. What is
// gone already is no error; what another owner took over, and what says that it is not to be pruned, is left.
func (c *Cluster) Prune(ctx context.Context, owner Owner, stale Inventory) ([]Change, error) {
	var refs []Ref
	var problems []error
	for _, e := range stale {
		ref, err := e.Ref()
		if err != nil {
			problems = append(problems, err)
			continue
		}
		refs = append(refs, ref)
	}
	slices.SortStableFunc(refs, func(a, b Ref) int { return rank(b) - rank(a) })
	var changes []Change
	for _, ref := range refs {
		done, err := c.pruneOne(ctx, owner, ref)
		if err != nil {
			problems = append(problems, fault.New(meta.PruneFailedReason, "cannot delete %s", ref).Because(err))
			continue
		}
		if done {
			changes = append(changes, Change{ref, Deleted})
		}
	}
	if err := join(problems); err != nil {
		return changes, fault.New(meta.PruneFailedReason, "pruning failed").Because(err)
	}
	return changes, nil
}

func (c *Cluster) pruneOne(ctx context.Context, owner Owner, ref Ref) (bool, error) {
	mapping, err := c.mapper.RESTMapping(ref.groupKind(), ref.Version)
	if apimeta.IsNoMatchError(err) {
		c.mapper.Reset()
		mapping, err = c.mapper.RESTMapping(ref.groupKind())
	}
	if apimeta.IsNoMatchError(err) {
		return false, nil // the kind is gone, and its objects with it
	}
	if err != nil {
		return false, err
	}
	resource := c.client(mapping.Resource, ref.Namespace)
	live, err := resource.Get(ctx, ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !owner.owns(live.GetLabels()) || live.GetDeletionTimestamp() != nil || keeps(live, owner) {
		return false, nil
	}
	policy, uid := metav1.DeletePropagationBackground, live.GetUID()
	err = resource.Delete(ctx, ref.Name, metav1.DeleteOptions{
		PropagationPolicy: &policy, Preconditions: &metav1.Preconditions{UID: &uid},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return false, nil // gone, or another object by the same name by now
	}
	return err == nil, err
}

// keeps tells whether the object says that it is to stay.
func keeps(live *unstructured.Unstructured, owner Owner) bool {
	return annotated(live, owner, pruneAnnotation, "disabled") || annotated(live, owner, reconcileAnnotation, "disabled") ||
		annotated(live, owner, ssaAnnotation, "Ignore")
}

// Remaining lists the objects of an inventory that still stand and carry the owner's labels.
func (c *Cluster) Remaining(ctx context.Context, owner Owner, inventory Inventory) ([]Ref, error) {
	var left []Ref
	for _, e := range inventory {
		ref, err := e.Ref()
		if err != nil {
			return nil, err
		}
		mapping, err := c.mapper.RESTMapping(ref.groupKind())
		if apimeta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		live, err := c.client(mapping.Resource, ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, err
		case owner.owns(live.GetLabels()) && !keeps(live, owner):
			left = append(left, ref)
		}
	}
	return left, nil
}
