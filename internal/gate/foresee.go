package gate

import (
	"cmp"
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/gate/verdict"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// Foresee returns a gate as it will be at a time if nobody does anything until then: its schedule, requests
// and windows are those of that time, while approvals and checks are taken from its status. [Passes] tells
// what it lets through then.
func Foresee(g *gatingv1.Gate, at time.Time) *gatingv1.Gate {
	g = g.DeepCopy()
	g.Status.ObservedGeneration = g.Generation
	c, err := Case(g)
	if err == nil {
		err = unfit(g)
	}
	if err != nil {
		show(g, verdict.Verdict{Reason: fault.Reason(err, reconcile.ReasonFailed), Message: "Gate closed: " +
			err.Error(), Why: err.Error()}, err, at)
		return g
	}
	if ready := apimeta.FindStatusCondition(g.Status.Conditions, reconcile.TypeReady); ready != nil &&
		ready.Reason == gatingv1.PolicyMissingReason {
		c.Requests.Override = nil // nobody vouches for who breaks the glass
	}
	c.Approvals, c.Checks = observed(g)
	if c.Rule != nil {
		c.Rule.Users, c.Rule.Groups = nil, nil // whose approvals count was decided when they were observed
	}
	show(g, verdict.Of(c, at), nil, at)
	return g
}

// unfit returns what the controller found wrong with a gate that a look at the gate alone does not show; nil
// when nothing is.
func unfit(g *gatingv1.Gate) error {
	ready := apimeta.FindStatusCondition(g.Status.Conditions, reconcile.TypeReady)
	if ready != nil && slices.Contains([]string{gatingv1.CheckCycleReason, gatingv1.InvalidCheckReason}, ready.Reason) {
		return fault.New(ready.Reason, "%s", ready.Message).Final()
	}
	return nil
}

// observed returns the approvals and checks of a gate as its status has them. A check that was not tried
// since the gate changed does not hold.
func observed(g *gatingv1.Gate) ([]verdict.Approval, []verdict.Check) {
	var approvals []verdict.Approval
	for _, a := range g.Status.Approvals {
		approval := verdict.Approval{Name: a.Name, User: a.User, At: a.At.Time, Revision: a.Revision}
		if a.Until != nil {
			approval.ExpiresAt = a.Until.Time
		}
		if !a.Counts {
			approval.Distrust = cmp.Or(a.Message, "it does not count")
		}
		approvals = append(approvals, approval)
	}
	var checks []verdict.Check
	for _, c := range g.Spec.Checks {
		check := verdict.Check{Name: c.Name, Message: "it was not tried yet"}
		for _, r := range g.Status.Checks {
			if r.Name == c.Name && r.Generation == g.Generation {
				check.Holds, check.Message = r.Holds, r.Message
			}
		}
		checks = append(checks, check)
	}
	return approvals, checks
}
