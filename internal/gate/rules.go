package gate

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/gate/ruling"
	"github.com/sluice-gitops/sluice/internal/gate/verdict"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/risk"
)

// judge returns the decision of a gate's rules about changes of an object; nil if the gate has none, or if an override
// is in effect.
func (e *entry) judge(obj reconcile.Gated, now time.Time) func(string, reconcile.Change) reconcile.Judgement {
	if !e.asksRules(now) {
		return nil
	}
	return func(revision string, c reconcile.Change) reconcile.Judgement {
		change, ok := c.(*risk.Change)
		if !ok {
			return reconcile.Judgement{
				Held: "has rules about changes of objects, which only a Kustomization or a HelmRelease makes"}
		}
		ctx := context.Background() // the deadline is that of the rules
		d := e.decide(ctx, revision, change, obj, now)
		j := reconcile.Judgement{Held: d.Held}
		if d.Rule != nil {
			j.Rule = d.Rule.Name
		}
		return j
	}
}

// asksRules reports whether the rules of a gate decide: it has some, and no override is in effect.
func (e *entry) asksRules(now time.Time) bool {
	return len(e.gate.Spec.Rules) > 0 && !(isOverridden(e.gate) && Allows(e.gate, "", now))
}

// Decision is what a gate decides about a change.
type Decision struct {
	Rule *gatingv1.Rule // that decides; nil if none applies, so that the state of the gate does
	Held string         // why the gate holds the change, such as "is closed"; empty if it lets the change through
	// Failed: the rules could not be evaluated.
	Failed bool
	// Waits: the gate would let the change through, but its waves hold it until others have it.
	Waits bool
}

// Decide returns what a gate decides about a change to a revision, by the status of the gate. The status may be that of
// [Simulate], so seals are not verified: controllers use [Index].
func Decide(ctx context.Context, g *gatingv1.Gate, revision string, c *risk.Change, obj reconcile.Gated,
	now time.Time) Decision {
	d := decideWithoutWaves(ctx, g, revision, c, obj, now)
	if refused := Refused(g, obj, revision, ""); refused != "" {
		return Decision{Rule: d.Rule, Held: refused}
	}
	if d.Held == "" {
		d.Held = Turn(g, obj, revision, now)
		d.Waits = d.Held != ""
	}
	return d
}

func decideWithoutWaves(ctx context.Context, g *gatingv1.Gate, revision string, c *risk.Change, obj reconcile.Gated,
	now time.Time) Decision {
	e := &entry{gate: g}
	switch {
	case e.asksRules(now):
		e.rules = func() (*ruling.Rules, error) { return ruling.Compile(g.Spec.Rules) }
		return e.decide(ctx, revision, c, obj, now)
	case Allows(g, revision, now):
		return Decision{}
	case len(g.Status.ApprovedRevisions) > 0 && Allows(g, g.Status.ApprovedRevisions[0], now):
		return Decision{Held: "allows only " + quoted(g.Status.ApprovedRevisions)}
	}
	return Decision{Held: "is closed"}
}

// decide asks the rules of a gate about a change.
func (e *entry) decide(ctx context.Context, revision string, c *risk.Change, obj reconcile.Gated,
	now time.Time) Decision {
	rules, err := e.rules()
	if err != nil {
		return Decision{Held: err.Error(), Failed: true}
	}
	r := rules.Of(ctx, c, ruling.Asker{Kind: c.Owner.Kind, Namespace: obj.GetNamespace(), Name: obj.GetName(),
		Labels: obj.GetLabels()})
	return Decision{Rule: r.Rule, Held: e.heldBy(r, revision, c, now), Failed: r.Err != nil}
}

// heldBy returns why a ruling holds a change; empty if it does not.
func (e *entry) heldBy(r ruling.Ruling, revision string, c *risk.Change, now time.Time) string {
	switch {
	case r.Err != nil:
		return r.Err.Error()
	case r.Rule == nil && Allows(e.gate, revision, now):
		return ""
	case r.Rule == nil:
		return "is closed, and none of its rules applies"
	case r.Rule.Outcome == gatingv1.OutcomePass && isFailureHold(e.gate):
		return "is closed: " + e.gate.Status.Why.Message
	case r.Rule.Outcome == gatingv1.OutcomePass && holdsFor(e.gate) != nil && !Allows(e.gate, revision, now):
		return fmt.Sprintf("holds all changes, as revision '%s' failed: %s", holdsFor(e.gate).Revision,
			holdsFor(e.gate).Message)
	case r.Rule.Outcome == gatingv1.OutcomePass:
		return ""
	case r.Rule.Outcome == gatingv1.OutcomeDeny:
		return withMessage(fmt.Sprintf("denies the change by rule '%s'", r.Rule.Name), r.Rule)
	}
	if r.Rule.Outcome != gatingv1.OutcomeApprovals || r.Rule.Approvals == nil {
		return fmt.Sprintf("has rule '%s' with outcome '%s', which this version does not know", r.Rule.Name,
			r.Rule.Outcome)
	}
	if isChangeApproved(e.gate, r.Rule.Name, c.Digest(), now) {
		return ""
	}
	return withMessage(fmt.Sprintf("requires %s of this change by rule '%s'", approvalsOf(r.Rule), r.Rule.Name), r.Rule)
}

