package verdict

import (
	"fmt"
	"strings"
	"testing"
	"time"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
)

// failed returns a failure of a revision at a time.
func failed(revision, clock string) gatingv1.FailedChange {
	return gatingv1.FailedChange{Revision: revision, Since: meta.TimeOf(at(clock)),
		Message: "Kustomization 'apps/app' is unhealthy: no"}
}

// resolved returns a failure whose objects are healthy again.
func resolved(f gatingv1.FailedChange) gatingv1.FailedChange {
	f.ResolvedAt = &meta.Time{Time: f.Since.Add(time.Minute)}
	return f
}

// forRevision adds a revision to the open request of annotations.
func forRevision(annotations map[string]string, revision string) map[string]string {
	annotations[gatingv1.OpenRevisionAnnotation] = revision
	return annotations
}

func ofRevision(a Approval, revision, clock string) Approval {
	a.Revision, a.At = revision, at(clock)
	return a
}

var failureCases = map[string]struct {
	closed      bool // by default
	reverts     bool
	rule        *Rule
	approvals   []Approval
	annotations map[string]string
	failures    []gatingv1.FailedChange
	want        string // state, reason, revisions, failures that are left
}{
	"none": {want: "opened Default [] []"},
	"a failure closes the gate": {failures: []gatingv1.FailedChange{failed("b", "10:00")},
		want: "closed RevisionFailed [] [b]"},
	"one that is resolved does not": {failures: []gatingv1.FailedChange{resolved(failed("b", "10:00"))},
		want: "opened Default [] [b]"},
	"a gate that is closed anyway says so": {closed: true, failures: []gatingv1.FailedChange{failed("b", "10:00")},
		want: "closed Default [] [b]"},
	"an earlier request does not count": {failures: []gatingv1.FailedChange{failed("b", "10:00")},
		annotations: requests("open 09:00"), want: "closed RevisionFailed [] [b]"},
	"a later request opens the gate": {failures: []gatingv1.FailedChange{failed("b", "10:00")},
		annotations: requests("open 10:10"), want: "opened Requested [] []"},
	"a later request opens it, but a failed revision needs its name": {reverts: true,
		failures:    []gatingv1.FailedChange{failed("b", "10:00")},
		annotations: requests("open 10:10"), want: "opened Requested [] [b]"},
	"the failed revision is named": {reverts: true, failures: []gatingv1.FailedChange{failed("main@sha1:b", "10:00")},
		annotations: forRevision(requests("open 10:10"), "sha1:b"), want: "opened Requested [sha1:b] []"},
	"a newer revision is named": {failures: []gatingv1.FailedChange{failed("b", "10:00")},
		annotations: forRevision(requests("open 10:10"), "c"), want: "opened Requested [c] [b]"},
	"a newer revision was named before the failure": {failures: []gatingv1.FailedChange{failed("b", "10:00")},
		annotations: forRevision(requests("open 09:10"), "c"), want: "closed RevisionFailed [] [b]"},
	"an approval of any revision is not by name": {failures: []gatingv1.FailedChange{failed("b", "10:00")},
		approvals: []Approval{ofRevision(byAlice, "", "10:10")}, want: "closed RevisionFailed [] [b]"},
	"an approval of a newer revision": {failures: []gatingv1.FailedChange{failed("b", "10:00")},
		approvals: []Approval{ofRevision(byAlice, "c", "10:10")}, want: "opened Approved [c] [b]"},
	"an approval of the failed revision": {reverts: true, failures: []gatingv1.FailedChange{failed("b", "10:00")},
		approvals: []Approval{ofRevision(byAlice, "b", "10:10")}, want: "opened Default [] []"},
	"an approval from before the failure": {reverts: true, failures: []gatingv1.FailedChange{failed("b", "10:00")},
		approvals: []Approval{ofRevision(byAlice, "b", "09:10")}, want: "closed RevisionFailed [] [b]"},
	"too few approvals": {rule: &Rule{Required: 2}, failures: []gatingv1.FailedChange{failed("b", "10:00")},
		approvals: []Approval{ofRevision(byAlice, "c", "10:10"), ofRevision(byBob, "", "09:00"),
			ofRevision(byAlice, "", "09:00")},
		want: "closed RevisionFailed [] [b]"},
	"an override": {failures: []gatingv1.FailedChange{failed("b", "10:00")},
		annotations: map[string]string{
			gatingv1.OverrideRequestedAtAnnotation: day + "10:10:00Z",
			"override.gate.fluxcd.io/reason":       "outage",
			"override.gate.fluxcd.io/requestedBy":  day + "10:10:00Z alice"},
		want: "opened Overridden [] []"},
	"the newest failure decides": {failures: []gatingv1.FailedChange{failed("c", "10:20"), failed("b", "10:00")},
		annotations: requests("open 10:10"), want: "closed RevisionFailed [] [c]"},
}

func TestFailures(t *testing.T) {
	for name, c := range failureCases {
		t.Run(name, func(t *testing.T) {
			in := newInput(t, !c.closed, time.Hour, c.annotations)
			in.Rule, in.Approvals, in.Failures, in.Reverts = c.rule, c.approvals, c.failures, c.reverts
			v := Of(in, at("10:30"))
			left := []string{}
			for _, f := range v.Failures {
				left = append(left, f.Revision)
			}
			if got := fmt.Sprint(State(v.Open), " ", v.Reason, " ", v.Revisions, " ", left); got != c.want {
				t.Errorf("got %q (%s), want %q", got, v.Message, c.want)
			}
			if v.Reason == gatingv1.WhyRevisionFailed && (!strings.Contains(v.Message, "apps/app") ||
				!strings.Contains(v.Why, "since 2026-11-21T10:") || v.HeldSince.IsZero()) {
				t.Errorf("message %q, why %q", v.Message, v.Why)
			}
		})
	}
}

func TestOpenGateNamesWhatItRefuses(t *testing.T) {
	in := newInput(t, true, time.Hour, nil)
	in.Reverts = true
	in.Failures = []gatingv1.FailedChange{resolved(failed("b", "10:00")), resolved(failed("a", "09:00"))}
	want := "Gate opened by default, except for revision 'b', which failed, and 1 more"
	if v := Of(in, at("10:30")); v.Message != want {
		t.Errorf("got %q, want %q", v.Message, want)
	}
}
