package apply

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// FailedJob returns the UID of a Job of the owner that has failed; empty if it has not, or is not the owner's.
func (c *Cluster) FailedJob(ctx context.Context, owner Owner, ref Ref) (types.UID, error) {
	resource, served, err := c.resourceOf(ref)
	if err != nil || !served {
		return "", err
	}
	live, err := c.client(resource, ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("cannot read %s: %w", ref, err)
	}
	if !owner.owns(live.GetLabels()) {
		return "", nil
	}
	conditions, _, _ := unstructured.NestedSlice(live.Object, "status", "conditions")
	for _, v := range conditions {
		if condition := asMap(v); condition["type"] == "Failed" && condition["status"] == "True" {
			return live.GetUID(), nil
		}
	}
	return "", nil
}

// DeleteJob deletes a Job of the owner with its pods, if it still has the UID, and waits until it is gone; see
// [IsWaiting].
func (c *Cluster) DeleteJob(ctx context.Context, owner Owner, ref Ref, uid types.UID) error {
	resource, served, err := c.resourceOf(ref)
	if err != nil || !served {
		return err
	}
	c.untrack(owner, ref) // the deletion is not drift
	policy := metav1.DeletePropagationForeground
	err = c.client(resource, ref.Namespace).Delete(ctx, ref.Name, metav1.DeleteOptions{PropagationPolicy: &policy,
		Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil && !isGone(err) {
		return fmt.Errorf("cannot delete %s: %w", ref, err)
	}
	return (&run{Cluster: c}).waitDeleted(ctx, resource, ref)
}
