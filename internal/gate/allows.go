package gate

import (
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/gate/verdict"
)

// Allows reports whether a gate allows a revision at a time, according to its status. It fails closed: a gate
// whose spec was not reconciled yet allows nothing, and a gate whose transition to closed is due is closed
// even if no controller has closed it. A gate that opened or was sealed later than now is closed until a controller
// evaluates it again: the clock was set back, and what opened the gate may not hold at this time.
func Allows(g *gatingv1.Gate, revision string, now time.Time) bool {
	opened := apimeta.IsStatusConditionTrue(g.Status.Conditions, gatingv1.OpenedCondition)
	if !opened || g.Status.ObservedGeneration != g.Generation || !g.DeletionTimestamp.IsZero() {
		return false
	}
	if h := g.Status.History; len(h) > 0 && h[0].At.After(now) {
		return false
	}
	if isSealedLater(g, now) {
		return false
	}
	if next := g.Status.NextTransition; next != nil && next.State == gatingv1.Closed && !now.Before(next.At.Time) {
		return false
	}
	return len(g.Status.ApprovedRevisions) == 0 || isApproved(g.Status.ApprovedRevisions, revision)
}

// isNew reports whether the gate controller has not evaluated the spec of a gate yet. Such a gate counts as closed.
func isNew(g *gatingv1.Gate) bool {
	return g.Status.ObservedGeneration != g.Generation && g.DeletionTimestamp.IsZero()
}

// isApproved reports whether a revision, such as main@sha1:<hex>, is in the list. The list may leave out the
// name before the "@".
func isApproved(revisions []string, revision string) bool {
	return slices.ContainsFunc(revisions, func(name string) bool { return verdict.Names(name, revision) })
}
