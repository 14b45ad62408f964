package gate_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/config"
	"github.com/sluice-gitops/sluice/internal/gate"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// policies installs the policies, and waits until they are enforced.
func (s *harness) policies() {
	s.Helper()
	objects, err := config.Policies()
	if err != nil {
		s.Fatal(err)
	}
	for _, o := range objects {
		if err := s.Client.Create(s.Context(), o); err != nil && !apierrors.IsAlreadyExists(err) {
			s.Fatal(err)
		}
	}
	verifier := &gate.AuthorVerifier{Client: s.Client, Reader: s.Client,
		Clock: testingclock.NewFakePassiveClock(tenOClock())}
	testenv.Eventually(s, "the policies are enforced", func() error {
		verifier.Clock.(*testingclock.FakePassiveClock).SetTime(verifier.Clock.Now().Add(time.Hour))
		_, err := verifier.VerifyApprovals(s.Context(), s.Namespace)
		return errors.Join(err, verifier.VerifyRequests(s.Context(), s.Namespace))
	})
}

// noPolicies removes the policies.
func (s *harness) noPolicies() {
	s.Helper()
	for _, name := range []string{gate.ApprovalsPolicy, gate.RequestsPolicy} {
		for _, o := range []client.Object{&admissionregistrationv1.ValidatingAdmissionPolicyBinding{},
			&admissionregistrationv1.ValidatingAdmissionPolicy{}} {
			o.SetName(name)
			if err := s.Client.Delete(s.Context(), o); client.IgnoreNotFound(err) != nil {
				s.Fatal(err)
			}
		}
	}
	testenv.Eventually(s, "the policies are no longer enforced", func() error {
		return s.Client.Create(s.Context(), s.approval("impersonated", "alice@example.com"), client.DryRunAll)
	})
}

// person returns the client of a user who has the given verbs for gates and approvals of the namespace.
func (s *harness) person(name string, groups []string, verbs ...string) client.Client {
	s.Helper()
	account := strings.ReplaceAll(name, "@", "-")
	s.Create(&rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: account},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{gatingv1.GroupVersion.Group},
			Resources: []string{"gates", "gateapprovals"}, Verbs: verbs}},
	})
	s.Create(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: account},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: account},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	})
	cfg := rest.CopyConfig(testenv.Cluster(s))
	cfg.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: groups}
	c, err := client.New(cfg, client.Options{Scheme: kubeclient.Scheme()})
	if err != nil {
		s.Fatal(err)
	}
	testenv.Eventually(s, name+" has rights", func() error { // the API server's authorizer lags behind
		return c.List(s.Context(), &gatingv1.GateList{}, client.InNamespace(s.Namespace))
	})
	return c
}

func (s *harness) approval(name, user string, groups ...string) *gatingv1.GateApproval {
	return &gatingv1.GateApproval{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name},
		Spec: gatingv1.GateApprovalSpec{GateRef: meta.LocalObjectReference{Name: "release"}, User: user,
			Groups: groups},
	}
}

func denied(t *testing.T, err error, says string) {
	t.Helper()
	if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), says) {
		t.Errorf("got %v, want a rejection with %q", err, says)
	}
}

