package gate

import (
	"slices"
	"strings"
	"time"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/gate/verdict"
)

// checksRevisions reports whether a gate allows only revisions that other objects have been Ready at.
func checksRevisions(g *gatingv1.Gate) bool {
	return slices.ContainsFunc(g.Spec.Checks, func(c gatingv1.Check) bool { return c.Revision != nil })
}

// checkOf returns the result of a check for the verdict. A soak that has ended at now does not promote its revision
// before the check has run again.
func checkOf(c gatingv1.Check, r gatingv1.CheckResult, now time.Time) verdict.Check {
	out := verdict.Check{Name: r.Name, Passes: r.Holds, Message: r.Message}
	if c.Revision == nil {
		return out
	}
	out.Promotion = &verdict.Promotion{}
	o := r.Revision
	if o == nil {
		out.Passes = false
		return out
	}
	if r.Holds {
		out.Promotion.Revision = o.Promoted
	}
	isCurrent := o.ObservedAt != nil && o.ObservedAt.Unix() == r.CheckedAt.Unix()
	if o.Until != nil && isCurrent && o.Until.After(now) {
		out.Promotion.Next, out.Promotion.NextAt = o.Ready, o.Until.Time
	}
	return out
}

// revisionResults returns the results of the checks of revisions.
func revisionResults(g *gatingv1.Gate) []gatingv1.CheckResult {
	var found []gatingv1.CheckResult
	for _, c := range g.Spec.Checks {
		if c.Revision == nil {
			continue
		}
		for _, r := range g.Status.Checks {
			if r.Name == c.Name {
				found = append(found, r)
			}
		}
	}
	return found
}

// soaks returns what the checks of revisions of a gate say, for the objects that wait.
func soaks(g *gatingv1.Gate) string {
	var texts []string
	for _, r := range revisionResults(g) {
		texts = append(texts, r.Message)
	}
	return strings.Join(texts, "; ")
}

// describeSoaks returns the state of a gate with checks of revisions, for messages; empty if they do not decide it.
func describeSoaks(g *gatingv1.Gate, isOpen bool) string {
	results, why := revisionResults(g), g.Status.Why
	switch {
	case len(results) == 0:
		return ""
	case isOpen:
		return soaks(g)
	case why != nil && why.Reason == gatingv1.WhyCheckFailed &&
		slices.ContainsFunc(results, func(r gatingv1.CheckResult) bool { return !r.Holds }):
		return "is closed: " + soaks(g)
	}
	return ""
}
