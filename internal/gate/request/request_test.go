package request

import (
	"fmt"
	"testing"
	"time"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
)

// TestApprovalsNameAllChanges checks that as many approvals are created as name all changes.
func TestApprovalsNameAllChanges(t *testing.T) {
	g := &gatingv1.Gate{}
	g.Spec.Rules = []gatingv1.Rule{{Name: "all", Outcome: gatingv1.OutcomeApprovals,
		Approvals: &gatingv1.Approvals{Required: 1}}}
	if _, err := (Approval{User: "a"}).Objects(g, time.Now()); err == nil {
		t.Error("an approval of nothing")
	}
	g.Status.Waiting = []gatingv1.WaitingObject{{Revision: "main@sha1:1", Change: "one"}, {Revision: "main@sha1:2",
		Change: "two"}}
	all, err := Approval{User: "a", Revision: "sha1:2"}.Objects(g, time.Now())
	if err != nil || len(all) != 1 || len(all[0].Spec.Changes) != 1 || all[0].Spec.Changes[0] != "two" {
		t.Errorf("the changes of a revision: %+v, %v", all, err)
	}
	var changes []string
	for n := range 250 {
		changes = append(changes, fmt.Sprint(n))
	}
	all, err = Approval{User: "a", Comment: "ok", Changes: changes}.Objects(g, time.Now())
	if err != nil || len(all) != 3 {
		t.Fatalf("%d approvals, %v", len(all), err)
	}
	for n, want := range []int{100, 100, 50} {
		if s := all[n].Spec; len(s.Changes) != want || s.Changes[0] != fmt.Sprint(100*n) || s.Comment != "ok" {
			t.Errorf("approval %d: %+v", n, s)
		}
	}
}
