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
	// Pin makes the object's reference lead to the revision alone.
	// It returns the name that the revision has then, or none if it cannot.
	Pin(obj T, revision string) string
}

// held ends the pass of a source that gates hold. Its artifact is served on. One that is lost from the store
// is made again of the revision that it had, which was let through before; so a restart in the middle of a
// freeze costs nobody his artifacts.
func (k *Keeper[T]) held(ctx context.Context, pass *reconcile.Pass[T], had *meta.Artifact, found *Revision,
	err error) reconcile.Outcome {
	obj := pass.Object
	if had != nil && obj.GetArtifact() == nil {
		if err := k.restore(ctx, pass, had, found); err != nil {
			obj.SetArtifact(had) // so that the next pass knows what to restore
			return failed(obj, sourcev1.StorageOperationFailedCondition, fault.New(meta.StorageOperationFailedReason,
				"the artifact of revision '%s' was lost and cannot be made again while gates hold the source",
				had.Revision).Because(err))
		}
		reconcile.Unmark(obj, sourcev1.StorageOperationFailedCondition)
		markStored(obj, had.Revision)
	}
	switch {
	case err == nil:
		return reconcile.Held(meta.Pending{})
	case reconcile.IsHeld(err):
		return reconcile.Failed(err)
	default:
		return reconcile.Held(meta.Pending{Message: err.Error()})
	}
}

var errMovedOn = fault.New(meta.StorageOperationFailedReason, "the remote has moved on").
	WithHint("Open the gates to take up what there is now")

// restore makes the artifact again that the source had: of what was found, if that is its revision.
func (k *Keeper[T]) restore(ctx context.Context, pass *reconcile.Pass[T], had *meta.Artifact, found *Revision) error {
	if found == nil || found.Name != had.Revision {
		p, ok := k.Fetcher.(pinner[T])
		if !ok {
			return errMovedOn
		}
		again := *pass
		again.Object = pass.Object.DeepCopyObject().(T)
		if again.CurrentRevision = p.Pin(again.Object, had.Revision); again.CurrentRevision == "" {
			return errMovedOn
		}
		var err error
		if found, err = k.Fetcher.Fetch(ctx, &again); err != nil {
			return err
		}
		if found.Name != again.CurrentRevision {
			return errMovedOn
		}
	}
	a, err := found.Put(ctx, k.key(pass.Object), nil)
	if err == nil {
		a.Revision = had.Revision // a pinned one may go by its digest alone
		pass.Object.SetArtifact(a)
	}
	return err
}
