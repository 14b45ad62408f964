package receiver_test

import (
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	"github.com/sluice-gitops/sluice/config"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

func TestReceiverDoesNotOpenGateOfAnotherNamespace(t *testing.T) {
	h := newHooks(t) // cross-namespace references are allowed
	victim := testenv.Namespace(t)
	gate := &gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: victim, Name: "release"},
		Spec: gatingv1.GateSpec{Default: gatingv1.Closed}}
	h.Create(gate)
	for name, resource := range map[string]notificationv1.ReceiverResource{
		"by-name": {Kind: "Gate", Namespace: victim, Name: "release"},
		"all":     {Kind: "Gate", Namespace: victim, Name: "*"},
	} {
		r := h.receiver(name, "generic", func(s *notificationv1.ReceiverSpec) {
			s.Action, s.Resources = notificationv1.OpenAction, []notificationv1.ReceiverResource{resource}
		}, "AccessDenied")
		if r.Status.WebhookPath != "" {
			t.Errorf("%s has the path %s", name, r.Status.WebhookPath)
		}
	}
	err := h.Client.Get(t.Context(), client.ObjectKeyFromObject(gate), gate)
	if err != nil || len(gate.Requests()) > 0 {
		t.Errorf("requests to the gate: %v (%v)", gate.Requests(), err)
	}
}

// userClient returns a client of a user who may do everything with Receivers of the namespace, and some verbs with
// the gate release.
func (h *hooks) userClient(name string, gateVerbs ...string) client.Client {
	h.Helper()
	rules := []rbacv1.PolicyRule{{APIGroups: []string{notificationv1.GroupVersion.Group},
		Resources: []string{"receivers"}, Verbs: []string{"*"}}}
	if len(gateVerbs) > 0 {
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{gatingv1.GroupVersion.Group},
			Resources: []string{"gates"}, ResourceNames: []string{"release"}, Verbs: gateVerbs})
	}
	h.Create(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: name}, Rules: rules})
	h.Create(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: name},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}}})
	cfg := rest.CopyConfig(testenv.Cluster(h))
	cfg.Impersonate = rest.ImpersonationConfig{UserName: name}
	c, err := client.New(cfg, client.Options{Scheme: kubeclient.Scheme()})
	if err != nil {
		h.Fatal(err)
	}
	return c
}

// unexpected returns an error that describes the result of a request which is not the expected one.
func unexpected(err error) error { return fmt.Errorf("the result is: %w", err) }

// refused reports whether the admission policy of Receivers refused a request.
func refused(err error) bool {
	return err != nil && strings.Contains(err.Error(), "sluice-receiver-gates") && apierrors.IsForbidden(err)
}

// installReceiverPolicy installs the admission policy of Receivers.
func installReceiverPolicy(t *testing.T, s *system.System) {
	t.Helper()
	policies, err := config.Policies()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range policies {
		if o.GetName() != "sluice-receiver-gates" {
			continue
		}
		if err := s.Client.Create(t.Context(), o); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
}

func TestAuthorOfReceiverNeedsRightOnGate(t *testing.T) {
	s := system.Prepare(t)
	h := &hooks{System: s}
	installReceiverPolicy(t, s)
	opens := func(name, action, gate string) *notificationv1.Receiver {
		return &notificationv1.Receiver{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name},
			Spec: notificationv1.ReceiverSpec{Type: "generic", SecretRef: &meta.LocalObjectReference{Name: "token"},
				Action: action, Resources: []notificationv1.ReceiverResource{{Kind: "Gate", Name: gate}}}}
	}
	mallory := h.userClient("mallory")
	opener, patcher := h.userClient("opener", "open"), h.userClient("patcher", "patch")
	testenv.Eventually(t, "the policy is enforced", func() error {
		if err := mallory.Create(t.Context(), opens("probe", "open", "release"), client.DryRunAll); !refused(err) {
			return unexpected(err)
		}
		return nil
	})
	for _, c := range []struct {
		name         string
		user         client.Client
		action, gate string
		refused      bool
	}{
		{name: "no right", user: mallory, action: "open", gate: "release", refused: true},
		{name: "no right, all gates", user: mallory, action: "open", gate: "*", refused: true},
		{name: "right to open", user: opener, action: "open", gate: "release"},
		{name: "right to open, but closes", user: opener, action: "close", gate: "release", refused: true},
		{name: "right to open another gate", user: opener, action: "open", gate: "other", refused: true},
		{name: "right to open one gate, all gates", user: opener, action: "open", gate: "*", refused: true},
		{name: "right to patch", user: patcher, action: "open", gate: "release"},
		{name: "administrator", user: s.Client, action: "open", gate: "*"},
	} {
		var err error
		testenv.Eventually(t, c.name, func() error { // the API server's authorizer lags behind
			err = c.user.Create(t.Context(), opens("dry-run", c.action, c.gate), client.DryRunAll)
			if refused(err) != c.refused || !c.refused && err != nil {
				return unexpected(err)
			}
			return nil
		})
	}
	far := opens("far", "open", "release")
	far.Spec.Resources[0].Namespace = "default"
	if err := s.Client.Create(t.Context(), far); !refused(err) {
		t.Errorf("a gate of another namespace: %v", err)
	}

	t.Log("another user may change metadata, but not the spec")
	s.Create(opens("release", "open", "release"))
	r := &notificationv1.Receiver{}
	label := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`))
	r.Namespace, r.Name = s.Namespace, "release"
	if err := mallory.Patch(t.Context(), r, label); err != nil {
		t.Error(err)
	}
	secret := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"secretRef":{"name":"known"}}}`))
	if err := mallory.Patch(t.Context(), r, secret); !refused(err) {
		t.Errorf("changing the Secret: %v", err)
	}
}
