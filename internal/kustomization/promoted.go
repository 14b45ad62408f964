package kustomization

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/rollout"
)

// admitPromoted admits the newest revision that gates promote, if the source has already moved on: an artifact that was
// held before, which is newer than the applied one. It returns nil if there is none.
func (c *Controller) admitPromoted(ctx context.Context, pass *reconcile.Pass[*kustomizev1.Kustomization],
	source *meta.Artifact) (*work, *reconcile.Outcome) {
	if _, awaits := pass.Promoted(); !awaits {
		return nil, nil
	}
	obj := pass.Object
	owner, key := string(obj.UID), sourceKey(obj)
	if source.Revision != obj.Status.LastAppliedRevision {
		if err := c.Promotable.Add(ctx, owner, key, *source, pass.Promotes); err != nil {
			log.FromContext(ctx).Error(err, "cannot retain an artifact; it cannot be applied if a gate promotes it "+
				"after the source has moved on")
		}
	}
	for _, a := range c.Promotable.List(owner, key) {
		if a.Revision == source.Revision || !pass.Promotes(a.Revision) {
			continue
		}
		p := c.newProposal(ctx, pass, &a)
		if rollout.Admit(&c.stateOf(obj).decided, pass, a.Revision, p.what, p.propose) != nil {
			continue
		}
		pass.RequireAnother() // which reports what waits behind it
		if waiting := c.checkDependencies(ctx, obj, &a); waiting != nil {
			return nil, ptr.To(waiting.WithArtifact(&a))
		}
		return &work{source: &a}, nil
	}
	return nil, nil
}

// explainMissing returns why a promoted revision is not applied: its artifact is no longer stored. It is empty if no
// other revision than the current ones is promoted.
func (c *Controller) explainMissing(pass *reconcile.Pass[*kustomizev1.Kustomization], source *meta.Artifact) string {
	promoted, _ := pass.Promoted()
	if len(promoted) == 0 || pass.Promotes(source.Revision) || pass.Promotes(pass.Object.Status.LastAppliedRevision) {
		return ""
	}
	for _, a := range c.Promotable.List(string(pass.Object.UID), sourceKey(pass.Object)) {
		if pass.Promotes(a.Revision) {
			return ""
		}
	}
	return fmt.Sprintf("revision '%s' is promoted, but its artifact is not stored: the source has moved on, "+
		"and it was not seen here before. Let the gate promote the revision that the source has, or let the source "+
		"fetch the promoted one, by spec.ref.commit of a GitRepository, for example", strings.Join(promoted, "', '"))
}

// dropPromotable removes the artifacts that were held before what has been applied now.
func (c *Controller) dropPromotable(ctx context.Context, obj *kustomizev1.Kustomization, applied meta.Artifact) {
	if err := c.Promotable.Drop(string(obj.UID), sourceKey(obj), applied); err != nil {
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

// warnOnce reports a promoted revision that is not stored, unless it is the last reported one.
func (s *applyState) warnOnce(report *rollout.Report, text string) {
	if text != s.missing {
		report.Warn(meta.ArtifactFailedReason, text)
	}
	s.missing = text
}
