package gate

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/reconcile/decision"
)

func dailySchedule(state gatingv1.State, cron string) func(*gatingv1.Gate) {
	return func(g *gatingv1.Gate) {
		g.Spec.Schedule = []gatingv1.ScheduleEntry{{State: state, Cron: cron,
			Duration: &meta.Duration{Duration: 24 * time.Hour}}}
	}
}

var simulatedAt = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

var dayBefore = simulatedAt.Add(-24 * time.Hour)

func withCloseRequest(window time.Duration) func(*gatingv1.Gate) {
	return func(g *gatingv1.Gate) {
		g.Spec.Window = &meta.Duration{Duration: window}
		g.Annotations = map[string]string{
			gatingv1.ClosePrefix + gatingv1.RequestedAtSuffix: dayBefore.Format(time.RFC3339)}
	}
}

func withApproval(a gatingv1.ObservedApproval) func(*gatingv1.Gate) {
	return func(g *gatingv1.Gate) {
		g.Spec.Default = gatingv1.Closed
		g.Spec.Approvals = &gatingv1.Approvals{Required: 1, Groups: []string{"managers"}}
		a.Name, a.User, a.At = "one", "alice", meta.TimeOf(dayBefore)
		g.Status.Approvals = []gatingv1.ObservedApproval{a}
	}
}

func timeOf(t time.Time) *meta.Time { return &meta.Time{Time: t} }

func withCheck(r gatingv1.CheckResult) func(*gatingv1.Gate) {
	return func(g *gatingv1.Gate) {
		g.Generation = 2
		g.Spec.Checks = []gatingv1.Check{{Name: "load"}}
		r.Name = "load"
		g.Status.Checks = []gatingv1.CheckResult{r}
	}
}

func withOverride(reason string) func(*gatingv1.Gate) {
	return func(g *gatingv1.Gate) {
		at := dayBefore.Format(time.RFC3339)
		g.Spec.Default = gatingv1.Closed
		g.Annotations = map[string]string{
			gatingv1.OverridePrefix + gatingv1.RequestedAtSuffix: at,
			gatingv1.OverridePrefix + gatingv1.RequestedBySuffix: at + " alice",
			gatingv1.OverridePrefix + gatingv1.ReasonSuffix:      "the shop is down",
		}
		reconcile.Mark(g, reconcile.TypeReady, metav1.ConditionFalse, reason, "observed")
	}
}

var simulations = map[string]struct {
	change func(*gatingv1.Gate)
	allows bool
}{
	"open by default":                   {change: func(*gatingv1.Gate) {}, allows: true},
	"closed on Fridays":                 {change: dailySchedule(gatingv1.Closed, "0 0 * * 5")},
	"closed on Saturdays":               {change: dailySchedule(gatingv1.Closed, "0 0 * * 6"), allows: true},
	"invalid schedule":                  {change: dailySchedule(gatingv1.Opened, "never")},
	"close request with a long window":  {change: withCloseRequest(25 * time.Hour)},
	"close request that has ended":      {change: withCloseRequest(time.Hour), allows: true},
	"approved by a member of the group": {change: withApproval(gatingv1.ObservedApproval{Counts: true}), allows: true},
	"approval expires": {
		change: withApproval(gatingv1.ObservedApproval{Counts: true, Until: timeOf(simulatedAt)})},
	"approval does not count": {change: withApproval(gatingv1.ObservedApproval{Message: "withdrawn"})},
	"approved for this revision": {
		change: withApproval(gatingv1.ObservedApproval{Counts: true, Revision: "main@sha1:a"}), allows: true},
	"approved for another revision": {
		change: withApproval(gatingv1.ObservedApproval{Counts: true, Revision: "main@sha1:b"})},
	"check passes":            {change: withCheck(gatingv1.CheckResult{Holds: true, Generation: 2}), allows: true},
	"check fails":             {change: withCheck(gatingv1.CheckResult{Generation: 2})},
	"check of an older spec":  {change: withCheck(gatingv1.CheckResult{Holds: true, Generation: 1})},
	"override":                {change: withOverride(reconcile.ReasonFailed), allows: true},
	"override without policy": {change: withOverride(gatingv1.PolicyMissingReason)},
	"checks form a cycle": {change: func(g *gatingv1.Gate) {
		reconcile.Mark(g, reconcile.TypeReady, metav1.ConditionFalse, gatingv1.CheckCycleReason, "observed")
	}},
	"gate is being deleted": {change: func(g *gatingv1.Gate) { g.DeletionTimestamp = &metav1.Time{Time: dayBefore} }},
}

// TestSimulate simulates a gate for a Friday at noon, with the status of the day before.
func TestSimulate(t *testing.T) {
	for name, c := range simulations {
		t.Run(name, func(t *testing.T) {
			g := &gatingv1.Gate{Spec: gatingv1.GateSpec{Default: gatingv1.Opened}}
			c.change(g)
			original := g.DeepCopy()
			simulated := Simulate(g, simulatedAt)
			if got := decision.Allows(simulated, "main@sha1:a", simulatedAt); got != c.allows {
				t.Errorf("Allows = %t, want %t: %s", got, c.allows, simulated.Status.Why.Message)
			}
			if len(g.Status.Conditions) != len(original.Status.Conditions) || g.Status.Why != nil {
				t.Error("Simulate modified its argument")
			}
		})
	}
}
