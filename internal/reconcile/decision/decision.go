// Package decision decides whether a gate holds a change of an object: by the state of the gate, its rules, and the
// revisions that failed. [Decide] is a pure function of values; its result is data, which [Cause.Text] turns into the
// sentences that conditions, commands and the web UI show.
package decision

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
)

// Gate is a gate as a pass sees it. It is not changed.
type Gate struct {
	Key     types.NamespacedName
	Blocked *Code          // why nothing is let through although the gate may be open, such as [NotFound]; may be nil
	Gate    *gatingv1.Gate // nil if it is not known
}

// Object is an object that asks a gate.
type Object struct {
	Kind, Namespace, Name string
	Taken                 string // the revision that gates let through before; empty if that is not known
}

// inWaves reports whether waves order the objects of this kind.
func (o Object) inWaves() bool { return o.Kind == "Kustomization" || o.Kind == "HelmRelease" }

// Change is what an object asks a gate for.
type Change struct {
	Revision string // empty: any, so that only a gate that is open for all revisions lets it through
	Variant  string // identifies what would be applied, if the revision does not
	Rules    Ruling
}

// Ruling is what the rules of a gate say about a change. The zero Ruling means that they were not asked.
type Ruling struct {
	Cause                    // why the rules cannot decide; empty if they can
	Asked     bool           // the rules can decide
	Unchanged bool           // nothing changes, so that they have nothing to decide
	Rule      *gatingv1.Rule // the first one that applies; nil if none does
	Digest    string         // of the content of the change
}

// Undecided returns the ruling for a change about which rules cannot decide.
func Undecided(code *Code, message string) Ruling {
	return Ruling{Cause: Cause{code, Args{Message: message}}}
}

// Decision is what a gate decides about a change.
type Decision struct {
	Cause // why the gate holds the change; empty if it lets it through
	Gate  types.NamespacedName

	Rule          *gatingv1.Rule // the one that applies to the change, also if it lets it through; may be nil
	StopsProgress bool           // the gate also stops work that is in progress
	Failed        bool           // the gate is closed only because a change that it let through is unhealthy
	PerObject     bool           // the gate has rules or waves, so that its answer differs from object to object
	NeedsTurn     bool           // the gate has waves: the object must ask for its turn before it goes on
	isNew         bool
}

// Decide returns what a gate decides about a change of an object. A change that the gate lets through may have to wait
// for its turn, which is asked for separately.
func Decide(g Gate, o Object, c Change, now time.Time) Decision {
	d := Decision{Gate: g.Key, Rule: c.Rules.Rule}
	if g.Blocked != nil {
		d.Code = g.Blocked
		return d
	}
	isOpen, waves := g.IsOpen(now), g.hasWavesFor(o, now)
	d.isNew, d.Failed = isNew(g.Gate), !isOpen && IsFailureHold(g.Gate)
	d.StopsProgress = !isOpen && g.Gate.Spec.Overrun == gatingv1.OverrunStop && !d.Failed
	d.PerObject = g.AsksRules(now) || waves
	d.Cause = g.byRules(c, now)
	if refused := g.Refusal(o, c.Revision, c.Variant); refused.Holds() {
		d.Cause = refused
	}
	d.NeedsTurn = !d.Holds() && waves && (c.Revision == "" || c.Revision != o.Taken)
	return d
}

// Reason returns the reason of the condition of an object that the gate holds.
func (d Decision) Reason() string {
	switch {
	case d.isNew:
		return meta.GateNotEvaluatedReason
	case d.Holds() && d.Code.reason != "":
		return d.Code.reason
	}
	return meta.GateClosedReason
}

// MayHold reports whether the gate may hold any change of an object.
func (g Gate) MayHold(o Object, now time.Time) bool {
	return g.Blocked != nil || !g.IsOpen(now) || g.AsksRules(now) || g.refuses() || g.hasWavesFor(o, now)
}

// IsOpen reports whether the gate is open for all revisions, without regard to its rules.
func (g Gate) IsOpen(now time.Time) bool { return g.Allows("", now) }

// Allows reports whether the gate is open for a revision, without regard to its rules.
func (g Gate) Allows(revision string, now time.Time) bool {
	return g.Blocked == nil && Allows(g.Gate, revision, now)
}

// LetsManual reports whether a pass that a person requested does not ask the gate.
func (g Gate) LetsManual() bool {
	return g.Blocked == nil && g.Gate.Spec.AllowManual && len(g.Gate.Spec.Rules) == 0
}

// AsksRules reports whether the rules of the gate decide: it has some, and no override is in effect.
func (g Gate) AsksRules(now time.Time) bool {
	return g.Blocked == nil && len(g.Gate.Spec.Rules) > 0 && !(IsOverridden(g.Gate) && g.IsOpen(now))
}

// hasWavesFor reports whether an object needs its turn in the waves of the gate.
func (g Gate) hasWavesFor(o Object, now time.Time) bool {
	return o.inWaves() && len(g.Gate.Spec.Waves) > 0 && !(IsOverridden(g.Gate) && g.IsOpen(now))
}

// Promoted returns the revisions that checks of revisions promote now, and whether the gate lets only such revisions
// through.
func (g Gate) Promoted(now time.Time) (revisions []string, only bool) {
	only = g.Blocked == nil && !g.IsOpen(now) && ChecksRevisions(g.Gate)
	if only && g.allowsSome(now) {
		revisions = g.Gate.Status.ApprovedRevisions
	}
	return revisions, only
}

