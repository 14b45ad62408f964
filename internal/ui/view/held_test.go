package view

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
)

// gateOfDelivery returns a Gate whose status lists the Kustomization of a delivery as waiting.
func gateOfDelivery(revision string) *gatingv1.Gate {
	g := &gatingv1.Gate{}
	g.Namespace, g.Name = "team", "door"
	since := meta.TimeOf(at(20))
	g.Status.WaitingCount = 1
	g.Status.Waiting = []gatingv1.WaitingObject{{Kind: "Kustomization", Namespace: "team", Name: "app",
		Revision: revision, Since: &since, Risk: "high"}}
	return g
}

// gateStep returns the step at the gate of a delivery whose commit waits there.
func gateStep(t *testing.T, g *gatingv1.Gate, query string) Step {
	t.Helper()
	d := newDelivery()
	since := meta.TimeOf(at(20))
	d.app.Status.LastAppliedRevision = "main@sha1:" + strings.Repeat("f", 40)
	d.app.Status.Pending = &meta.Pending{Revision: "main@sha1:" + commit, Since: &since, Risk: "high"}
	d.app.Status.HeldBy = []meta.HoldingGate{{Gate: "team/door", Code: "Closed"}}
	d.app.Status.Conditions = append(d.app.Status.Conditions, metav1.Condition{Type: meta.ApprovedCondition,
		Status: metav1.ConditionFalse, Message: "gate 'team/door' is closed"})
	d.gate.Gate = gateOf(g)
	_, c := d.ask(t, query)
	for _, s := range c.Steps {
		if s.Name == "gate" {
			if s.State != Blocked || !s.From.Equal(at(20)) || s.Object != "Gate/team/door" || c.Live ||
				!strings.Contains(s.Text, "high risk: gate 'team/door' is closed") {
				t.Errorf("the step is %+v", s)
			}
			return s
		}
	}
	t.Fatalf("%+v has no gate", c.Steps)
	return Step{}
}

func TestWhySaysWhatToDoAtAGate(t *testing.T) {
	revision, until := "main@sha1:"+commit, meta.TimeOf(at(7200))
	checks := []gatingv1.Check{{Name: "staging", Revision: &gatingv1.RevisionCheck{Kind: "Kustomization",
		Name: "app-staging", Namespace: "stage"}}, {Name: "errors", HTTP: &gatingv1.HTTPCheck{}}}
	closedBy := func(reason string) *gatingv1.Explanation { return &gatingv1.Explanation{Reason: reason} }
	for name, test := range map[string]struct {
		change func(g *gatingv1.Gate)
		want   string
		until  time.Time
	}{
		"soaks": {change: func(g *gatingv1.Gate) {
			g.Spec.Checks, g.Status.Why = checks, closedBy(gatingv1.WhyCheckFailed)
			g.Status.Checks = []gatingv1.CheckResult{{Name: "staging", Revision: &gatingv1.ObservedRevision{
				Ready: "v1@sha1:" + commit, Until: &until}}}
		}, want: "goes on by itself if Kustomization/stage/app-staging stays Ready", until: until.Time},
		"is not in staging": {change: func(g *gatingv1.Gate) {
			g.Spec.Checks, g.Status.Why = checks, closedBy(gatingv1.WhyCheckFailed)
			g.Status.Checks = []gatingv1.CheckResult{{Name: "staging", Holds: true,
				Revision: &gatingv1.ObservedRevision{Promoted: "main@sha1:" + strings.Repeat("e", 40)}}}
		}, want: "look at Kustomization/stage/app-staging"},
		"a check fails": {change: func(g *gatingv1.Gate) {
			g.Spec.Checks, g.Status.Why = checks, closedBy(gatingv1.WhyCheckFailed)
			g.Status.Checks = []gatingv1.CheckResult{{Name: "staging", Holds: true,
				Revision: &gatingv1.ObservedRevision{Promoted: "v1@sha1:" + commit}}, {Name: "errors"}}
		}, want: "make check 'errors' pass"},
		"waves": {change: func(g *gatingv1.Gate) {
			g.Status.Waves = []gatingv1.WaveProgress{
				{Source: "GitRepository/a/old", Revision: "main@sha1:" + strings.Repeat("e", 40), Complete: true},
				{Source: "GitRepository/a/app", Revision: "v1@sha1:" + commit, Wave: "canary", Until: &until,
					Message: "wave 'canary': 1 of 1 is Ready, soaks"}}
		}, want: "wait for its wave, or repair what holds the wave before: wave 'canary'", until: until.Time},
		"a rule": {change: func(g *gatingv1.Gate) {
			g.Spec.Rules = []gatingv1.Rule{{Name: "four-eyes", Outcome: gatingv1.OutcomeApprovals,
				Approvals: &gatingv1.Approvals{Required: 2, Users: []string{"ada"}, Groups: []string{"sec"}}}}
			g.Status.Waiting[0].Rule = "four-eyes"
		}, want: "as rule 'four-eyes' requires: by ada or members of sec"},
		"a rule that denies": {change: func(g *gatingv1.Gate) {
			g.Spec.Rules = []gatingv1.Rule{{Name: "no-crds", Outcome: gatingv1.OutcomeDeny}}
			g.Status.Waiting[0].Rule = "no-crds"
		}, want: "change it in git, so that rule 'no-crds'"},
		"approvals": {change: func(g *gatingv1.Gate) { g.Status.Why = closedBy(gatingv1.WhyApprovalRequired) },
			want: "ask those to approve it who may"},
		"a failure": {change: func(g *gatingv1.Gate) { g.Status.Why = closedBy(gatingv1.WhyRevisionFailed) },
			want: "repair the objects that failed"},
		"it failed": {change: func(g *gatingv1.Gate) {
			g.Status.Failures = []gatingv1.FailedChange{{Revision: revision}}
		}, want: "commit a fix"},
		"a schedule": {change: func(g *gatingv1.Gate) {
			g.Status.NextTransition = &gatingv1.Transition{At: until, State: gatingv1.Opened}
		}, want: "wait until the gate opens", until: until.Time},
		"a person": {change: func(*gatingv1.Gate) {}, want: openGate},
	} {
		g := gateOfDelivery(revision)
		test.change(g)
		if s := gateStep(t, g, commit); !strings.Contains(s.Do, test.want) || !s.Until.Equal(test.until) {
			t.Errorf("%s: %q until %s", name, s.Do, s.Until)
		}
	}
}

