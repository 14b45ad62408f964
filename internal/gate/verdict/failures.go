package verdict

import (
	"fmt"
	"slices"
	"time"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/gate/promotion"
	"github.com/sluice-gitops/sluice/internal/reconcile/decision"
)

// left returns the failures that count at t: those that were not answered since.
func (in Input) left(t time.Time) []gatingv1.FailedChange {
	return slices.DeleteFunc(slices.Clone(in.Failures), func(f gatingv1.FailedChange) bool {
		return f.Since.After(t) || in.isAnswered(f, t)
	})
}

// isAnswered reports whether a person has allowed a change since it failed: by the name of the revision, by an
// override, or, unless the gate refuses the revision until it is named, by opening the gate.
func (in Input) isAnswered(f gatingv1.FailedChange, t time.Time) bool {
	for _, r := range []*Request{in.Requests.Open, in.Requests.Override} {
		if r == nil || r.At.After(t) || !r.At.After(f.Since.Time) {
			continue
		}
		if r == in.Requests.Override || decision.Names(r.Revision, f.Revision) || r.Revision == "" && !in.Reverts {
			return true
		}
	}
	return slices.ContainsFunc(in.named(f.Since.Time, t),
		func(name string) bool { return decision.Names(name, f.Revision) })
}

// named returns the revisions that were approved by name, by enough people, after a time. A gate that requires no
// approvals accepts those of one person.
func (in Input) named(since, t time.Time) []string {
	rule := Rule{Required: 1}
	if in.Rule != nil {
		rule = *in.Rule
	}
	var named []Approval
	for _, a := range in.Approvals {
		if a.Revision != "" {
			named = append(named, a)
		}
	}
	if closed := in.ClosedAt(t); closed.After(since) {
		since = closed
	}
	return rule.count(named, since, t).revisions
}

// hold closes a gate behind which a change is unhealthy, except for revisions that were named since.
func (v *Verdict) hold(in Input, t time.Time) {
	var unresolved []gatingv1.FailedChange
	v.Failures = in.left(t)
	for _, f := range v.Failures {
		if f.ResolvedAt == nil {
			unresolved = append(unresolved, f)
		}
	}
	if !v.Open {
		return
	}
	if len(unresolved) == 0 {
		v.mention(in)
		return
	}
	latest := unresolved[0]
	for _, f := range unresolved {
		if f.Since.After(latest.Since.Time) {
			latest = f
		}
	}
	if r, opens := in.latest(t); r != nil && opens && r.At.After(latest.Since.Time) && r.active(in.Window, t) {
		return // for a revision, as this is the one that the request names, or else the failures were answered
	}
	named := slices.DeleteFunc(in.named(latest.Since.Time, t), func(name string) bool { return !v.includes(name) })
	if len(named) > 0 {
		v.Revisions, v.Reason, v.By, v.From = named, gatingv1.WhyApproved, "", ""
		v.Message = "Gate opened by approval"
		v.Why = v.Message + " of a revision, after another one failed"
		return
	}
	v.Open, v.Revisions, v.Reason, v.By, v.From = false, nil, gatingv1.WhyRevisionFailed, "", ""
	v.HeldSince = latest.Since.Time
	v.Message = fmt.Sprintf("Gate closed: revision '%s' failed", latest.Revision)
	v.Why = fmt.Sprintf("%s since %s: %s. %s", v.Message, stamp(latest.Since.Time), latest.Message, in.remedy())
	if more := len(unresolved) - 1; more > 0 {
		v.Message += fmt.Sprintf(" and %d more", more)
	}
	v.Message += ": " + clip(latest.Message)
}

// includes reports whether a revision is one of those that an open gate allows.
func (v *Verdict) includes(name string) bool {
	return len(v.Revisions) == 0 || slices.ContainsFunc(v.Revisions, func(r string) bool {
		return promotion.Same(r, name)
	})
}

// mention adds to the message of an open gate which revisions it refuses.
func (v *Verdict) mention(in Input) {
	if !in.Reverts || len(v.Failures) == 0 {
		return
	}
	which := "which failed"
	if by := v.Failures[0].RefusedBy; by != "" {
		which = "which " + by + " refused for one object"
	}
	v.Message += fmt.Sprintf(", except for revision '%s', %s", v.Failures[0].Revision, which)
	if more := len(v.Failures) - 1; more > 0 {
		v.Message += fmt.Sprintf(", and %d more", more)
	}
}

// remedy returns what to do about a failure.
func (in Input) remedy() string {
	if in.Reverts {
		return "Objects go back to the last healthy revision; approve the failed one, or a newer one, by its name to " +
			"let it through"
	}
	return "Make the objects healthy again, approve a revision by its name, or open the gate"
}
