package decision

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/testenv/allocation"
)

const good, bad = "main@sha1:good", "main@sha1:bad"

var now = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// gate returns an open gate after changes.
func gate(changes ...func(*gatingv1.Gate)) Gate {
	g := &gatingv1.Gate{}
	g.Status.Conditions = []metav1.Condition{{Type: gatingv1.OpenedCondition, Status: metav1.ConditionTrue}}
	for _, change := range changes {
		change(g)
	}
	return Gate{Key: types.NamespacedName{Namespace: "ops", Name: "release"}, Gate: g}
}

func closed(g *gatingv1.Gate) {
	g.Status.Conditions = nil
	g.Status.Why = &gatingv1.Explanation{Reason: gatingv1.WhyDefault, Message: "Gate closed by default"}
}

func closedBy(reason, message string) func(*gatingv1.Gate) {
	return func(g *gatingv1.Gate) {
		g.Status.Conditions, g.Status.Why = nil, &gatingv1.Explanation{Reason: reason, Message: message}
	}
}

func onlyFor(revisions ...string) func(*gatingv1.Gate) {
	return func(g *gatingv1.Gate) { g.Status.ApprovedRevisions = revisions }
}

func newSpec(g *gatingv1.Gate) { g.Generation = 2 }

func waves(g *gatingv1.Gate) { g.Spec.Waves = []gatingv1.Wave{{Name: "canary"}} }

func overridden(g *gatingv1.Gate) {
	g.Status.Why = &gatingv1.Explanation{Reason: gatingv1.WhyOverridden}
}

// failed returns a gate behind which a change of the object apps/web failed, or a revision if the change is empty.
func failed(onFailure gatingv1.OnFailure, change string) func(*gatingv1.Gate) {
	return func(g *gatingv1.Gate) {
		g.Spec.OnFailure = onFailure
		g.Status.Failures = []gatingv1.FailedChange{{Revision: bad, Change: change, Message: "it crashed",
			Objects: []gatingv1.FailedObject{{Kind: "Kustomization", Namespace: "apps", Name: "web"}}}}
	}
}

func soaking(holds bool) func(*gatingv1.Gate) {
	return func(g *gatingv1.Gate) {
		g.Spec.Checks = []gatingv1.Check{{Name: "staging", Revision: &gatingv1.RevisionCheck{}}}
		g.Status.Checks = []gatingv1.CheckResult{{Name: "staging", Holds: holds, Message: "it soaks"}}
	}
}

func rules(g *gatingv1.Gate) { g.Spec.Rules = []gatingv1.Rule{{Name: "r", Expression: "true"}} }

func approved(digest string) func(*gatingv1.Gate) {
	return func(g *gatingv1.Gate) {
		g.Status.ApprovedChanges = []gatingv1.ApprovedChange{{Rule: "r", Change: digest}}
	}
}

// ruled returns what rules say if one with an outcome applies.
func ruled(outcome gatingv1.Outcome, required int32) Ruling {
	r := &gatingv1.Rule{Name: "r", Outcome: outcome, Message: "ask us"}
	if required > 0 {
		r.Approvals = &gatingv1.Approvals{Required: required}
	}
	return Ruling{Asked: true, Rule: r, Digest: "d"}
}

// about returns a change to the good revision with what rules say about it.
func about(r Ruling) Change { return Change{Revision: good, Rules: r} }

