package gate

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// TestForesee looks at a gate on a Friday at noon, by what was seen of it the day before.
func TestForesee(t *testing.T) {
	then := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	before := then.Add(-24 * time.Hour)
	approved := func(a gatingv1.ObservedApproval) func(*gatingv1.Gate) {
		return func(g *gatingv1.Gate) {
			g.Spec.Default = gatingv1.Closed
			g.Spec.Approvals = &gatingv1.Approvals{Required: 1, Groups: []string{"managers"}}
			a.Name, a.User, a.At = "one", "alice", meta.TimeOf(before)
			g.Status.Approvals = []gatingv1.ObservedApproval{a}
		}
	}
	checked := func(r gatingv1.CheckResult) func(*gatingv1.Gate) {
		return func(g *gatingv1.Gate) {
			g.Generation = 2
			g.Spec.Checks = []gatingv1.Check{{Name: "load"}}
			r.Name = "load"
			g.Status.Checks = []gatingv1.CheckResult{r}
		}
	}
	overridden := func(reason string) func(*gatingv1.Gate) {
		return func(g *gatingv1.Gate) {
			at := before.Format(time.RFC3339)
			g.Spec.Default = gatingv1.Closed
			g.Annotations = map[string]string{
				gatingv1.OverridePrefix + gatingv1.RequestedAtSuffix: at,
				gatingv1.OverridePrefix + gatingv1.RequestedBySuffix: at + " alice",
				gatingv1.OverridePrefix + gatingv1.ReasonSuffix:      "the shop is down",
			}
			reconcile.Mark(g, reconcile.TypeReady, metav1.ConditionFalse, reason, "as it was seen")
		}
	}
	until := func(t time.Time) *meta.Time { return &meta.Time{Time: t} }
	for name, c := range map[string]struct {
		change func(*gatingv1.Gate)
		passes bool
	}{
		"open by default": {func(*gatingv1.Gate) {}, true},
		"closed on Fridays": {func(g *gatingv1.Gate) {
			g.Spec.Schedule = []gatingv1.ScheduleEntry{{State: gatingv1.Closed, Cron: "0 0 * * 5",
				Duration: &meta.Duration{Duration: 24 * time.Hour}}}
		}, false},
		"closed on Saturdays": {func(g *gatingv1.Gate) {
			g.Spec.Schedule = []gatingv1.ScheduleEntry{{State: gatingv1.Closed, Cron: "0 0 * * 6",
				Duration: &meta.Duration{Duration: 24 * time.Hour}}}
		}, true},
		"a schedule that cannot be followed": {func(g *gatingv1.Gate) {
			g.Spec.Schedule = []gatingv1.ScheduleEntry{{State: gatingv1.Opened, Cron: "never"}}
		}, false},
		"asked to close for longer": {func(g *gatingv1.Gate) {
			g.Spec.Window = &meta.Duration{Duration: 25 * time.Hour}
			g.Annotations = map[string]string{
				gatingv1.ClosePrefix + gatingv1.RequestedAtSuffix: before.Format(time.RFC3339)}
		}, false},
		"asked to close, and over": {func(g *gatingv1.Gate) {
			g.Spec.Window = &meta.Duration{Duration: time.Hour}
			g.Annotations = map[string]string{
				gatingv1.ClosePrefix + gatingv1.RequestedAtSuffix: before.Format(time.RFC3339)}
		}, true},
		"approved by a member of the group": {approved(gatingv1.ObservedApproval{Counts: true}), true},
		"approved until then": {
			approved(gatingv1.ObservedApproval{Counts: true, Until: until(then)}), false},
		"an approval that does not count": {approved(gatingv1.ObservedApproval{Message: "it was withdrawn"}), false},
		"approved for this revision": {
			approved(gatingv1.ObservedApproval{Counts: true, Revision: "main@sha1:a"}), true},
		"approved for another revision": {
			approved(gatingv1.ObservedApproval{Counts: true, Revision: "main@sha1:b"}), false},
		"a check that holds":            {checked(gatingv1.CheckResult{Holds: true, Generation: 2}), true},
		"a check that does not hold":    {checked(gatingv1.CheckResult{Generation: 2}), false},
		"a check of the gate as it was": {checked(gatingv1.CheckResult{Holds: true, Generation: 1}), false},
		"overridden":                    {overridden(reconcile.ReasonFailed), true},
		"overridden by who knows whom":  {overridden(gatingv1.PolicyMissingReason), false},
		"a gate that waits for itself": {func(g *gatingv1.Gate) {
			reconcile.Mark(g, reconcile.TypeReady, metav1.ConditionFalse, gatingv1.CheckCycleReason, "as it was seen")
		}, false},
		"a gate that goes": {func(g *gatingv1.Gate) { g.DeletionTimestamp = &metav1.Time{Time: before} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := &gatingv1.Gate{Spec: gatingv1.GateSpec{Default: gatingv1.Opened}}
			c.change(g)
			was := g.DeepCopy()
			foreseen := Foresee(g, then)
			if got := Passes(foreseen, "main@sha1:a", then); got != c.passes {
				t.Errorf("passes is %t, want %t: %s", got, c.passes, foreseen.Status.Why.Message)
			}
			if len(g.Status.Conditions) != len(was.Status.Conditions) || g.Status.Why != nil {
				t.Error("the gate that was looked at is not as it was")
			}
		})
	}
}