// allowsSome reports whether the gate is open for some revisions only.
func (g Gate) allowsSome(now time.Time) bool {
	r := g.Gate.Status.ApprovedRevisions
	return len(r) > 0 && g.Allows(r[0], now)
}

// Watches reports whether the gate watches what it lets through, for how long, and whether objects go back if that
// became unhealthy.
func (g Gate) Watches() (soak time.Duration, reverts, watches bool) {
	switch {
	case g.Gate == nil:
		return 0, false, false
	case g.Gate.Spec.OnFailure == "":
		return 0, false, len(g.Gate.Spec.Waves) > 0
	}
	return g.Gate.GetSoak(), g.Gate.Spec.OnFailure == gatingv1.OnFailureRevert, true
}

// byRules returns why the gate holds a change, by its rules if they were asked.
func (g Gate) byRules(c Change, now time.Time) Cause {
	r := c.Rules
	switch {
	case r.Holds():
		return r.Cause
	case r.Unchanged:
		return Cause{}
	case !r.Asked:
		return g.byState(c.Revision, now)
	case r.Rule != nil:
		return g.byRule(r, c.Revision, now)
	case g.Allows(c.Revision, now):
		return Cause{}
	}
	return Cause{NoRuleApplies, Args{Why: g.why()}}
}

// byRule returns why the gate holds a change to which a rule applies. The outcome may be that of a newer version.
func (g Gate) byRule(r Ruling, revision string, now time.Time) Cause {
	rule := r.Rule
	args := Args{Rule: rule.Name, Message: rule.Message}
	//exhaustive:enforce
	switch rule.Outcome {
	case gatingv1.OutcomePass:
		return g.byFailure(revision, now)
	case gatingv1.OutcomeDeny:
		return Cause{DeniedByRule, args}
	case gatingv1.OutcomeApprovals:
		if rule.Approvals == nil {
			break
		}
		if IsChangeApproved(g.Gate, rule.Name, r.Digest, now) {
			return Cause{}
		}
		args.Count = rule.Approvals.Required
		return Cause{RequiresApprovals, args}
	}
	return Cause{UnknownOutcome, Args{Rule: rule.Name, Message: string(rule.Outcome)}}
}

// byFailure returns why the gate holds a change that its rules let through: an earlier one is unhealthy.
func (g Gate) byFailure(revision string, now time.Time) Cause {
	if IsFailureHold(g.Gate) {
		return Cause{ClosedByFailure, Args{Why: g.why()}}
	}
	if f := holdsFor(g.Gate); f != nil && !g.Allows(revision, now) {
		return Cause{HoldsAll, Args{Revision: f.Revision, Message: f.Message}}
	}
	return Cause{}
}

// byState returns why the gate is closed for a revision.
func (g Gate) byState(revision string, now time.Time) Cause {
	soaks, hold := Soaks(g.Gate)
	args := Args{Why: g.why(), Message: soaks}
	switch {
	case g.Allows(revision, now):
		return Cause{}
	case isNew(g.Gate):
		if !IsFailureHold(g.Gate) {
			args.Why = ""
		}
		return Cause{NotEvaluated, args}
	case IsFailureHold(g.Gate):
		return Cause{ClosedByFailure, args}
	case g.allowsSome(now):
		if args.Revisions = g.Gate.Status.ApprovedRevisions; args.Message != "" {
			return Cause{AllowsPromoted, args}
		}
		return Cause{AllowsOnly, args}
	case !hold && g.Gate.Status.Why != nil && g.Gate.Status.Why.Reason == gatingv1.WhyCheckFailed:
		return Cause{ClosedByCheck, args}
	}
	return Cause{Closed, args}
}

// why returns why the gate is in its state.
func (g Gate) why() string {
	if g.Gate.Status.Why == nil {
		return ""
	}
	return g.Gate.Status.Why.Message
}

// refuses reports whether the gate refuses revisions that failed, although it is open.
func (g Gate) refuses() bool {
	return g.Blocked == nil && g.Gate.Spec.OnFailure == gatingv1.OnFailureRevert && len(g.Gate.Status.Failures) > 0 &&
		!IsOverridden(g.Gate)
}

// Refusal returns why the gate refuses what an object has, so that it goes back; empty if it does not.
func (g Gate) Refusal(o Object, revision, variant string) Cause {
	if !g.refuses() {
		return Cause{}
	}
	for _, f := range g.Gate.Status.Failures {
		switch {
		case !isAbout(f, o, revision, variant):
		case f.RefusedBy != "":
			return Cause{RefusesForObject, Args{Revision: revision, Message: f.Message, By: f.RefusedBy}}
		default:
			return Cause{Refuses, Args{Revision: revision, Message: f.Message}}
		}
	}
	return Cause{}
}

// isAbout reports whether a change of an object is one that a gate refuses. A revision that failed is refused for all
// objects. If only the values or the spec of an object failed, or a person made the object go back, it is refused for
// this object only.
func isAbout(f gatingv1.FailedChange, o Object, revision, variant string) bool {
	if f.Revision != revision || f.Change != "" && f.Change != variant {
		return false
	}
	return f.Change == "" && f.RefusedBy == "" || slices.ContainsFunc(f.Objects, func(of gatingv1.FailedObject) bool {
		return of.Namespace == o.Namespace && of.Name == o.Name && (f.RefusedBy == "" || of.Kind == o.Kind)
	})
}
