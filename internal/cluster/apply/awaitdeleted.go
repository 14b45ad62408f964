package apply

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
)

// watchPause is the pause before a watch for a deletion starts again, after the API server has ended it.
const watchPause = 10 * time.Second

// AwaitDeleted watches an object whose deletion was requested, and reports whether it is gone, or was created again. It
// returns false if the context ends before, or if the owner may not watch the object.
func (c *Cluster) AwaitDeleted(ctx context.Context, ref Ref) bool {
	resource, served, err := c.resourceOf(ref)
	if err != nil || !served {
		return err == nil
	}
	client := c.metadata.Resource(resource).Namespace(ref.Namespace)
	for {
		live, err := client.Get(ctx, ref.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return true
		case apierrors.IsForbidden(err):
			return false
		case err == nil && live.DeletionTimestamp == nil:
			return true
		case err == nil:
			isGone, err := watchUntilDeleted(ctx, client, live)
			if isGone || apierrors.IsForbidden(err) {
				return isGone
			}
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(watchPause):
		}
	}
}

// watchUntilDeleted reads a watch of an object until it is deleted. It reports false if the watch ends before that.
func watchUntilDeleted(ctx context.Context, client metadata.ResourceInterface,
	live *metav1.PartialObjectMetadata) (bool, error) {
	w, err := client.Watch(ctx, metav1.ListOptions{ResourceVersion: live.ResourceVersion,
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, live.Name).String()})
	if err != nil {
		return false, err
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case e, ok := <-w.ResultChan():
			if !ok || e.Type == apiwatch.Error {
				return false, nil
			}
			if e.Type == apiwatch.Deleted {
				return true, nil
			}
		}
	}
}