var cases = map[string]struct {
	gate    Gate
	object  Object // apps/web if it is empty
	change  Change // to the good revision if it is empty
	want    string // why the gate holds the change; empty: it does not
	reason  string // of the condition; GateClosed if it is empty
	turn    bool
	stops   bool
	failed  bool
	single  bool // the answer differs from object to object
	manual  bool // passes that were requested do not ask the gate
	ignores bool // the gate cannot hold anything
}{
	"open":   {gate: gate(), ignores: true},
	"closed": {gate: gate(closed), want: "is closed"},
	"does not exist": {gate: Gate{Blocked: NotFound}, want: "is not found",
		reason: meta.GateNotFoundReason},
	"in another namespace": {gate: Gate{Blocked: OtherNamespace, Gate: gate(rules).Gate},
		reason: meta.AccessDeniedReason,
		want:   "is in another namespace: cross-namespace references have been blocked"},
	"unreadable":      {gate: Gate{Blocked: Unreadable}, want: "you may not read the gate, so it counts as closed"},
	"the spec is new": {gate: gate(newSpec), want: "is not evaluated yet", reason: meta.GateNotEvaluatedReason},
	"the spec is new, and a rule denies": {gate: gate(newSpec, rules), single: true,
		change: about(ruled(gatingv1.OutcomeDeny, 0)),
		want:   "denies the change by rule 'r': ask us", reason: meta.GateNotEvaluatedReason},
	"being deleted": {want: "is closed",
		gate: gate(func(g *gatingv1.Gate) { g.DeletionTimestamp = &metav1.Time{Time: now} })},
	"closes now": {want: "is closed", gate: gate(func(g *gatingv1.Gate) {
		g.Status.NextTransition = &gatingv1.Transition{At: meta.TimeOf(now), State: gatingv1.Closed}
	})},
	"the clock went back": {want: "is closed", gate: gate(func(g *gatingv1.Gate) {
		g.Status.Seal = &gatingv1.Seal{Value: "code.1900000000"}
	})},
	"lets requested passes": {manual: true, want: "is closed",
		gate: gate(closed, func(g *gatingv1.Gate) { g.Spec.AllowManual = true })},
	"rules also ask about requested passes": {single: true, want: "is closed",
		gate: gate(closed, rules, func(g *gatingv1.Gate) { g.Spec.AllowManual = true })},
	"stops work in progress": {stops: true, want: "is closed",
		gate: gate(closed, func(g *gatingv1.Gate) { g.Spec.Overrun = gatingv1.OverrunStop })},

	"approved":               {gate: gate(onlyFor(good))},
	"approved by its digest": {gate: gate(onlyFor("sha1:good"))},
	"another one is approved": {gate: gate(onlyFor("main@sha1:1")),
		want: "allows only revision 'main@sha1:1'"},
	"many others are approved": {gate: gate(onlyFor("a", "b", "c", "d")),
		want: "allows only revisions 'a', 'b', 'c' and 1 more"},
	"another one is promoted": {gate: gate(onlyFor("main@sha1:1"), soaking(true)), want: "it soaks"},
	"nothing is promoted": {want: "is closed: it soaks",
		gate: gate(closedBy(gatingv1.WhyCheckFailed, "check"), soaking(false))},
	"another check fails": {want: "is closed",
		gate: gate(closedBy(gatingv1.WhyCheckFailed, "check"), soaking(true))},

	"a change is unhealthy": {failed: true, want: "is closed: revision 'a' failed",
		gate: gate(closedBy(gatingv1.WhyRevisionFailed, "Gate closed: revision 'a' failed"),
			failed(gatingv1.OnFailureHold, ""))},
	"a failure does not stop work in progress": {failed: true, want: "is closed: revision 'a' failed",
		gate: gate(closedBy(gatingv1.WhyRevisionFailed, "Gate closed: revision 'a' failed"),
			func(g *gatingv1.Gate) { g.Spec.Overrun = gatingv1.OverrunStop })},
	"a rule does not let changes pass a failure": {failed: true, single: true, want: "is closed: revision 'a' failed",
		gate:   gate(rules, closedBy(gatingv1.WhyRevisionFailed, "Gate closed: revision 'a' failed")),
		change: about(ruled(gatingv1.OutcomePass, 0))},
	"a rule does not let changes pass a failure at a closed gate": {single: true,
		gate:   gate(rules, closed, failed(gatingv1.OnFailureHold, "")),
		change: about(ruled(gatingv1.OutcomePass, 0)),
		want:   "holds all changes, as revision '" + bad + "' failed: it crashed"},

	"a person named a revision after a failure": {single: true,
		gate:   gate(rules, onlyFor(good), failed(gatingv1.OnFailureHold, "")),
		change: about(ruled(gatingv1.OutcomePass, 0))},

	"refused": {gate: gate(failed(gatingv1.OnFailureRevert, "")), change: Change{Revision: bad},
		want: "refuses revision '" + bad + "', which failed: it crashed"},
	"not refused": {gate: gate(failed(gatingv1.OnFailureRevert, ""))},
	"hold does not refuse": {gate: gate(failed(gatingv1.OnFailureHold, "")), change: Change{Revision: bad},
		ignores: true},
	"an override does not refuse": {gate: gate(overridden, failed(gatingv1.OnFailureRevert, "")),
		change: Change{Revision: bad}, ignores: true},
	"refused variant": {gate: gate(failed(gatingv1.OnFailureRevert, "values")),
		change: Change{Revision: bad, Variant: "values"},
		want:   "refuses revision '" + bad + "', which failed: it crashed"},
	"another variant": {gate: gate(failed(gatingv1.OnFailureRevert, "values")),
		change: Change{Revision: bad, Variant: "other"}},
	"the variant of another object": {gate: gate(failed(gatingv1.OnFailureRevert, "values")),
		object: Object{Namespace: "apps", Name: "db"}, change: Change{Revision: bad, Variant: "values"}},
	"a rule does not let pass what failed": {single: true, gate: gate(rules, failed(gatingv1.OnFailureRevert, "")),
		change: Change{Revision: bad, Rules: ruled(gatingv1.OutcomePass, 0)},
		want:   "refuses revision '" + bad + "', which failed: it crashed"},

	"no rule applies": {gate: gate(rules), change: about(Ruling{Asked: true}), single: true},
	"no rule, closed": {gate: gate(rules, closed), change: about(Ruling{Asked: true}), single: true,
		want: "is closed, and none of its rules applies"},
	"nothing changes":  {gate: gate(rules, closed), change: about(Ruling{Unchanged: true}), single: true},
	"rules are broken": {gate: gate(rules), change: about(Undecided(RulesFailed, "oh")), single: true, want: "oh"},
	"no change": {gate: gate(rules), change: about(Undecided(ChangeFailed, "oh")), single: true,
		want: "has rules, but the change cannot be computed: oh"},
	"a source": {gate: gate(rules), change: about(Undecided(NotAboutObjects, "")), single: true,
		want: "has rules about changes of objects, which only a Kustomization or a HelmRelease makes"},
	"the rules override": {gate: gate(rules, closed), change: about(ruled(gatingv1.OutcomePass, 0)), single: true},
	"denied": {gate: gate(rules), single: true, want: "denies the change by rule 'r': ask us",
		change: about(ruled(gatingv1.OutcomeDeny, 0))},
	"one approval": {gate: gate(rules), single: true, want: "requires 1 approval of this change by rule 'r': ask us",
		change: about(ruled(gatingv1.OutcomeApprovals, 1))},
	"two approvals": {gate: gate(rules, approved("other")), single: true,
		change: about(ruled(gatingv1.OutcomeApprovals, 2)),
		want:   "requires 2 approvals of this change by rule 'r': ask us"},
	"has approvals": {gate: gate(rules, approved("d")), single: true,
		change: about(ruled(gatingv1.OutcomeApprovals, 2))},
	"an outcome of a newer version": {gate: gate(rules), single: true,
		change: about(ruled("later", 0)),
		want:   "has rule 'r' with outcome 'later', which this version does not know"},
	"approvals without a number": {gate: gate(rules), single: true,
		change: about(ruled(gatingv1.OutcomeApprovals, 0)),
		want:   "has rule 'r' with outcome 'approvals', which this version does not know"},
	"an override asks no rules": {gate: gate(rules, overridden), ignores: true},

	"waves": {gate: gate(waves), turn: true, single: true},
	"taken": {gate: gate(waves), single: true,
		object: Object{Kind: "HelmRelease", Namespace: "apps", Name: "web", Taken: good}},
	"an unknown revision needs its turn": {gate: gate(waves, rules), single: true, turn: true,
		change: Change{Rules: Ruling{Unchanged: true}}},
	"sources have no turn":       {gate: gate(waves), object: Object{Kind: "GitRepository"}, ignores: true},
	"waves behind a closed gate": {gate: gate(waves, closed), single: true, want: "is closed"},
	"an override ends waves":     {gate: gate(waves, overridden), ignores: true},
}

