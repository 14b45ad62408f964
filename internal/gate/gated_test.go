package gate_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// says waits until a condition of an object has a status, a reason and a message. With an empty status, it waits until
// the condition does not exist.
func (s *harness) says(o reconcile.Object, name, condition string, status metav1.ConditionStatus, reason,
	message string) {
	s.Helper()
	testenv.Eventually(s, fmt.Sprintf("%s is %s %s", name, condition, status), func() error {
		if err := s.Get(o, name); err != nil {
			return err
		}
		c := apimeta.FindStatusCondition(o.CommonStatus().Conditions, condition)
		if c == nil && status == "" || c != nil && c.Status == status && c.Reason == reason && c.Message == message {
			return nil
		}
		return fmt.Errorf("%+v", c)
	})
}

func TestKustomizationWaitsForApproval(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	s.Gate("approval")
	first := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1"),
		"b.yaml": system.ConfigMap("b", "1")})
	s.GitRepository("app")
	s.Kustomization("app", "app", "", func(k *kustomizev1.Kustomization) { k.Spec.Gates = system.GateRefs("approval") })
	waits := fmt.Sprintf("Reconciliation is waiting approval, gate '%s/approval' is closed.", s.Namespace)
	k := &kustomizev1.Kustomization{}
	s.says(k, "app", "Approved", metav1.ConditionFalse, "GateClosed", waits)
	s.says(k, "app", "Ready", metav1.ConditionUnknown, "GateClosed", waits)
	s.says(k, "app", "Reconciling", "", "", "")
	s.pending("app", first, 2, 0, 0)
	if got := strings.Join(k.Status.Gates, " "); got != s.Namespace+"/approval" {
		t.Errorf("status.gates is %q", got)
	}

	t.Log("an opened gate lets it continue at once")
	s.TurnGate("approval", gatingv1.Opened)
	s.Ready("app", first)
	s.says(k, "app", "Approved", metav1.ConditionTrue, "GateOpen", "Reconciliation is approved.")

	t.Log("closed, it stays Ready for the applied revision, and reports the pending change")
	s.TurnGate("approval", gatingv1.Closed)
	s.says(k, "app", "Approved", metav1.ConditionFalse, "GateClosed", waits)
	second := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "2"), "b.yaml": "",
		"c.yaml": system.ConfigMap("c", "2")})
	s.RequestFetch("app")
	s.pending("app", second, 1, 1, 1)
	s.Ready("app", first)
	s.ConfigMapHas("a", "1")

	t.Log("an approval is for one revision")
	third := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "3")})
	s.TurnGate("approval", gatingv1.Opened, "main@sha1:"+third)
	s.says(k, "app", "Approved", metav1.ConditionFalse, "GateClosed",
		fmt.Sprintf("Reconciliation is waiting approval, gate '%s/approval' allows only revision 'main@sha1:%s'.",
			s.Namespace, third))
	s.RequestFetch("app")
	s.Ready("app", third)
	s.ConfigMapHas("a", "3")

	t.Log("gates do not hold deletion")
	s.TurnGate("approval", gatingv1.Closed)
	s.says(k, "app", "Approved", metav1.ConditionFalse, "GateClosed", waits)
	if err := s.Client.Delete(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	s.Gone(k, "app")
	s.Gone(&corev1.ConfigMap{}, "a")
}

// pending waits until a Kustomization reports a pending change.
func (s *harness) pending(name, commit string, created, configured, deleted int32) {
	s.Helper()
	testenv.Eventually(s, name+" reports the pending change", func() error {
		k := &kustomizev1.Kustomization{}
		if err := s.Get(k, name); err != nil {
			return err
		}
		p := k.Status.Pending
		if p == nil || !strings.HasSuffix(p.Revision, commit) || p.Created != created || p.Configured != configured ||
			p.Deleted != deleted {
			return fmt.Errorf("%+v", p)
		}
		return nil
	})
}

