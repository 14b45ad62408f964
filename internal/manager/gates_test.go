package manager

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
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
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// gate makes a gate that is closed.
func (s *system) gate(name string, change ...func(*gatingv1.Gate)) {
	s.Helper()
	g := &gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec: gatingv1.GateSpec{Interval: metav1.Duration{Duration: time.Minute}, Default: gatingv1.Closed}}
	for _, c := range change {
		c(g)
	}
	s.create(g)
	s.turn(name, gatingv1.Closed)
}

// turn opens or closes a gate, to one revision alone if there is any, and waits until it is.
func (s *system) turn(name string, state gatingv1.State, revision ...string) {
	s.Helper()
	verb, status := gatingv1.ClosePrefix, metav1.ConditionFalse
	if state == gatingv1.Opened {
		verb, status = gatingv1.OpenPrefix, metav1.ConditionTrue
	}
	at := time.Now().UTC()
	asked := map[string]any{verb + gatingv1.RequestedAtSuffix: at.Format(time.RFC3339Nano),
		gatingv1.OpenRevisionAnnotation: nil}
	if len(revision) > 0 {
		asked[gatingv1.OpenRevisionAnnotation] = revision[0]
	}
	s.ask(name, asked)
	testenv.Eventually(s, name+" is "+string(state), func() error {
		g := &gatingv1.Gate{}
		if err := s.get(g, name); err != nil {
			return err
		}
		if !apimeta.IsStatusConditionPresentAndEqual(g.Status.Conditions, gatingv1.OpenedCondition, status) ||
			!slices.Equal(g.Status.ApprovedRevisions, revision) {
			return fmt.Errorf("%+v", g.Status)
		}
		return nil
	})
}

// ask sets annotations of a gate.
func (s *system) ask(name string, annotations map[string]any) {
	s.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		s.Fatal(err)
	}
	g := &gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
	if err := s.client.Patch(s.Context(), g, client.RawPatch(types.MergePatchType, patch)); err != nil {
		s.Fatal(err)
	}
}

// says waits until a condition of an object has a status, a reason and a message; no status: until it is not there.
func (s *system) says(o reconcile.Object, name, condition string, status metav1.ConditionStatus, reason,
	message string) {
	s.Helper()
	testenv.Eventually(s, fmt.Sprintf("%s is %s %s", name, condition, status), func() error {
		if err := s.get(o, name); err != nil {
			return err
		}
		c := apimeta.FindStatusCondition(o.CommonStatus().Conditions, condition)
		if c == nil && status == "" || c != nil && c.Status == status && c.Reason == reason && c.Message == message {
			return nil
		}
		return fmt.Errorf("%+v", c)
	})
}

func behind(gates ...string) []meta.GateReference {
	var refs []meta.GateReference
	for _, g := range gates {
		refs = append(refs, meta.GateReference{Name: g})
	}
	return refs
}

