package verdict

import (
	"fmt"
	"slices"
	"testing"
	"time"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/gate/calendar"
)

var byAlice = Approval{Name: "a", User: "alice", Groups: []string{"managers"}, At: at("10:00")}

var byBob = Approval{Name: "b", User: "bob", At: at("10:20")}

func changedApproval(a Approval, change func(*Approval)) Approval { change(&a); return a }

var twoOfThree = Rule{Required: 2, Users: []string{"alice", "bob", "carol"}, ValidFor: time.Hour}

var noonTrain = []calendar.Entry{{Opens: true, Cron: "0 12 * * *", Duration: time.Hour}}

var saturdayFreeze = []calendar.Entry{{Cron: "0 9 * * 6", Duration: 8 * time.Hour}}

var approvalCases = map[string]struct {
	rule        Rule
	approvals   []Approval
	annotations map[string]string
	entries     []calendar.Entry
	now         string
	want        string // state, reason, revisions, next
}{
	"no approval": {rule: twoOfThree, now: "10:30", want: "closed Default [] "},
	"one of two approvals": {rule: twoOfThree, approvals: []Approval{byAlice}, now: "10:30",
		want: "closed Default [] "},
	"two of two approvals": {rule: twoOfThree, approvals: []Approval{byAlice, byBob}, now: "10:30",
		want: "opened Approved [] 11:00"},
	"first approval expired": {rule: twoOfThree, approvals: []Approval{byAlice, byBob}, now: "11:00",
		want: "closed Default [] "},
	"two approvals of one user": {rule: twoOfThree,
		approvals: []Approval{byAlice, changedApproval(byAlice, func(a *Approval) { a.Name = "a2" })}, now: "10:30",
		want: "closed Default [] "},
	"user is not an approver": {rule: twoOfThree,
		approvals: []Approval{byAlice, changedApproval(byBob, func(a *Approval) { a.User = "mallory" })}, now: "10:30",
		want: "closed Default [] "},
	"member of an approver group": {rule: Rule{Required: 1, Groups: []string{"managers"}},
		approvals: []Approval{byAlice},
		now:       "10:30", want: "opened Approved [] "},
	"not a member of an approver group": {rule: Rule{Required: 1, Groups: []string{"managers"}},
		approvals: []Approval{byBob}, now: "10:30", want: "closed Default [] "},
	"no approvers are listed": {rule: Rule{Required: 1}, approvals: []Approval{byBob}, now: "23:30",
		want: "opened Approved [] "},
	"withdrawn": {rule: twoOfThree,
		approvals: []Approval{changedApproval(byAlice, func(a *Approval) { a.Withdrawn = true }), byBob}, now: "10:30",
		want: "closed Default [] "},
	"expired by expiresAt": {rule: twoOfThree,
		approvals: []Approval{changedApproval(byAlice, func(a *Approval) { a.ExpiresAt = at("10:25") }), byBob},
		now:       "10:30",
		want:      "closed Default [] "},
	"valid for longer by expiresAt": {rule: twoOfThree,
		approvals: []Approval{changedApproval(byAlice, func(a *Approval) { a.ExpiresAt = at("20:00") }), byBob},
		now:       "11:10",
		want:      "opened Approved [] 11:20"},
	"author is not verified": {rule: twoOfThree,
		approvals: []Approval{changedApproval(byAlice, func(a *Approval) { a.Unverified = "no" }), byBob}, now: "10:30",
		want: "closed Default [] "},
	"both for one revision": {rule: twoOfThree,
		approvals: []Approval{changedApproval(byAlice, func(a *Approval) { a.Revision = "r1" }),
			changedApproval(byBob, func(a *Approval) { a.Revision = "r1" })}, now: "10:30",
		want: "opened Approved [r1] 11:00"},
	"for different revisions": {rule: twoOfThree,
		approvals: []Approval{changedApproval(byAlice, func(a *Approval) { a.Revision = "r1" }),
			changedApproval(byBob, func(a *Approval) { a.Revision = "r2" })}, now: "10:30", want: "closed Default [] "},
	"one for a revision, one for any": {rule: twoOfThree,
		approvals: []Approval{changedApproval(byAlice, func(a *Approval) { a.Revision = "r1" }), byBob}, now: "10:30",
		want: "opened Approved [r1] 11:00"},
	"open request without enough approvals": {rule: twoOfThree, approvals: []Approval{byAlice},
		annotations: requests("open 10:10"), now: "10:30",
		want: "closed ApprovalRequired [] "},
	"open request with approvals": {rule: twoOfThree, approvals: []Approval{byAlice, byBob},
		annotations: requests("open 10:10"), now: "10:30",
		want: "opened Requested [] 11:00"},
	"close request revokes approvals": {rule: twoOfThree, approvals: []Approval{byAlice, byBob},
		annotations: requests("close 10:25"), now: "10:30",
		want: "closed Requested [] "},
	"approvals after a close request": {rule: twoOfThree,
		approvals: []Approval{changedApproval(byAlice, func(a *Approval) { a.At = at("10:26") }),
			changedApproval(byBob, func(a *Approval) { a.At = at("10:27") })}, annotations: requests("close 10:25"),
		now:  "10:30",
		want: "opened Approved [] 11:26"},
	"approvals do not override a closing schedule": {rule: twoOfThree, approvals: []Approval{byAlice, byBob},
		entries: saturdayFreeze,
		now:     "10:30",
		want:    "closed Scheduled [] "},
	"approvals before an opening schedule": {rule: twoOfThree, approvals: []Approval{byAlice, byBob},
		entries: noonTrain,
		now:     "10:30",
		want:    "closed Default [] "},
	"opening schedule without enough approvals": {rule: twoOfThree, approvals: []Approval{byAlice}, entries: noonTrain,
		now:  "12:30",
		want: "closed ApprovalRequired [] "},
	"opening schedule with approvals": {rule: Rule{Required: 2}, approvals: []Approval{byAlice, byBob},
		entries: noonTrain,
		now:     "12:30",
		want:    "opened Scheduled [] 13:00"},
}