func TestHeldSourceKeepsArtifact(t *testing.T) {
	t.Parallel()
	s := newHarness(t)
	s.Gate("freeze", func(g *gatingv1.Gate) { g.Spec.AllowManual = true })
	first := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1")})
	s.TurnGate("freeze", gatingv1.Opened)
	s.GitRepository("app", func(g *sourcev1.GitRepository) {
		// at which it determines the pending change
		g.Spec.Gates, g.Spec.Interval = system.GateRefs("freeze"), meta.Duration{Duration: time.Second}
	})
	s.Kustomization("app", "app", "")
	s.Ready("app", first)
	g := &sourcev1.GitRepository{}
	s.says(g, "app", "Blocked", "", "", "")

	t.Log("frozen, it reports the pending revision, and fetches nothing")
	s.TurnGate("freeze", gatingv1.Closed)
	blocked := fmt.Sprintf("Reconciliation is blocked as gate '%s/freeze' is closed.", s.Namespace)
	s.says(g, "app", "Blocked", metav1.ConditionTrue, "GateClosed", blocked)
	second := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "2")})
	testenv.Eventually(t, "it reports the pending change", func() error {
		if err := s.Get(g, "app"); err != nil {
			return err
		}
		if p := g.Status.Pending; p == nil || p.Revision != "main@sha1:"+second {
			return fmt.Errorf("%+v", p)
		}
		return nil
	})
	if !g.Status.Artifact.HasRevision("main@sha1:"+first) || !reconcile.IsReady(g) {
		t.Errorf("artifact %+v, conditions %+v", g.Status.Artifact, g.Status.Conditions)
	}

	t.Log("drift is corrected behind a closed gate")
	edited := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "a"}}
	if err := s.Client.Patch(t.Context(), edited,
		client.RawPatch(types.MergePatchType, []byte(`{"data":{"k":"edited"}}`))); err != nil {
		t.Fatal(err)
	}
	s.ConfigMapHas("a", "1")

	restoresLostArtifact(t, s, g, first, blocked, edited)

	t.Log("a manual reconcile is allowed")
	s.RequestFetch("app")
	s.Ready("app", second)
	s.says(g, "app", "Blocked", metav1.ConditionTrue, "GateClosed", blocked)

	t.Log("a deleted gate still holds objects that refer to it by name")
	if err := s.Client.Delete(t.Context(), &gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace,
		Name: "freeze"}}); err != nil {
		t.Fatal(err)
	}
	s.says(g, "app", "Blocked", metav1.ConditionTrue, "GateNotFound",
		fmt.Sprintf("Reconciliation is blocked as gate '%s/freeze' is not found.", s.Namespace))
}

// restoresLostArtifact checks that the allowed revision is fetched again after the storage was lost.
func restoresLostArtifact(t *testing.T, s *harness, g *sourcev1.GitRepository, first, blocked string,
	edited *corev1.ConfigMap) {
	t.Helper()
	t.Log("after a restart, a lost artifact is built again from the allowed revision, although the remote has a " +
		"newer one")
	s.Stop()
	s.Storage = t.TempDir()
	s.Start()
	testenv.Eventually(t, "the artifact is back", func() error {
		if err := s.Get(g, "app"); err != nil {
			return err
		}
		a := g.Status.Artifact
		if !a.HasRevision("main@sha1:"+first) ||
			apimeta.IsStatusConditionTrue(g.Status.Conditions, "StorageOperationFailed") {
			return fmt.Errorf("%+v %+v", a, g.Status.Conditions)
		}
		return system.CheckStatus(a.URL, http.StatusOK)
	})
	s.says(g, "app", "Blocked", metav1.ConditionTrue, "GateClosed", blocked)
	if err := s.Client.Delete(t.Context(), edited); err != nil {
		t.Fatal(err)
	}
	s.ConfigMapHas("a", "1")
}

func TestGateSelectors(t *testing.T) {
	t.Parallel()
	s := newHarness(t, func(o *options.Options) { o.NoCrossNamespaceRefs = true })
	first := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1")})
	s.GitRepository("app")
	s.Kustomization("free", "app", "")
	s.Ready("free", first)
	s.Gate("tiers", func(g *gatingv1.Gate) {
		g.Spec.Selector = &gatingv1.Selector{
			Kinds:   []gatingv1.SelectedKind{"Kustomization"},
			Objects: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "1"}},
		}
	})

	t.Log("a change of labels adds an object to the gate, and removes it")
	waits := fmt.Sprintf("Reconciliation is waiting approval, gate '%s/tiers' is closed.", s.Namespace)
	k := &kustomizev1.Kustomization{}
	label := func(value string) {
		k := &kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "free"}}
		patch := fmt.Sprintf(`{"metadata":{"labels":{"tier":%s}}}`, value)
		if err := s.Client.Patch(t.Context(), k, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	label(`"1"`)
	s.says(k, "free", "Approved", metav1.ConditionFalse, "GateClosed", waits)
	label(`null`)
	s.says(k, "free", "Approved", "", "", "")
	if len(k.Status.Gates) > 0 {
		t.Errorf("status.gates is %v", k.Status.Gates)
	}
	label(`"1"`)
	s.says(k, "free", "Approved", metav1.ConditionFalse, "GateClosed", waits)

	t.Log("deleting a gate releases the objects that it selected")
	if err := s.Client.Delete(t.Context(), &gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace,
		Name: "tiers"}}); err != nil {
		t.Fatal(err)
	}
	s.says(k, "free", "Approved", "", "", "")

	t.Log("references to gates of other namespaces are denied, and a reference to a missing gate holds the object")
	s.Kustomization("denied", "app", "", func(k *kustomizev1.Kustomization) {
		k.Spec.Gates = []meta.GateReference{{Name: "g", Namespace: "default"}}
	})
	s.says(k, "denied", "Approved", metav1.ConditionFalse, "AccessDenied",
		"Reconciliation is waiting approval, gate 'default/g' is in another namespace: cross-namespace references "+
			"have been blocked.")
	s.Kustomization("absent", "app", "", func(k *kustomizev1.Kustomization) { k.Spec.Gates = system.GateRefs("g") })
	s.says(k, "absent", "Approved", metav1.ConditionFalse, "GateNotFound",
		fmt.Sprintf("Reconciliation is waiting approval, gate '%s/g' is not found.", s.Namespace))
}