func TestApprovals(t *testing.T) {
	s := newHarness(t)
	s.noPolicies()
	s.newGate("release", gatingv1.GateSpec{Default: gatingv1.Closed,
		Approvals: &gatingv1.Approvals{Required: 2, Users: []string{"alice@example.com"},
			Groups: []string{"managers"}}})
	t.Log("without the policy no approval counts")
	s.gateIs("release", false, "PolicyMissing", "Gate closed by default")
	s.Create(s.approval("old", "alice@example.com")) // in the name of another user, and accepted
	s.NotReady(&gatingv1.Gate{}, "release", "PolicyMissing",
		"Approvals are disabled: admission policy 'sluice-gate-approvals' is not installed")

	s.policies()
	verbs := []string{"get", "list", "create", "update", "patch", "delete"}
	alice := s.person("alice@example.com", nil, verbs...)
	bob := s.person("bob@example.com", []string{"managers", "system:authenticated"}, verbs...)

	t.Log("a user cannot approve in the name of another user, or of a group without being a member")
	denied(t, bob.Create(t.Context(), s.approval("impersonated", "alice@example.com")),
		"spec.user must be who creates the approval: bob@example.com")
	denied(t, s.Client.Create(t.Context(), s.approval("impersonated", "alice@example.com")),
		"spec.user must be who creates the approval")
	denied(t, alice.Create(t.Context(), s.approval("impersonated", "alice@example.com", "managers")),
		"a group that who creates the approval is not in")

	t.Log("two people with permission approve, after the enforcement delay of the policy")
	waitForPolicy(t, s, alice)
	first := s.approval("alice", "alice@example.com")
	first.Spec.Revision = "main@sha1:abc"
	if err := alice.Create(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if err := bob.Create(t.Context(), s.approval("bob", "bob@example.com", "managers")); err != nil {
		t.Fatal(err)
	}
	s.RequestReconcile(&gatingv1.Gate{}, "release")
	g := s.gateIs("release", true, "ReconciliationSucceeded", "Gate opened by approval")
	if !slices.Equal(g.Status.ApprovedRevisions, []string{"main@sha1:abc"}) ||
		g.Status.History[0].By != "alice@example.com, bob@example.com" {
		t.Errorf("status is %+v", g.Status)
	}
	for _, a := range g.Status.Approvals {
		if a.Counts != (a.Name != "old") {
			t.Errorf("approval %+v", a)
		}
	}

	approvalsCannotChange(t, first, alice, s)
	s.recorded("GateOpened", "for revision main@sha1:abc by alice@example.com, bob@example.com")
}

// waitForPolicy waits until the admission policy has been in effect for ten seconds.
func waitForPolicy(t *testing.T, s *harness, alice client.Client) {
	t.Helper()
	probe := s.approval("probe", "alice@example.com")
	testenv.Eventually(t, "seconds have passed", func() error {
		probe.ResourceVersion = ""
		if err := alice.Create(t.Context(), probe, client.DryRunAll); err != nil {
			return err
		}
		policy := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
		if err := s.Client.Get(t.Context(), client.ObjectKey{Name: gate.ApprovalsPolicy}, policy); err != nil {
			return err
		}
		if age := probe.CreationTimestamp.Sub(policy.CreationTimestamp.Time); age < 10*time.Second {
			return fmt.Errorf("the policy is %s old", age)
		}
		return nil
	})
}

// approvalsCannotChange makes sure that an approval can be withdrawn, but not changed.
func approvalsCannotChange(t *testing.T, first *gatingv1.GateApproval, alice client.Client, s *harness) {
	t.Helper()
	t.Log("an approval cannot be changed, only deleted")
	changed := first.DeepCopy()
	changed.Spec.Revision = "main@sha1:def"
	denied(t, alice.Update(t.Context(), changed), "an approval cannot be changed")
	changed = first.DeepCopy()
	changed.Spec.User = "bob@example.com"
	denied(t, alice.Update(t.Context(), changed), "cannot be changed")
	withdrawn := first.DeepCopy()
	withdrawn.Spec.Withdrawn = true
	if err := alice.Update(t.Context(), withdrawn); err != nil {
		t.Fatal(err)
	}
	s.gateIs("release", false, "ReconciliationSucceeded", "Gate closed by default")
	withdrawn.Spec.Withdrawn = false
	denied(t, alice.Update(t.Context(), withdrawn), "an approval that was withdrawn stays so")
}

func TestEmergencyOpen(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	s.policies()
	s.newGate("release", gatingv1.GateSpec{Default: gatingv1.Closed, Approvals: &gatingv1.Approvals{Required: 2}})
	s.gateIs("release", false, "ReconciliationSucceeded", "Gate closed by default")
	verbs := []string{"get", "list", "create", "update", "patch"}
	alice, bob := s.person("alice@example.com", nil, append(verbs, "override")...),
		s.person("bob@example.com", nil, verbs...)
	override := func(c client.Client, change func(annotations map[string]string)) error {
		g := &gatingv1.Gate{}
		if err := s.Get(g, "release"); err != nil {
			return err
		}
		before := g.DeepCopy()
		if g.Annotations == nil {
			g.Annotations = map[string]string{}
		}
		change(g.Annotations)
		return c.Patch(s.Context(), g, client.MergeFrom(before), client.FieldOwner("sluice-gate"))
	}
	now := stamp(time.Now())
	complete := func(user string) func(map[string]string) {
		return func(a map[string]string) {
			a[gatingv1.OverrideRequestedAtAnnotation] = now
			a[gatingv1.OverridePrefix+gatingv1.RequestedBySuffix] = now + " " + user
			a[gatingv1.OverridePrefix+gatingv1.ReasonSuffix] = "the shop is down"
		}
	}
	denied(t, override(bob, complete("bob@example.com")), "bob@example.com may not override gates")
	denied(t, override(bob, complete("alice@example.com")), "must name the requester")
	denied(t, override(alice, complete("bob@example.com")), "must name the requester")
	denied(t, override(alice, func(a map[string]string) { a[gatingv1.OverrideRequestedAtAnnotation] = now }),
		"takes a reason")
	if err := override(alice, complete("alice@example.com")); err != nil {
		t.Fatal(err)
	}
	g := s.gateIs("release", true, "ReconciliationSucceeded", "Gate open requested")
	if h := g.Status.History[0]; h.By != "alice@example.com" || h.Reason != "Overridden" || h.From != "sluice-gate" ||
		!strings.Contains(h.Message, "the shop is down") {
		t.Errorf("the history begins with %+v", h)
	}
	s.recorded("GateOverridden", "by alice@example.com from sluice-gate: Overridden by alice@example.com: the "+
		"shop is down")

	t.Log("another user cannot change a request")
	denied(t, override(bob, func(a map[string]string) { a[gatingv1.OverridePrefix+gatingv1.WindowSuffix] = "900h" }),
		"must name the requester")

	t.Log("every user may close the gate")
	s.TurnGate("release", gatingv1.Closed)

	t.Log("and send a request in their own name after an earlier request of another user")
	if err := override(bob, func(a map[string]string) {
		a[gatingv1.CloseRequestedAtAnnotation] = stamp(time.Now())
	}); err != nil {
		t.Error(err)
	}
	refusesSelectors(t, s, bob, alice)
}

// refusesSelectors makes sure that users cannot select objects of other namespaces.
func refusesSelectors(t *testing.T, s *harness, bob, alice client.Client) {
	t.Helper()
	selector := &gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "all"},
		Spec: gatingv1.GateSpec{
			Selector: &gatingv1.Selector{Namespaces: &gatingv1.NamespaceSelector{Labels: &metav1.LabelSelector{}}},
		}}
	denied(t, bob.Create(t.Context(), selector), "may not select objects of other namespaces")
	denied(t, alice.Create(t.Context(), selector), "may not select objects of other namespaces")
	if err := s.Client.Create(t.Context(), selector, client.DryRunAll); err != nil {
		t.Error(err)
	}
}