func TestApprovals(t *testing.T) {
	for name, c := range approvalCases {
		t.Run(name, func(t *testing.T) {
			k := newInput(t, false, time.Hour, c.annotations, c.entries...)
			k.Rule, k.Approvals = &c.rule, c.approvals
			v := Of(k, at(c.now))
			if got := fmt.Sprint(State(v.Open), " ", v.Reason, " ", v.Revisions, " ", hm(v.Next)); got != c.want {
				t.Errorf("got %q (%s), want %q", got, v.Message, c.want)
			}
			counted := slices.ContainsFunc(v.Approvals,
				func(o gatingv1.ObservedApproval) bool { return o.Counts != (o.Message == "") })
			if len(v.Approvals) != len(c.approvals) || counted {
				t.Errorf("observed approvals: %+v", v.Approvals)
			}
		})
	}
}

func TestOpenRequestForOneRevision(t *testing.T) {
	annotations := requests("open 10:00")
	annotations[gatingv1.OpenRevisionAnnotation] = "main@sha1:abc"
	c := newInput(t, false, time.Hour, annotations)
	if v := Of(c, at("10:10")); !v.Open || !slices.Equal(v.Revisions, []string{"main@sha1:abc"}) {
		t.Errorf("got %+v", v)
	}
	c.Rule = &Rule{Required: 1}
	c.Approvals = []Approval{{User: "alice", At: at("10:00"), Revision: "main@sha1:def"}}
	if v := Of(c, at("10:10")); v.Open || v.Reason != gatingv1.WhyApprovalRequired || v.Revisions != nil {
		t.Errorf("approval of another revision: got %+v", v)
	}
}

func TestChangesAreApprovedByDigest(t *testing.T) {
	of := func(a Approval, changes ...string) Approval { a.Changes = changes; return a }
	until := func(a Approval, clock string) Approval { a.ExpiresAt = at(clock); return a }
	byEve := Approval{User: "eve", At: at("10:00")}
	rule := Rule{Required: 2, Users: []string{"alice", "bob"}}
	for name, tc := range map[string]struct {
		approvals []Approval
		want      string
	}{
		"none": {want: "[]"},
		"one of two": {
			approvals: []Approval{of(byAlice, "x")},
			want:      "[]"},
		"two": {
			approvals: []Approval{of(byAlice, "x"), of(byBob, "x", "y")},
			want:      "[x never]"},
		"two of one user": {
			approvals: []Approval{of(byAlice, "x"), of(byAlice, "x")},
			want:      "[]"},
		"different changes": {
			approvals: []Approval{of(byAlice, "x"), of(byBob, "y")},
			want:      "[]"},
		"a revision names no change": {
			approvals: []Approval{of(byAlice, "x"), byBob},
			want:      "[]"},
		"not an approver": {
			approvals: []Approval{of(byAlice, "x"), of(byEve, "x")},
			want:      "[]"},
		"ends with the first to expire": {
			approvals: []Approval{until(of(byAlice, "x"), "11:00"), until(of(byBob, "x"), "12:00")},
			want:      "[x 11:00]"},
		"expired": {
			approvals: []Approval{until(of(byAlice, "x"), "10:25"), of(byBob, "x")},
			want:      "[]"},
		"renewed": {
			approvals: []Approval{until(of(byAlice, "x"), "11:00"), of(byAlice, "x"), until(of(byBob, "x"), "12:00")},
			want:      "[x 12:00]"},
	} {
		t.Run(name, func(t *testing.T) {
			got := []string{}
			for _, c := range rule.Changes(tc.approvals, time.Time{}, at("10:30")) {
				end := "never"
				if !c.Until.IsZero() {
					end = c.Until.Format("15:04")
				}
				got = append(got, c.Digest+" "+end)
			}
			if text := fmt.Sprint(got); text != tc.want {
				t.Errorf("got %s, want %s", text, tc.want)
			}
		})
	}
	if got := rule.count([]Approval{of(byAlice, "x"), of(byBob, "x")}, time.Time{}, at("10:30")); got.enough() {
		t.Error("approvals of changes open the gate for all revisions")
	}
}
