package gate_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// TestApprovalsCoverValuesOfSecrets approves a change, and then changes the Secret of its variables: what
// the approver did not see is not applied, before and after the approved change.
func TestApprovalsCoverValuesOfSecrets(t *testing.T) {
	s := newHarness(t)
	s.policies()
	verbs := []string{"get", "list", "create", "update", "patch", "delete"}
	alice := s.person("alice@example.com", nil, verbs...)
	waitForPolicy(t, s, alice)
	s.gateWithRules(gatingv1.Opened, gatingv1.Rule{Name: "four-eyes", Expression: "true",
		Outcome: gatingv1.OutcomeApprovals, Approvals: &gatingv1.Approvals{Required: 1,
			Users: []string{"alice@example.com"}}})
	s.Secret("vars", map[string]string{"PASSWORD": "first-hunter2"})
	commit := s.Git.Commit("app", map[string]string{"a.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n" +
		"stringData: {k: '${PASSWORD}'}\n"})
	s.GitRepository("app")
	s.Kustomization("app", "app", "", func(k *kustomizev1.Kustomization) {
		k.Spec.Gates = system.GateRefs("release")
		k.Spec.PostBuild = &kustomizev1.PostBuild{
			SubstituteFrom: []meta.SubstituteReference{{Kind: "Secret", Name: "vars"}}}
	})
	const waits = "requires 1 approval of this change by rule 'four-eyes'"
	approve := func(name, change string) {
		t.Helper()
		a := s.approval(name, "alice@example.com")
		a.Spec.Changes = []string{change}
		if err := alice.Create(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	first := s.waitingChange("")

	t.Log("the Secret changes before the approval: the digest is another one")
	s.Patch(&corev1.Secret{}, "vars", `{"stringData":{"PASSWORD":"second-hunter2"}}`)
	s.RequestReconcile(&kustomizev1.Kustomization{}, "app")
	second := s.waitingChange(first)
	approve("first", first)
	s.heldBecause(waits)
	approve("second", second)
	s.Ready("app", commit)
	s.secretIs("a", "second-hunter2")

	t.Log("the Secret changes after it: the change waits, and the digest was never used")
	s.Patch(&corev1.Secret{}, "vars", `{"stringData":{"PASSWORD":"third-hunter2"}}`)
	s.RequestReconcile(&kustomizev1.Kustomization{}, "app")
	s.heldBecause(waits)
	third := s.waitingChange(second)
	if third == first || third == second {
		t.Errorf("the change has digest %s again", third)
	}
	s.secretIs("a", "second-hunter2")
	k := &kustomizev1.Kustomization{}
	if err := s.Get(k, "app"); err != nil {
		t.Fatal(err)
	}
	if text := fmt.Sprintf("%+v", k.Status); strings.Contains(text, "hunter2") {
		t.Errorf("the status has a value of a Secret: %s", text)
	}
}

// waitingChange waits until a change other than a known one waits at gate release, and returns its digest.
func (s *harness) waitingChange(known string) (digest string) {
	s.Helper()
	testenv.Eventually(s, "a change waits", func() error {
		g := &gatingv1.Gate{}
		if err := s.Get(g, "release"); err != nil {
			return err
		}
		if len(g.Status.Waiting) == 0 || g.Status.Waiting[0].Change == "" || g.Status.Waiting[0].Change == known {
			return fmt.Errorf("%+v", g.Status.Waiting)
		}
		digest = g.Status.Waiting[0].Change
		return nil
	})
	return digest
}

// secretIs waits until the key k of a Secret has a value.
func (s *harness) secretIs(name, value string) {
	s.Helper()
	testenv.Eventually(s, name+" has "+value, func() error {
		o := &corev1.Secret{}
		if err := s.Get(o, name); err != nil {
			return err
		}
		if got := string(o.Data["k"]); got != value {
			return fmt.Errorf("it has %q", got)
		}
		return nil
	})
}