func withMessage(text string, r *gatingv1.Rule) string {
	if r.Message == "" {
		return text
	}
	return text + ": " + r.Message
}

// approvalsOf describes the approvals that a rule requires, such as "2 approvals".
func approvalsOf(r *gatingv1.Rule) string {
	if r.Approvals.Required == 1 {
		return "1 approval"
	}
	return fmt.Sprintf("%d approvals", r.Approvals.Required)
}

// isOverridden reports whether an override is in effect. The seal covers it.
func isOverridden(g *gatingv1.Gate) bool {
	return g.Status.Why != nil && g.Status.Why.Reason == gatingv1.WhyOverridden
}

// isChangeApproved reports whether a change has the approvals that a rule requires, according to the status.
func isChangeApproved(g *gatingv1.Gate, rule, digest string, now time.Time) bool {
	if g.Status.ObservedGeneration != g.Generation || !g.DeletionTimestamp.IsZero() || digest == "" ||
		isSealedLater(g, now) {
		return false
	}
	for _, a := range g.Status.ApprovedChanges {
		if a.Rule == rule && a.Change == digest && (a.Until == nil || now.Before(a.Until.Time)) {
			return true
		}
	}
	return false
}

// maxApprovedChanges bounds how many approved changes a status lists.
const maxApprovedChanges = 1000

// approvedChanges returns the changes that have the approvals which the rules of a gate require, and when the first of
// them expires. Approvals before the gate was closed do not count.
func approvedChanges(g *gatingv1.Gate, in verdict.Input, closed, now time.Time) (all []gatingv1.ApprovedChange,
	review time.Time) {
	for _, r := range g.Spec.Rules {
		if r.Approvals == nil {
			continue
		}
		for _, c := range ruleOf(r.Approvals, in.Window).Changes(in.Approvals, closed, now) {
			review = earliest(review, c.Until)
			all = append(all, gatingv1.ApprovedChange{Rule: r.Name, Change: c.Digest, Until: timeOrNil(c.Until)})
		}
	}
	return all, review
}

// bounded returns at most as many approved changes as a status lists. If there are too many, those that wait come
// first.
func (c *Controller) bounded(g *gatingv1.Gate, all []gatingv1.ApprovedChange) []gatingv1.ApprovedChange {
	if len(all) <= maxApprovedChanges {
		return all
	}
	waits := map[string]bool{}
	waiting, _ := c.Waiting(client.ObjectKeyFromObject(g), math.MaxInt)
	for _, w := range waiting {
		waits[w.Change] = true
	}
	slices.SortStableFunc(all, func(a, b gatingv1.ApprovedChange) int {
		switch {
		case waits[a.Change] == waits[b.Change]:
			return 0
		case waits[a.Change]:
			return -1
		}
		return 1
	})
	return slices.Clip(all[:maxApprovedChanges])
}

// approvalRules returns the approvals that the gate and its rules require.
func approvalRules(g *gatingv1.Gate) []*gatingv1.Approvals {
	var all []*gatingv1.Approvals
	if g.Spec.Approvals != nil {
		all = append(all, g.Spec.Approvals)
	}
	for _, r := range g.Spec.Rules {
		if r.Approvals != nil {
			all = append(all, r.Approvals)
		}
	}
	return all
}

// observer returns whose approvals count for the gate or for any of its rules.
func observer(g *gatingv1.Gate, in verdict.Input) verdict.Rule {
	out, anybody := verdict.Rule{ValidFor: in.Window}, false
	for _, a := range approvalRules(g) {
		anybody = anybody || len(a.Users)+len(a.Groups) == 0
		out.Users, out.Groups = append(out.Users, a.Users...), append(out.Groups, a.Groups...)
	}
	if anybody {
		out.Users, out.Groups = nil, nil
	}
	return out
}

// changesOf returns a text that differs if the approved changes do.
func changesOf(list []gatingv1.ApprovedChange) string {
	var text strings.Builder
	for _, c := range list {
		fmt.Fprintf(&text, "%s %s %v\n", c.Rule, c.Change, c.Until)
	}
	return text.String()
}
