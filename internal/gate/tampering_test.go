package gate_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/config"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// writeStatus writes fields of a status as an account that may.
func (s *harness) writeStatus(o client.Object, name string, status map[string]any) {
	s.Helper()
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		s.Fatal(err)
	}
	o.SetNamespace(s.Namespace)
	o.SetName(name)
	if err := s.Client.Status().Patch(s.Context(), o, client.RawPatch(types.MergePatchType, patch)); err != nil {
		s.Fatal(err)
	}
}

// progressing returns the conditions of an object whose work is in progress.
func progressing(generation int64) []metav1.Condition {
	return []metav1.Condition{{Type: "Reconciling", Status: metav1.ConditionTrue, Reason: "Progressing",
		Message: "by a tenant", ObservedGeneration: generation,
		LastTransitionTime: metav1.NewTime(time.Unix(1_700_000_000, 0))}}
}

// writeOpened writes to the status of a gate that it is open, as a tenant would.
func (s *harness) writeOpened(name string) {
	s.Helper()
	gate := &gatingv1.Gate{}
	if err := s.Get(gate, name); err != nil {
		s.Fatal(err)
	}
	for i := range gate.Status.Conditions {
		if c := &gate.Status.Conditions[i]; c.Type == gatingv1.OpenedCondition {
			c.Status = metav1.ConditionTrue
		}
	}
	s.writeStatus(&gatingv1.Gate{}, name, map[string]any{"conditions": gate.Status.Conditions})
}

func TestWrittenStatusDoesNotPassGate(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	s.Gate("release")
	s.TurnGate("release", gatingv1.Opened)
	first := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1")})
	s.GitRepository("app")
	s.GitRepository("gated", func(g *sourcev1.GitRepository) {
		g.Spec.URL = s.Git.URL + "/app"
		g.Spec.Gates = system.GateRefs("release")
	})
	s.Kustomization("app", "app", "", func(k *kustomizev1.Kustomization) { k.Spec.Gates = system.GateRefs("release") })
	k, g := s.Ready("app", first), &sourcev1.GitRepository{}
	testenv.Eventually(t, "the gated source is Ready", func() error {
		if err := s.Get(g, "gated"); err != nil || !g.Status.Artifact.HasRevision("main@sha1:"+first) {
			return fmt.Errorf("%+v (%w)", g.Status.Artifact, err)
		}
		return nil
	})
	s.TurnGate("release", gatingv1.Closed)
	second := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "2")})
	s.RequestFetch("app")
	s.pending("app", second, 0, 1, 0)

	t.Log("work in progress on the pending revision")
	digest := g.Status.Artifact.Digest
	for _, admitted := range []*meta.Admitted{nil, {Revision: "main@sha1:" + second, Generation: k.Generation,
		Seal: "00"}} {
		s.writeStatus(&kustomizev1.Kustomization{}, "app", map[string]any{"conditions": progressing(k.Generation),
			"lastAttemptedRevision": "main@sha1:" + second, "admitted": admitted})
		s.Reconcile(&kustomizev1.Kustomization{}, "app")
		s.ConfigMapHas("a", "1")
	}

	t.Log("an artifact that has the pending revision already, with its file and without")
	for _, path := range []string{g.Status.Artifact.Path, "gitrepository/" + s.Namespace + "/gated/lost.tar.gz"} {
		s.writeStatus(&sourcev1.GitRepository{}, "gated", map[string]any{"artifact": map[string]any{
			"revision": "main@sha1:" + second, "path": path}})
		s.Reconcile(g, "gated")
		if a := g.Status.Artifact; a.Digest != digest {
			t.Errorf("the artifact changed to %+v", a)
		}
	}

	t.Log("an open gate")
	s.writeOpened("release")
	s.Reconcile(&kustomizev1.Kustomization{}, "app")
	s.ConfigMapHas("a", "1")

	t.Log("the gate still opens by request")
	s.TurnGate("release", gatingv1.Closed)
	s.TurnGate("release", gatingv1.Opened)
	s.Ready("app", second)
	s.ConfigMapHas("a", "2")
}

func TestStatusIsWrittenByControllersOnly(t *testing.T) {
	s := &harness{system.Prepare(t)}
	s.policies()
	s.Create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "tenant"}})
	s.GrantAll("tenant")
	tenant, err := client.New(s.ServiceAccountConfig(testenv.Cluster(t), "tenant"),
		client.Options{Scheme: kubeclient.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	s.Create(&gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "it"}})
	s.Create(&sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "it"},
		Spec: sourcev1.GitRepositorySpec{URL: "https://example.com/x", Interval: meta.Duration{Duration: time.Hour}}})
	s.Kustomization("it", "it", "")
	write := func(c client.Client, gvk schema.GroupVersionKind) error {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(gvk)
		o.SetNamespace(s.Namespace)
		o.SetName("it")
		return c.Status().Patch(t.Context(), o,
			client.RawPatch(types.MergePatchType, []byte(`{"status":{"observedGeneration":7}}`)))
	}
	for _, gvk := range []schema.GroupVersionKind{
		gatingv1.GroupVersion.WithKind("Gate"), kustomizev1.GroupVersion.WithKind("Kustomization"),
		sourcev1.GroupVersion.WithKind("GitRepository"),
		{Group: kustomizev1.GroupVersion.Group, Version: "v1beta2", Kind: "Kustomization"},
	} {
		testenv.Eventually(t, "the tenant may not write the status of "+gvk.String(), func() error {
			err := write(tenant, gvk)
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "sluice-status") {
				return fmt.Errorf("the result is: %w", err)
			}
			return nil
		})
		if err := write(s.Client, gvk); err != nil {
			t.Errorf("the administrator: %v", err)
		}
	}
	label := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`))
	k := &kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "it"}}
	if err := tenant.Patch(t.Context(), k, label); err != nil {
		t.Errorf("the tenant cannot write the object: %v", err)
	}
}

func TestStatusPolicyCoversAllKinds(t *testing.T) {
	definitions, err := config.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	policies, err := config.Policies()
	if err != nil {
		t.Fatal(err)
	}
	covered := map[string]bool{}
	for _, p := range policies {
		if p.GetName() != "sluice-status" || p.GetKind() != "ValidatingAdmissionPolicy" {
			continue
		}
		rules, _, _ := unstructured.NestedSlice(p.Object, "spec", "matchConstraints", "resourceRules")
		for _, rule := range rules {
			groups, _, _ := unstructured.NestedStringSlice(rule.(map[string]any), "apiGroups")
			for _, g := range groups {
				covered[g] = true
			}
		}
	}
	for _, d := range definitions {
		if group, _, _ := unstructured.NestedString(d.Object, "spec", "group"); !covered[group] {
			t.Errorf("the policy does not cover %s of %s", d.GetName(), group)
		}
	}
}
