package gate

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/gate/verdict"
	"github.com/sluice-gitops/sluice/internal/reconcile/decision"
)

func TestAGateThatOpenedLaterThanNowIsClosedUntilItIsEvaluated(t *testing.T) {
	later := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	now := later.Add(-365 * 24 * time.Hour) // the clock was set back
	g := &gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"}}
	open := verdict.Verdict{Open: true, Reason: "Default", Message: "open", Why: "open"}
	setStatus(g, open, nil, later)
	if !decision.Allows(g, "main@sha1:a", later) {
		t.Fatal("an open gate allows nothing")
	}
	if decision.Allows(g, "main@sha1:a", now) {
		t.Error("a gate is open before it opened")
	}
	if transition := setStatus(g, open, nil, now); transition != nil {
		t.Errorf("the evaluation is a transition: %+v", transition)
	}
	if !decision.Allows(g, "main@sha1:a", now) || !g.Status.History[0].At.Time.Equal(now) {
		t.Errorf("after an evaluation the gate is closed; its history begins at %s", g.Status.History[0].At)
	}
}

func TestAGateIsClosedBeforeTheTimeOfItsSeal(t *testing.T) {
	opened := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	evaluated := opened.Add(30 * time.Hour)
	var s sealer
	g := &gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b", UID: "u"}}
	evaluate := func(now, next time.Time) {
		setStatus(g, verdict.Verdict{Open: true, Reason: "Default", Message: "open", Why: "open", Next: next}, nil, now)
		s.seal(testSeals, g, now)
		if !isSealed(testSeals, g) {
			t.Fatal("the seal is not valid")
		}
	}
	evaluate(opened, opened.Add(time.Hour))
	evaluate(evaluated, evaluated.Add(time.Hour)) // it may have been closed meanwhile
	if decision.Allows(g, "main@sha1:a", evaluated.Add(-2*time.Hour)) {
		t.Error("the gate is open at a time that it was not evaluated for")
	}
	before := g.Status.Seal.Value
	evaluate(evaluated.Add(time.Minute), evaluated.Add(time.Hour))
	if g.Status.Seal.Value != before {
		t.Error("the seal of an unchanged state has changed")
	}
	earlier := evaluated.Add(-2 * time.Hour)
	evaluate(earlier, evaluated.Add(time.Hour))
	if !decision.Allows(g, "main@sha1:a", earlier) || !decision.Allows(g, "main@sha1:a", evaluated) {
		t.Error("the gate is closed after its evaluation")
	}
	forged := g.DeepCopy()
	forged.Status.Seal.Value, _ = decision.SplitSeal(g.Status.Seal.Value)
	if isSealed(testSeals, forged) {
		t.Error("the time of the seal is not sealed")
	}
}

func TestApprovedChangesEnd(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	later := meta.TimeOf(now.Add(time.Hour))
	for name, tc := range map[string]struct {
		edit func(*gatingv1.Gate)
		now  time.Time
		want bool
	}{
		"approved":         {now: now, want: true},
		"expired":          {now: now.Add(2 * time.Hour)},
		"another change":   {edit: func(g *gatingv1.Gate) { g.Status.ApprovedChanges[0].Change = "y" }, now: now},
		"another rule":     {edit: func(g *gatingv1.Gate) { g.Status.ApprovedChanges[0].Rule = "other" }, now: now},
		"the spec changed": {edit: func(g *gatingv1.Gate) { g.Generation = 2 }, now: now},
		"being deleted": {edit: func(g *gatingv1.Gate) { g.DeletionTimestamp = &metav1.Time{Time: now} },
			now: now},
		"the clock went back": {now: now.Add(-2 * time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			g := &gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Generation: 1}}
			g.Status.ObservedGeneration = 1
			g.Status.Seal = &gatingv1.Seal{Value: fmt.Sprintf("code.%d", now.Unix())}
			g.Status.ApprovedChanges = []gatingv1.ApprovedChange{{Rule: "rule", Change: "x", Until: &later}}
			if tc.edit != nil {
				tc.edit(g)
			}
			if got := decision.IsChangeApproved(g, "rule", "x", tc.now); got != tc.want {
				t.Errorf("approved: %t, want %t", got, tc.want)
			}
		})
	}
}
