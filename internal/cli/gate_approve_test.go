package cli

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
)

// waitAtRules creates Kustomizations that wait at gate release, of which the gate lists the first ones.
func waitAtRules(t *testing.T, c client.Client, g *gatingv1.Gate, total int) {
	t.Helper()
	g.Status.WaitingCount = int64(total)
	for n := range total {
		k := &kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace,
			Name: fmt.Sprintf("app%03d", n)}}
		k.Spec.SourceRef.Kind, k.Spec.SourceRef.Name, k.Spec.Prune = "GitRepository", "app", true
		if err := c.Create(t.Context(), k); err != nil {
			t.Fatal(err)
		}
		change := fmt.Sprintf("sha256:%064d", n)
		k.Status.Gates = []string{g.Namespace + "/release"}
		k.Status.Pending = &meta.Pending{Revision: "main@sha1:def", Change: change, Risk: "medium"}
		k.Status.Conditions = meta.Conditions{{Type: meta.ApprovedCondition, Status: metav1.ConditionFalse,
			Reason: meta.GateClosedReason, LastTransitionTime: metav1.Now()}}
		if err := c.Status().Patch(t.Context(), k, statusOf(t, k)); err != nil {
			t.Fatal(err)
		}
		if n < gatingv1.MaxWaiting {
			g.Status.Waiting = append(g.Status.Waiting, gatingv1.WaitingObject{Kind: "Kustomization",
				Namespace: g.Namespace, Name: k.Name, Revision: "main@sha1:def", Risk: "medium", Change: change,
				Rule: "rights", Message: "requires 1 approval of this change by rule 'rights'"})
		}
	}
	if err := c.Status().Patch(t.Context(), g, statusOf(t, g)); err != nil {
		t.Fatal(err)
	}
}

// TestGateApprovesChanges shows and approves changes that a rule holds, more than one GateApproval can name.
func TestGateApprovesChanges(t *testing.T) {
	c, namespace := withDefinitions(t)
	g := &gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "release"}}
	g.Spec.Rules = []gatingv1.Rule{{Name: "rights", Expression: "true", Outcome: gatingv1.OutcomeApprovals,
		Approvals: &gatingv1.Approvals{Required: 1}}}
	if err := c.Create(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	const total = 103
	waitAtRules(t, c, g, total)
	gate := func(args ...string) result { return at(t, append([]string{"gate", "-n", namespace}, args...)...) }
	digest := "sha256:" + strings.Repeat("0", 64)
	out := gate("status", "release").wants(t, exitOK).out
	for _, want := range []string{"app000 main@sha1:def, risk medium\n    requires 1 approval of this change by rule ",
		"    change " + digest + "\n", "sluice gate approve release -n " + namespace + " --change " + digest,
		"and 3 more"} {
		if !strings.Contains(out, want) {
			t.Errorf("the status has no %q", want)
		}
	}
	gate("approve", "release", "--change", "latest").wants(t, exitUsage, "--change \"latest\"")
	gate("approve", "release", "--change", digest).wants(t, exitOK, "GateApproval '"+namespace+"/release-")
	gate("approve", "release").wants(t, exitOK, "2 GateApprovals created")
	var approvals gatingv1.GateApprovalList
	if err := c.List(t.Context(), &approvals, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	sizes, named := map[int]bool{}, map[string]bool{}
	for _, a := range approvals.Items {
		sizes[len(a.Spec.Changes)] = true
		for _, change := range a.Spec.Changes {
			named[change] = true
		}
	}
	if len(approvals.Items) != 3 || !sizes[1] || !sizes[100] || !sizes[3] || len(named) != total {
		t.Errorf("%d approvals name %d changes: %v", len(approvals.Items), len(named), sizes)
	}
}
