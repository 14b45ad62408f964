package gate

import (
	"context"
	"slices"
	"time"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/gate/calendar"
	"github.com/sluice-gitops/sluice/internal/gate/verdict"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// InputOf returns the input of the verdict on a gate, except approvals and checks. The error is a terminal fault.
func InputOf(g *gatingv1.Gate) (verdict.Input, error) {
	in := verdict.Input{Opened: g.Spec.Default == gatingv1.Opened, Overridable: g.IsOverridable()}
	if w := g.Spec.Window; w != nil {
		if w.Duration <= 0 || w.Duration > verdict.MaxWindow {
			return in, fault.New(gatingv1.InvalidWindowReason, "spec.window is %s, which is out of range", w.Duration).
				WithHint("Set it to a positive duration such as 1h, at most %s", verdict.MaxWindow).Final()
		}
		in.Window = w.Duration
	}
	var entries []calendar.Entry
	for _, e := range g.Spec.Schedule {
		entry := calendar.Entry{
			Name: e.Name, Opens: e.State == gatingv1.Opened, Cron: e.Cron, Dates: e.Dates, TimeZone: e.TimeZone,
			Duration: 24 * time.Hour,
		}
		if e.Duration != nil {
			entry.Duration = e.Duration.Duration
		}
		entries = append(entries, entry)
	}
	var err error
	if in.Calendar, err = calendar.New(entries); err != nil {
		return in, fault.New(gatingv1.InvalidScheduleReason, "spec.schedule is invalid").Because(err).Final()
	}
	if in.Requests, err = verdict.ReadRequests(g.Annotations); err != nil {
		return in, err
	}
	if _, _, err := wavesOf(g); err != nil {
		return in, err
	}
	for verb, r := range map[string]*verdict.Request{
		gatingv1.OpenPrefix: in.Requests.Open, gatingv1.ClosePrefix: in.Requests.Close,
		gatingv1.OverridePrefix: in.Requests.Override,
	} {
		if r != nil {
			r.From, _ = reconcile.ManagerOf(g, "metadata", "annotations", verb+gatingv1.RequestedAtSuffix)
		}
	}
	in.Failures, in.Reverts = g.Status.Failures, g.Spec.OnFailure == gatingv1.OnFailureRevert
	if a := g.Spec.Approvals; a != nil {
		in.Rule = ruleOf(a, in.Window)
	}
	return in, nil
}

// ruleOf returns the approvals that a gate or one of its rules requires.
func ruleOf(a *gatingv1.Approvals, window time.Duration) *verdict.Rule {
	rule := &verdict.Rule{Required: int(a.Required), Users: a.Users, Groups: a.Groups, ValidFor: window}
	if a.ValidFor != nil {
		rule.ValidFor = a.ValidFor.Duration
	}
	return rule
}

// dropUnverifiedRequests removes the names of requesters, and an override, if the API server does not verify
// the authors of requests. The error is not nil if an override was removed.
func (c *Controller) dropUnverifiedRequests(ctx context.Context, g *gatingv1.Gate, in *verdict.Input) error {
	named := slices.ContainsFunc([]*verdict.Request{in.Requests.Open, in.Requests.Close, in.Requests.Override,
		in.Requests.Refuse}, func(r *verdict.Request) bool { return r != nil && r.By != "" })
	if !named {
		return nil
	}
	err := c.Authors.VerifyRequests(ctx, g.Namespace)
	if err == nil {
		return nil
	}
	for _, r := range []*verdict.Request{in.Requests.Open, in.Requests.Close, in.Requests.Refuse} {
		if r != nil {
			r.By = ""
		}
	}
	if in.Requests.Override == nil {
		return nil
	}
	in.Requests.Override = nil
	return err
}
