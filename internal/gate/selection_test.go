package gate_test

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// TestGatesFromBeforeThePolicySelectInTheirNamespace creates a gate of a tenant that selects the objects of others, and
// only then the admission policy that rejects this.
func TestGatesFromBeforeThePolicySelectInTheirNamespace(t *testing.T) {
	s := newHarness(t, func(o *options.Options) { o.WatchAllNamespaces = true })
	s.noPolicies()
	tenant := *s.System
	tenant.Namespace = testenv.Namespace(t)
	gates := &harness{&tenant}
	selector := &gatingv1.Selector{Namespaces: &gatingv1.NamespaceSelector{Names: []string{s.Namespace}}}
	gates.newGate("others", gatingv1.GateSpec{Default: gatingv1.Closed, Selector: selector})
	gates.NotReady(&gatingv1.Gate{}, "others", "AccessDenied", "spec.selector selects objects of the gate's namespace "+
		"only: admission policy 'sluice-gate-requests' is not enforced")
	first := s.Git.Commit("app", map[string]string{"c.yaml": system.ConfigMap("v", "1")})
	s.GitRepository("app")
	s.Kustomization("app", "app", "")
	s.Ready("app", first)

	t.Log("the policy does not verify what was written before")
	s.policies()
	alice := s.person("alice@example.com", nil, "get", "list", "create")
	waitForPolicy(t, s, alice)
	gates.RequestReconcile(&gatingv1.Gate{}, "others")
	gates.NotReady(&gatingv1.Gate{}, "others", "AccessDenied", "Delete the gate and create it again")
	second := s.Git.Commit("app", map[string]string{"c.yaml": system.ConfigMap("v", "2")})
	s.RequestFetch("app")
	s.Ready("app", second)

	t.Log("a gate that was created since, with the right to select, holds others")
	old := &gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: tenant.Namespace, Name: "others"}}
	if err := s.Client.Delete(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	gates.Gone(&gatingv1.Gate{}, "others")
	gates.newGate("others", gatingv1.GateSpec{Default: gatingv1.Closed, Selector: selector})
	gates.gateIs("others", false, "ReconciliationSucceeded", "Gate closed by default")
	s.says(&kustomizev1.Kustomization{}, "app", "Approved", metav1.ConditionFalse, "GateClosed",
		fmt.Sprintf("Reconciliation is waiting approval, gate '%s/others' is closed.", tenant.Namespace))
}
