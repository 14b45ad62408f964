// Package gate decides when gates are open: the controller of Gate, and the book of who waits for which.
package gate

import (
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
)

// Passes tells whether a gate lets a revision through now, by what its status says. It fails closed: a gate
// whose spec was not looked at yet lets nothing through, and one that was to close by now is closed even if
// nobody was there to close it.
func Passes(g *gatingv1.Gate, revision string, now time.Time) bool {
	opened := apimeta.IsStatusConditionTrue(g.Status.Conditions, gatingv1.OpenedCondition)
	if !opened || g.Status.ObservedGeneration != g.Generation || !g.DeletionTimestamp.IsZero() {
		return false
	}
	if next := g.Status.NextTransition; next != nil && next.State == gatingv1.Closed && !now.Before(next.At.Time) {
		return false
	}
	return len(g.Status.ApprovedRevisions) == 0 || approved(g.Status.ApprovedRevisions, revision)
}

// approved tells whether a revision, such as main@sha1:<hex>, is among those approved, which may be without their name.
func approved(revisions []string, revision string) bool {
	for _, r := range revisions {
		if _, digest, named := strings.Cut(revision, "@"); r != "" && (r == revision || named && r == digest) {
			return true
		}
	}
	return false
}