func TestWhySaysThatAChangeWasReverted(t *testing.T) {
	d := newDelivery()
	before := "main@sha1:" + strings.Repeat("e", 40)
	d.app.Status.LastAppliedRevision = before
	d.app.Status.Pending = &meta.Pending{Revision: "main@sha1:" + commit}
	d.app.Status.Reverted = &meta.Reverted{From: "main@sha1:" + commit, To: before, Gate: "team/door",
		Since: meta.TimeOf(at(50)), Reason: "Deployment 'web' is not ready"}
	for _, query := range []string{commit, "team/app"} {
		got, c := d.ask(t, query)
		s := c.Steps[3]
		if c.Live || s.Name != "gate" || s.State != Blocked || !s.From.Equal(at(50)) || s.Object != "Gate/team/door" ||
			!strings.Contains(s.Text, "was reverted to "+before+" because Deployment 'web' is not ready") ||
			!strings.Contains(s.Do, "commit a fix") {
			t.Errorf("%s: %s\n%+v", query, got, s)
		}
	}
	// A newer commit is about itself, but the failed one is still found.
	newer := "main@sha1:" + strings.Repeat("d", 40)
	d.source.Status.Artifact.Revision, d.app.Status.Pending.Revision = newer, newer
	if _, c := d.ask(t, "team/app"); strings.Contains(c.Steps[3].Text, "reverted") {
		t.Errorf("the newer commit: %+v", c.Steps[3])
	}
	if _, c := d.ask(t, commit); !strings.Contains(c.Steps[3].Text, "reverted") {
		t.Errorf("the failed commit: %+v", c.Steps[3])
	}
}

func TestRecordOfAGateIsBounded(t *testing.T) {
	g := gateOfDelivery("main@sha1:" + commit)
	long := strings.Repeat("x", 256<<10)
	now := meta.TimeOf(noon)
	g.Status.Why = &gatingv1.Explanation{Reason: long, Message: long}
	for range 1000 {
		g.Status.Checks = append(g.Status.Checks, gatingv1.CheckResult{Name: long, Message: long,
			Revision: &gatingv1.ObservedRevision{Ready: long, Promoted: long + "1", Until: &now}})
		g.Status.Failures = append(g.Status.Failures, gatingv1.FailedChange{Revision: long, Message: long,
			Objects: []gatingv1.FailedObject{{Kind: long, Namespace: long, Name: long}}})
		g.Status.Waiting = append(g.Status.Waiting, gatingv1.WaitingObject{Rule: long, Message: long, Revision: long,
			Change: long, Risk: long})
		g.Status.ApprovedRevisions = append(g.Status.ApprovedRevisions, long)
	}
	r := gateOf(g)
	size := 0
	for _, c := range r.Checks {
		size += len(c.Name) + len(c.Message) + len(c.Soaks) + len(c.Promoted)
	}
	for _, f := range r.Failures {
		size += len(f.Revision) + len(f.Message) + len(strings.Join(f.Objects, ""))
	}
	for _, w := range r.Waiting {
		size += len(w.ID) + len(w.Rule) + len(w.Message) + len(w.Revision) + len(w.Change) + len(w.Risk)
	}
	size += len(r.Reason) + len(r.Why) + len(strings.Join(r.Revisions, ""))
	if size > 300<<10 || len(r.Checks) == 0 || len(r.Failures) == 0 || len(r.Waiting) == 0 {
		t.Errorf("the record has %d bytes", size)
	}
}
