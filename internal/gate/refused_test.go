package gate

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/gate/ruling"
	"github.com/sluice-gitops/sluice/internal/risk"
)

// openGate returns an open gate that reverts failures, of which it has one.
func openGate() *gatingv1.Gate {
	g := &gatingv1.Gate{Spec: gatingv1.GateSpec{OnFailure: gatingv1.OnFailureRevert}}
	g.Status.Conditions = []metav1.Condition{{Type: gatingv1.OpenedCondition, Status: metav1.ConditionTrue}}
	g.Status.Failures = []gatingv1.FailedChange{{Revision: "main@sha1:bad", Message: "it crashed"}}
	return g
}

// TestOpenGateRefusesFailedRevisions checks that what a simulation decides is what the controllers do: an open gate
// that reverts failures holds the revision that failed, and no other.
func TestOpenGateRefusesFailedRevisions(t *testing.T) {
	k, now := &kustomizev1.Kustomization{}, time.Now()
	for revision, want := range map[string]string{"main@sha1:bad": "it crashed", "main@sha1:good": "", "": ""} {
		d := Decide(t.Context(), openGate(), revision, &risk.Change{}, k, now)
		if (d.Held == "") != (want == "") || !strings.Contains(d.Held, want) {
			t.Errorf("%q: held %q", revision, d.Held)
		}
		if refused := Refused(openGate(), k, revision, ""); (refused == "") != (want == "") {
			t.Errorf("%q: refused %q", revision, refused)
		}
	}
	held := openGate()
	held.Spec.OnFailure = gatingv1.OnFailureHold
	if refused := Refused(held, k, "main@sha1:bad", ""); refused != "" {
		t.Errorf("a gate that does not revert refuses: %s", refused)
	}
}

// TestUnknownOutcomeHolds has a rule of a newer version, as after a downgrade, and one without its approvals.
func TestUnknownOutcomeHolds(t *testing.T) {
	for _, outcome := range []gatingv1.Outcome{"later", "", gatingv1.OutcomeApprovals} {
		e := &entry{gate: openGate()}
		r := ruling.Ruling{Rule: &gatingv1.Rule{Name: "new", Outcome: outcome}}
		held := e.heldBy(r, "main@sha1:good", &risk.Change{}, time.Now())
		if !strings.Contains(held, "rule 'new'") {
			t.Errorf("%q: %q", outcome, held)
		}
	}
}