func TestDecide(t *testing.T) {
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if c.object == (Object{}) {
				c.object = Object{Kind: "Kustomization", Namespace: "apps", Name: "web"}
			}
			if c.change.Revision == "" && !c.change.Rules.Unchanged {
				c.change.Revision = good
			}
			if c.reason == "" {
				c.reason = meta.GateClosedReason
			}
			d := Decide(c.gate, c.object, c.change, now)
			if d.Text() != c.want || d.Holds() != (c.want != "") || d.Holds() && d.Reason() != c.reason {
				t.Errorf("got %q with reason %s, want %q with %s", d.Text(), d.Reason(), c.want, c.reason)
			}
			if d.NeedsTurn != c.turn || d.StopsProgress != c.stops || d.Failed != c.failed || d.PerObject != c.single {
				t.Errorf("got %+v", d)
			}
			if c.gate.LetsManual() != c.manual || c.gate.MayHold(c.object, now) == c.ignores {
				t.Errorf("lets manual passes: %t, may hold: %t", c.gate.LetsManual(), c.gate.MayHold(c.object, now))
			}
			if c.ignores && d.Holds() {
				t.Error("a gate that cannot hold anything holds the change")
			}
		})
	}
}

func TestPromoted(t *testing.T) {
	for name, c := range map[string]struct {
		gate      Gate
		revisions int
		only      bool
	}{
		"open":             {gate: gate(soaking(true))},
		"one is promoted":  {gate: gate(onlyFor(good), soaking(true)), revisions: 1, only: true},
		"none is promoted": {gate: gate(closed, soaking(false)), only: true},
		"approved by name": {gate: gate(onlyFor(good))},
		"blocked":          {gate: Gate{Blocked: OtherNamespace, Gate: gate(onlyFor(good), soaking(true)).Gate}},
	} {
		if revisions, only := c.gate.Promoted(now); len(revisions) != c.revisions || only != c.only {
			t.Errorf("%s: got %v, %t", name, revisions, only)
		}
	}
}

// TestDecideAllocatesNothing has gates that are asked in each pass of the objects behind them.
func TestDecideAllocatesNothing(t *testing.T) {
	for name, g := range map[string]Gate{"open": gate(), "closed": gate(closed), "approved": gate(onlyFor(good)),
		"failed": gate(failed(gatingv1.OnFailureHold, bad))} {
		object, change := Object{Kind: "Kustomization", Namespace: "apps", Name: "web"}, Change{Revision: good}
		if n := allocation.PerRun(func() { Decide(g, object, change, now) }); n > 0 {
			t.Errorf("%s: %.0f allocations", name, n)
		}
	}
}
