package gate_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// gateWithRules creates gate release with a default state.
func (s *harness) gateWithRules(state gatingv1.State, rules ...gatingv1.Rule) {
	s.Helper()
	s.newGate("release", gatingv1.GateSpec{Default: state, Rules: rules})
}

// ruled creates a Kustomization behind gate release, and its source.
func (s *harness) ruled(name string) {
	s.Helper()
	s.GitRepository("app")
	s.Kustomization(name, "app", "", func(k *kustomizev1.Kustomization) {
		k.Spec.Prune, k.Spec.Gates = true, system.GateRefs("release")
	})
}

// heldBecause waits until a gate holds Kustomization app with a message.
func (s *harness) heldBecause(why string) {
	s.Helper()
	s.says(&kustomizev1.Kustomization{}, "app", "Approved", metav1.ConditionFalse, "GateClosed",
		fmt.Sprintf("Reconciliation is waiting approval, gate '%s/release' %s.", s.Namespace, why))
}

func TestRulesJudgeTheChange(t *testing.T) {
	t.Parallel()
	s := newHarness(t)
	s.gateWithRules(gatingv1.Opened,
		gatingv1.Rule{Name: "no-deletion", Expression: "change.deleted.size() > 0", Outcome: gatingv1.OutcomeDeny,
			Message: "ask the platform team"},
		gatingv1.Rule{Name: "docs", Expression: "change.files.exists(f, f == 'secret.yaml')",
			Outcome: gatingv1.OutcomeDeny})
	first := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1"),
		"b.yaml": system.ConfigMap("b", "1")})
	s.ruled("app")

	t.Log("no rule applies, and the gate is open")
	s.Ready("app", first)
	s.says(&kustomizev1.Kustomization{}, "app", "Approved", metav1.ConditionTrue, "GateOpen",
		"Reconciliation is approved.")

	t.Log("a rule denies a change although the gate is open")
	second := s.Git.Commit("app", map[string]string{"b.yaml": ""})
	s.RequestFetch("app")
	s.heldBecause("denies the change by rule 'no-deletion': ask the platform team")
	s.pending("app", second, 0, 0, 1)
	s.ConfigMapHas("b", "1")

	t.Log("a commit without the denied change passes")
	third := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "2"),
		"b.yaml": system.ConfigMap("b", "1")})
	s.RequestFetch("app")
	s.Ready("app", third)
	s.ConfigMapHas("a", "2")

	t.Log("files of the commit are known")
	s.Git.Commit("app", map[string]string{"secret.yaml": system.ConfigMap("c", "1")})
	s.RequestFetch("app")
	s.heldBecause("denies the change by rule 'docs'")

	t.Log("what was let through is not decided about again: drift is corrected, also after a restart")
	s.Git.Commit("app", map[string]string{"secret.yaml": ""})
	s.RequestFetch("app")
	s.says(&kustomizev1.Kustomization{}, "app", "Approved", metav1.ConditionTrue, "GateOpen",
		"Reconciliation is approved.")
	s.Stop()
	s.Start()
	if err := s.Client.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace,
		Name: "a"}}); err != nil {
		t.Fatal(err)
	}
	s.ConfigMapHas("a", "2")
}

func TestRulePassesThroughAClosedGate(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	s.gateWithRules(gatingv1.Closed, gatingv1.Rule{Name: "settings", Outcome: gatingv1.OutcomePass,
		Expression: "object.labels[?'tier'].orValue('') == 'test' && change.risk == 'low' && " +
			"change.created.all(o, o.kind == 'ConfigMap')"})
	first := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1")})
	s.ruled("app")
	s.heldBecause("is closed, and none of its rules applies")
	s.Patch(&kustomizev1.Kustomization{}, "app", `{"metadata":{"labels":{"tier":"test"}}}`)
	s.RequestReconcile(&kustomizev1.Kustomization{}, "app")
	s.Ready("app", first)

	t.Log("a change of more risk waits")
	s.Git.Commit("app", map[string]string{"role.yaml": `apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader}
rules:
- {apiGroups: [""], resources: [secrets], verbs: [get]}
`})
	s.RequestFetch("app")
	s.heldBecause("is closed, and none of its rules applies")
	testenv.Eventually(t, "the change waits", func() error {
		k := &kustomizev1.Kustomization{}
		if err := s.Get(k, "app"); err != nil {
			return err
		}
		if p := k.Status.Pending; p == nil || p.Risk != "medium" || p.Change == "" {
			return fmt.Errorf("pending is %+v", p)
		}
		return nil
	})
}

func TestRuleRequiresApprovalsOfTheChange(t *testing.T) {
	s := newHarness(t)
	s.policies()
	verbs := []string{"get", "list", "create", "update", "patch", "delete"}
	alice := s.person("alice@example.com", nil, verbs...)
	waitForPolicy(t, s, alice)
	s.gateWithRules(gatingv1.Opened, gatingv1.Rule{Name: "four-eyes", Expression: "true",
		Outcome: gatingv1.OutcomeApprovals, Approvals: &gatingv1.Approvals{Required: 1,
			Users: []string{"alice@example.com"}}})
	first := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1")})
	s.ruled("app")
	const waits = "requires 1 approval of this change by rule 'four-eyes'"
	s.heldBecause(waits)

	t.Log("an approval of the revision alone does not say what its user has seen")
	revision := s.approval("revision", "alice@example.com")
	revision.Spec.Revision = "main@sha1:" + first
	if err := alice.Create(t.Context(), revision); err != nil {
		t.Fatal(err)
	}
	g := &gatingv1.Gate{}
	testenv.Eventually(t, "the gate has seen the approval", func() error {
		if err := s.Get(g, "release"); err != nil {
			return err
		}
		if len(g.Status.Approvals) == 0 || len(g.Status.Waiting) == 0 || g.Status.Waiting[0].Change == "" {
			return fmt.Errorf("%+v", g.Status)
		}
		if w := g.Status.Waiting[0]; w.Rule != "four-eyes" || w.Message != waits {
			return fmt.Errorf("rule %q holds it: %q", w.Rule, w.Message)
		}
		return nil
	})
	s.heldBecause(waits)

	t.Log("an approval of the change lets it through")
	change := s.approval("change", "alice@example.com")
	change.Spec.Changes = []string{g.Status.Waiting[0].Change}
	if err := alice.Create(t.Context(), change); err != nil {
		t.Fatal(err)
	}
	s.Ready("app", first)

	t.Log("another change is not approved")
	second := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "2")})
	s.RequestFetch("app")
	s.heldBecause(waits)
	s.pending("app", second, 0, 1, 0)
	s.ConfigMapHas("a", "1")
}

func TestRulesFailClosed(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1")})
	s.gateWithRules(gatingv1.Opened, gatingv1.Rule{Name: "broken", Expression: "change.nothing == 1",
		Outcome: gatingv1.OutcomeDeny})
	s.ruled("app")
	s.heldBecause("its rule 'broken' cannot be evaluated: no such key: nothing")

	t.Log("an expression that does not compile closes the gate")
	g := &gatingv1.Gate{}
	s.Update(g, "release", func() { g.Spec.Rules[0].Expression = "change." })
	s.NotReady(&gatingv1.Gate{}, "release", "InvalidRule", "rule 'broken' is invalid")
}
