package decision

import (
	"slices"
	"strconv"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
)

// Allows reports whether a gate allows a revision at a time, according to its status. It fails closed: a gate
// whose spec was not reconciled yet allows nothing, and a gate whose transition to closed is due is closed
// even if no controller has closed it. A gate that opened or was sealed later than now is closed until a controller
// evaluates it again: the clock was set back, and what opened the gate may not hold at this time.
func Allows(g *gatingv1.Gate, revision string, now time.Time) bool {
	opened := apimeta.IsStatusConditionTrue(g.Status.Conditions, gatingv1.OpenedCondition)
	if !opened || !isCurrent(g, now) {
		return false
	}
	if h := g.Status.History; len(h) > 0 && h[0].At.After(now) {
		return false
	}
	if next := g.Status.NextTransition; next != nil && next.State == gatingv1.Closed && !now.Before(next.At.Time) {
		return false
	}
	return len(g.Status.ApprovedRevisions) == 0 || slices.ContainsFunc(g.Status.ApprovedRevisions,
		func(name string) bool { return Names(name, revision) })
}

// isCurrent reports whether the status of a gate is about its spec and about a time.
func isCurrent(g *gatingv1.Gate, now time.Time) bool {
	return g.Status.ObservedGeneration == g.Generation && g.DeletionTimestamp.IsZero() && !IsSealedLater(g, now)
}

// Names reports whether a name is that of a revision, such as main@sha1:<hex>. The name may leave out the part before
// the "@".
func Names(name, revision string) bool {
	_, digest, hasName := strings.Cut(revision, "@")
	return name != "" && (name == revision || hasName && name == digest)
}

// isNew reports whether the gate controller has not evaluated the spec of a gate yet. Such a gate counts as closed.
func isNew(g *gatingv1.Gate) bool {
	return g.Status.ObservedGeneration != g.Generation && g.DeletionTimestamp.IsZero()
}

// IsOverridden reports whether an override is in effect. The seal covers it.
func IsOverridden(g *gatingv1.Gate) bool {
	return g.Status.Why != nil && g.Status.Why.Reason == gatingv1.WhyOverridden
}

// IsFailureHold reports whether a gate is closed only because a change that it let through is unhealthy. The seal
// covers it.
func IsFailureHold(g *gatingv1.Gate) bool {
	return g.Status.Why != nil && g.Status.Why.Reason == gatingv1.WhyRevisionFailed
}

// holdsFor returns the newest failure for which a gate holds all changes, or nil. The gate may be closed for another
// reason, too. The seal covers it.
func holdsFor(g *gatingv1.Gate) *gatingv1.FailedChange {
	n := slices.IndexFunc(g.Status.Failures, func(f gatingv1.FailedChange) bool { return f.ResolvedAt == nil })
	if g.Spec.OnFailure != gatingv1.OnFailureHold || n < 0 {
		return nil
	}
	return &g.Status.Failures[n]
}

// IsChangeApproved reports whether a change has the approvals that a rule requires, according to the status.
func IsChangeApproved(g *gatingv1.Gate, rule, digest string, now time.Time) bool {
	return digest != "" && isCurrent(g, now) && slices.ContainsFunc(g.Status.ApprovedChanges,
		func(a gatingv1.ApprovedChange) bool {
			return a.Rule == rule && a.Change == digest && (a.Until == nil || now.Before(a.Until.Time))
		})
}

// ChecksRevisions reports whether a gate allows only revisions that other objects have been Ready at.
func ChecksRevisions(g *gatingv1.Gate) bool {
	return slices.ContainsFunc(g.Spec.Checks, func(c gatingv1.Check) bool { return c.Revision != nil })
}

// Soaks returns what the checks of revisions of a gate say, and whether all of them hold. The text is empty if the gate
// has no such check.
func Soaks(g *gatingv1.Gate) (text string, hold bool) {
	var texts []string
	hold = true
	for _, r := range g.Status.Checks {
		if slices.ContainsFunc(g.Spec.Checks, func(c gatingv1.Check) bool {
			return c.Name == r.Name && c.Revision != nil
		}) {
			texts, hold = append(texts, r.Message), hold && r.Holds
		}
	}
	return strings.Join(texts, "; "), hold
}

// SealSeparator is between the authentication code of a seal and the Unix time since when the status holds. Seals of
// older versions have no time.
const SealSeparator = "."

// SplitSeal returns the authentication code and the time of a seal.
func SplitSeal(value string) (code string, from int64) {
	code, text, ok := strings.Cut(value, SealSeparator)
	if !ok {
		return code, 0
	}
	from, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return "", 0 // valid for no status
	}
	return code, from
}

// IsSealedLater reports whether the state of a gate is known only for times after now.
func IsSealedLater(g *gatingv1.Gate, now time.Time) bool {
	if g.Status.Seal == nil {
		return false
	}
	_, from := SplitSeal(g.Status.Seal.Value)
	return from > now.Unix()
}