// TestAgentsCannotDecide has requests as the MCP server makes them, for a user who may approve and open: by its field
// manager, and by its user agent alone.
func TestAgentsCannotDecide(t *testing.T) {
	s := newHarness(t)
	s.newGate("release", gatingv1.GateSpec{Default: gatingv1.Closed,
		Approvals: &gatingv1.Approvals{Required: 1, Users: []string{"alice@example.com"}}})
	s.policies()
	alice := s.person("alice@example.com", nil, "get", "list", "create", "update", "patch")
	cfg := rest.CopyConfig(testenv.Cluster(t))
	cfg.Impersonate.UserName, cfg.UserAgent = "alice@example.com", "sluice-mcp/v1"
	agent, err := client.New(cfg, client.Options{Scheme: kubeclient.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	open := func(c client.Client, o ...client.PatchOption) error {
		g := &gatingv1.Gate{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: s.Namespace, Name: "release"}, g); err != nil {
			t.Fatal(err)
		}
		before := g.DeepCopy()
		at := time.Now().Format(time.RFC3339Nano)
		g.Annotations = map[string]string{gatingv1.OpenPrefix + gatingv1.RequestedAtSuffix: at}
		return c.Patch(t.Context(), g, client.MergeFrom(before), o...)
	}
	denied(t, alice.Create(t.Context(), s.approval("a", "alice@example.com"), client.FieldOwner("sluice-mcp")),
		"the MCP server cannot approve")
	denied(t, agent.Create(t.Context(), s.approval("a", "alice@example.com")), "the MCP server cannot approve")
	denied(t, open(alice, client.FieldOwner("sluice-mcp")), "the MCP server cannot open")
	denied(t, open(agent), "the MCP server cannot open")
	g := &gatingv1.Gate{}
	if err := alice.Get(t.Context(), client.ObjectKey{Namespace: s.Namespace, Name: "release"}, g); err != nil {
		t.Fatal(err)
	}
	labelled := g.DeepCopy()
	labelled.Labels = map[string]string{"a": "b"}
	if err := agent.Patch(t.Context(), labelled, client.MergeFrom(g)); err != nil {
		t.Errorf("a label is refused: %v", err)
	}
	if err := open(alice); err != nil {
		t.Errorf("a person is refused after a write of the agent: %v", err)
	}
	if err := alice.Create(t.Context(), s.approval("a", "alice@example.com")); err != nil {
		t.Errorf("a person is refused: %v", err)
	}
}