func TestSyncWaitsForApproval(t *testing.T) {
	s := newSystem(t)
	s.gate("approval")
	first := s.git.Commit("app", map[string]string{"a.yaml": cm("a", "1"), "b.yaml": cm("b", "1")})
	s.source("app")
	s.sync("app", "app", "", func(k *kustomizev1.Kustomization) { k.Spec.Gates = behind("approval") })
	waits := fmt.Sprintf("Reconciliation is waiting approval, gate '%s/approval' is closed.", s.namespace)
	k := &kustomizev1.Kustomization{}
	s.says(k, "app", "Approved", metav1.ConditionFalse, "GateClosed", waits)
	s.says(k, "app", "Ready", metav1.ConditionUnknown, "GateClosed", waits)
	s.says(k, "app", "Reconciling", "", "", "")
	s.pending("app", first, 2, 0, 0)
	if got := strings.Join(k.Status.Gates, " "); got != s.namespace+"/approval" {
		t.Errorf("status.gates is %q", got)
	}

	t.Log("opened, it goes on at once")
	s.turn("approval", gatingv1.Opened)
	s.ready("app", first)
	s.says(k, "app", "Approved", metav1.ConditionTrue, "GateOpen", "Reconciliation is approved.")

	t.Log("closed, it stays Ready for what is applied, and tells what waits")
	s.turn("approval", gatingv1.Closed)
	s.says(k, "app", "Approved", metav1.ConditionFalse, "GateClosed", waits)
	second := s.git.Commit("app", map[string]string{"a.yaml": cm("a", "2"), "b.yaml": "", "c.yaml": cm("c", "2")})
	s.pull("app")
	s.pending("app", second, 1, 1, 1)
	s.ready("app", first)
	s.configMap("a", "1")

	t.Log("an approval of one revision lets no other through")
	third := s.git.Commit("app", map[string]string{"a.yaml": cm("a", "3")})
	s.turn("approval", gatingv1.Opened, "main@sha1:"+third)
	s.says(k, "app", "Approved", metav1.ConditionFalse, "GateClosed",
		fmt.Sprintf("Reconciliation is waiting approval, gate '%s/approval' lets only revision 'main@sha1:%s' through.",
			s.namespace, third))
	s.pull("app")
	s.ready("app", third)
	s.configMap("a", "3")

	t.Log("deletion is not gated")
	s.turn("approval", gatingv1.Closed)
	s.says(k, "app", "Approved", metav1.ConditionFalse, "GateClosed", waits)
	if err := s.client.Delete(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	s.gone(k, "app")
	s.gone(&corev1.ConfigMap{}, "a")
}

// pending waits until a Kustomization tells of a change that waits.
func (s *system) pending(name, commit string, created, configured, deleted int32) {
	s.Helper()
	testenv.Eventually(s, name+" tells what waits", func() error {
		k := &kustomizev1.Kustomization{}
		if err := s.get(k, name); err != nil {
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

func TestFrozenSourceKeepsItsArtifact(t *testing.T) {
	s := newSystem(t)
	s.gate("freeze", func(g *gatingv1.Gate) { g.Spec.AllowManual = true })
	first := s.git.Commit("app", map[string]string{"a.yaml": cm("a", "1")})
	s.turn("freeze", gatingv1.Opened)
	s.source("app", func(g *sourcev1.GitRepository) {
		// at which it looks what waits
		g.Spec.Gates, g.Spec.Interval = behind("freeze"), metav1.Duration{Duration: time.Second}
	})
	s.sync("app", "app", "")
	s.ready("app", first)
	g := &sourcev1.GitRepository{}
	s.says(g, "app", "Blocked", "", "", "")

	t.Log("frozen, it tells the revision that it would move to, and fetches nothing")
	s.turn("freeze", gatingv1.Closed)
	blocked := fmt.Sprintf("Reconciliation is blocked as gate '%s/freeze' is closed.", s.namespace)
	s.says(g, "app", "Blocked", metav1.ConditionTrue, "GateClosed", blocked)
	second := s.git.Commit("app", map[string]string{"a.yaml": cm("a", "2")})
	testenv.Eventually(t, "it tells what waits", func() error {
		if err := s.get(g, "app"); err != nil {
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

	t.Log("drift is corrected all the same")
	edited := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "a"}}
	if err := s.client.Patch(t.Context(), edited,
		client.RawPatch(types.MergePatchType, []byte(`{"data":{"k":"edited"}}`))); err != nil {
		t.Fatal(err)
	}
	s.configMap("a", "1")

	t.Log("what a restart loses is made again of the revision that was let through, though the remote has moved on")
	s.stop()
	s.storage = t.TempDir()
	s.start()
	testenv.Eventually(t, "the artifact is back", func() error {
		if err := s.get(g, "app"); err != nil {
			return err
		}
		a := g.Status.Artifact
		if !a.HasRevision("main@sha1:"+first) ||
			apimeta.IsStatusConditionTrue(g.Status.Conditions, "StorageOperationFailed") {
			return fmt.Errorf("%+v %+v", a, g.Status.Conditions)
		}
		return answered(a.URL, http.StatusOK)
	})
	s.says(g, "app", "Blocked", metav1.ConditionTrue, "GateClosed", blocked)
	if err := s.client.Delete(t.Context(), edited); err != nil {
		t.Fatal(err)
	}
	s.configMap("a", "1")

	t.Log("a manual reconcile is let through")
	s.pull("app")
	s.ready("app", second)
	s.says(g, "app", "Blocked", metav1.ConditionTrue, "GateClosed", blocked)

	t.Log("a gate that is gone still holds who names it")
	if err := s.client.Delete(t.Context(), &gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace,
		Name: "freeze"}}); err != nil {
		t.Fatal(err)
	}
	s.says(g, "app", "Blocked", metav1.ConditionTrue, "GateNotFound",
		fmt.Sprintf("Reconciliation is blocked as gate '%s/freeze' is not found.", s.namespace))
}

func TestGatesSelect(t *testing.T) {
	s := newSystem(t, func(o *Options) { o.NoCrossNamespaceRefs = true })
	first := s.git.Commit("app", map[string]string{"a.yaml": cm("a", "1")})
	s.source("app")
	s.sync("free", "app", "")
	s.ready("free", first)
	s.gate("tiers", func(g *gatingv1.Gate) {
		g.Spec.Selector = &gatingv1.Selector{
			Kinds:   []gatingv1.SelectedKind{"Kustomization"},
			Objects: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "1"}},
		}
	})

	t.Log("an object comes under the gate by its labels, and out of it")
	waits := fmt.Sprintf("Reconciliation is waiting approval, gate '%s/tiers' is closed.", s.namespace)
	k := &kustomizev1.Kustomization{}
	label := func(value string) {
		k := &kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "free"}}
		patch := fmt.Sprintf(`{"metadata":{"labels":{"tier":%s}}}`, value)
		if err := s.client.Patch(t.Context(), k, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
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

	t.Log("a gate that is deleted lets go of what it selected")
	if err := s.client.Delete(t.Context(), &gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace,
		Name: "tiers"}}); err != nil {
		t.Fatal(err)
	}
	s.says(k, "free", "Approved", "", "", "")

	t.Log("tenancy forbids to name gates of others, and to name none is to wait")
	s.sync("denied", "app", "", func(k *kustomizev1.Kustomization) {
		k.Spec.Gates = []meta.GateReference{{Name: "g", Namespace: "default"}}
	})
	s.says(k, "denied", "Approved", metav1.ConditionFalse, "AccessDenied",
		"Reconciliation is waiting approval, gate 'default/g' is in another namespace: cross-namespace references "+
			"have been blocked.")
	s.sync("absent", "app", "", func(k *kustomizev1.Kustomization) { k.Spec.Gates = behind("g") })
	s.says(k, "absent", "Approved", metav1.ConditionFalse, "GateNotFound",
		fmt.Sprintf("Reconciliation is waiting approval, gate '%s/g' is not found.", s.namespace))
}

// answered tells whether a URL is answered with a status.
func answered(url string, status int) error {
	resp, err := http.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != status {
		return errors.New(resp.Status)
	}
	return nil
}
