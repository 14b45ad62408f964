package source

import (
	"context"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// pinner is a fetcher that can fetch an earlier revision again.
type pinner[T Object] interface {
	// Pin changes the reference of the object so that it resolves to the revision. It returns the name that the
	// revision then has, or "" if the revision cannot be pinned.
	Pin(obj T, revision string) string
}

// held ends the pass of a source that gates hold. The artifact stays available. If its file was lost, it is made again
// from the revision that it had, which gates admitted before. err is the error of Resolve or Admit, if any.
func (c *Controller[T, R]) held(ctx context.Context, pass *reconcile.Pass[T], req Request[T], previous *meta.Artifact,
	resolved R, err error) reconcile.Outcome {
	obj := req.Object
	if previous != nil && obj.GetArtifact() == nil {
		var found *R
		if err == nil || reconcile.IsHeld(err) {
			found = &resolved
		}
		lost := errNotAdmitted
		if pass.WasAdmitted(previous.Revision) {
			lost = c.restore(ctx, req, previous, found)
		}
		if err := lost; err != nil {
			obj.SetArtifact(previous) // so that the next pass restores it
			return failed(obj, sourcev1.StorageOperationFailedCondition, fault.New(meta.StorageOperationFailedReason,
				"the file of the artifact of revision '%s' is missing, and it cannot be restored while a gate "+
					"is closed",
				previous.Revision).Because(err))
		}
		reconcile.Unmark(obj, sourcev1.StorageOperationFailedCondition)
		markStored(obj, previous.Revision)
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

var errNotAvailable = fault.New(meta.StorageOperationFailedReason, "the source no longer offers this revision").
	WithHint(openGatesHint)

var errNotAdmitted error = fault.New(meta.StorageOperationFailedReason, "it is not known that gates let it through").
	WithHint(openGatesHint)

// openGatesHint is the hint if an artifact cannot be restored while a gate is closed.
const openGatesHint = "Open the gates to fetch the current revision"

// restore makes the artifact again that the source had. Resolved is the current revision, nil if it is unknown.
func (c *Controller[T, R]) restore(ctx context.Context, req Request[T], previous *meta.Artifact, resolved *R) error {
	obj := req.Object
	if resolved == nil || (*resolved).String() != previous.Revision {
		if resolved != nil {
			closeRevision(*resolved) // it may lock what the pinned one needs
		}
		pinned, err := c.resolvePinned(ctx, &req, previous.Revision)
		if err != nil {
			return err
		}
		defer closeRevision(pinned)
		resolved = &pinned
	}
	fetched, err := c.Fetcher.Fetch(ctx, req, *resolved)
	if err != nil {
		return err
	}
	if fetched.isUnchanged() {
		return errNotAvailable
	}
	a, err := c.put(ctx, obj, (*resolved).String(), fetched, nil)
	if err != nil {
		return err
	}
	a.Revision = previous.Revision // the name of a pinned revision may be the digest alone
	obj.SetArtifact(a)
	return nil
}

// resolvePinned resolves an earlier revision. It changes the request to one for an object with that revision.
func (c *Controller[T, R]) resolvePinned(ctx context.Context, req *Request[T], revision string) (resolved R,
	err error) {
	p, ok := c.Fetcher.(pinner[T])
	if !ok {
		return resolved, errNotAvailable
	}
	req.Object = req.Object.DeepCopyObject().(T)
	name := p.Pin(req.Object, revision)
	if name == "" {
		return resolved, errNotAvailable
	}
	if resolved, err = c.Fetcher.Resolve(ctx, *req); err != nil {
		return resolved, err
	}
	if resolved.String() != name {
		closeRevision(resolved)
		return resolved, errNotAvailable
	}
	return resolved, nil
}
