package kustomization

import (
	"context"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/log"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
)

// promoted returns the newest artifact that gates promote, if the source has already moved on: one that was held
// before, and is newer than the applied one. It returns nil if there is none.
func (r *run) promoted(ctx context.Context) *meta.Artifact {
	if _, awaits := r.pass.Promoted(); !awaits {
		return nil
	}
	owner, key := string(r.obj.UID), sourceKey(r.obj)
	if r.source.Revision != r.obj.Status.LastAppliedRevision {
		if err := r.Promotable.Add(ctx, owner, key, *r.source, r.pass.Promotes); err != nil {
			log.FromContext(ctx).Error(err, "cannot retain an artifact; it cannot be applied if a gate promotes it "+
				"after the source has moved on")
		}
	}
	for _, a := range r.Promotable.List(owner, key) {
		if a.Revision == r.source.Revision || !r.pass.Promotes(a.Revision) ||
			!r.admits(r.newProposal(ctx, r.pass, &a)) {
			continue
		}
		r.pass.RequireAnother() // which reports what waits behind it
		return &a
	}
	return nil
}

// explainMissing returns why a promoted revision is not applied: its artifact is no longer stored. It is empty if no
// other revision than the current ones is promoted.
func (r *run) explainMissing() string {
	promoted, _ := r.pass.Promoted()
	if len(promoted) == 0 || r.pass.Promotes(r.proposal.source.Revision) ||
		r.pass.Promotes(r.obj.Status.LastAppliedRevision) {
		return ""
	}
	for _, a := range r.Promotable.List(string(r.obj.UID), sourceKey(r.obj)) {
		if r.pass.Promotes(a.Revision) {
			return ""
		}
	}
	return fmt.Sprintf("revision '%s' is promoted, but its artifact is not stored: the source has moved on, "+
		"and it was not seen here before. Let the gate promote the revision that the source has, or let the source "+
		"fetch the promoted one, by spec.ref.commit of a GitRepository, for example", strings.Join(promoted, "', '"))
}

// dropPromotable removes the artifacts that were held before what has been applied now.
func (r *run) dropPromotable(ctx context.Context) {
	if err := r.Promotable.Drop(string(r.obj.UID), sourceKey(r.obj), *r.source); err != nil {
		log.FromContext(ctx).Error(err, "cannot remove a retained artifact")
	}
}

// isPassedBy reports whether a dependency has applied what the source has now, if an object applies an earlier
// revision.
func (c *Controller) isPassedBy(ctx context.Context, dependency *kustomizev1.Kustomization,
	applies *meta.Artifact) bool {
	now, outcome := c.source(ctx, dependency)
	return outcome == nil && now.Revision != applies.Revision &&
		dependency.Status.LastAppliedRevision == now.Revision &&
		now.LastUpdateTime.After(applies.LastUpdateTime.Time)
}
