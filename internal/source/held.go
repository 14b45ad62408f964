package source

import (
	"context"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// pinner is a fetcher that can go back to a revision that it had.
type pinner[T Object] interface {
	// Pin makes the object's reference lead to the revision alone, and tells whether it can.
	Pin(obj T, revision string) bool
}

// held ends the pass of a source that gates hold. Its artifact is served on. One that is lost from the store is made again of the
// revision that it had, which was let through before; so a restart in the middle of a freeze costs nobody his artifacts.
func (k *Keeper[T]) held(ctx context.Context, pass *reconcile.Pass[T], had *meta.Artifact, found *Revision, err error) reconcile.Outcome {
	obj := pass.Object
	if had != nil && obj.GetArtifact() == nil {
		if err := k.restore(ctx, pass, had, found); err != nil {
			obj.SetArtifact(had) // so that the next pass knows what to restore
			return failed(obj, sourcev1.StorageOperationFailedCondition, fault.New(meta.StorageOperationFailedReason,
				"the artifact of revision '%s' was lost and cannot be made again while gates hold the source", had.Revision).Because(err))
		}
		reconcile.Unmark(obj, sourcev1.StorageOperationFailedCondition)
		markStored(obj, had.Revision)
	}
	if err != nil && !reconcile.IsHeld(err) {
		return reconcile.Held(meta.Pending{Message: err.Error()})
	}
	return reconcile.Held(meta.Pending{})
}

// restore makes the artifact again that the source had: of what was found, if that is its revision.
func (k *Keeper[T]) restore(ctx context.Context, pass *reconcile.Pass[T], had *meta.Artifact, found *Revision) error {
	if found == nil || found.Name != had.Revision {
		p, ok := k.Fetcher.(pinner[T])
		before := pass.Object.DeepCopyObject().(T)
		if !ok || !p.Pin(before, had.Revision) {
			return fault.New(meta.StorageOperationFailedReason, "the remote no longer offers it")
		}
		again := *pass
		again.Object, again.Stands = before, had.Revision
		var err error
		if found, err = k.Fetcher.Fetch(ctx, &again); err != nil {
			return err
		}
		if found.Name != had.Revision {
			return fault.New(meta.StorageOperationFailedReason, "the remote offers '%s' instead", found.Name)
		}
	}
	a, err := found.Put(ctx, k.key(pass.Object), nil)
	if err == nil {
		pass.Object.SetArtifact(a)
	}
	return err
}
