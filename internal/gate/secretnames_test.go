package gate_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// TestNamesFromSecretsAreNotShown has objects and fields that are named by a value of a Secret: a change that waits
// does not show the former, and warnings do not show the latter.
func TestNamesFromSecretsAreNotShown(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	s.Secret("vars", map[string]string{"PASSWORD": "Hunter2-Zq7Kw9Xy4Tz1"})
	s.Git.Commit("app", map[string]string{"b.yaml": system.ConfigMap("b", "1"),
		"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: ${PASSWORD,,}\n",
		"service.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n" +
			"spec: {ports: [{port: 80}], 'f${PASSWORD//-/_}': 1}\n"})
	s.Gate("release")
	s.GitRepository("app")
	s.Kustomization("app", "app", "", func(k *kustomizev1.Kustomization) {
		k.Spec.Gates = system.GateRefs("release")
		k.Spec.PostBuild = &kustomizev1.PostBuild{
			SubstituteFrom: []meta.SubstituteReference{{Kind: "Secret", Name: "vars"}}}
	})
	k := &kustomizev1.Kustomization{}
	testenv.Eventually(t, "the change waits", func() error {
		if err := s.Get(k, "app"); err != nil {
			return err
		}
		if k.Status.Pending == nil || len(k.Status.Pending.Changes) != 3 {
			return fmt.Errorf("%+v", k.Status.Pending)
		}
		return nil
	})
	text := strings.Join(k.Status.Pending.Changes, "\n")
	if !strings.Contains(text, "ConfigMap/***/*** created") ||
		!strings.Contains(text, "ConfigMap/"+s.Namespace+"/b created") {
		t.Errorf("the changes are\n%s", text)
	}
	s.showsNothingOf("zq7kw9xy4tz1", &kustomizev1.KustomizationList{}, &gatingv1.GateList{}, &corev1.EventList{})

	s.TurnGate("release", gatingv1.Opened)
	s.HasEvent("app", meta.AppliedWithWarningsReason, "unknown field", "spec.***")
	s.showsNothingOf("Hunter2_Zq7Kw9Xy4Tz1", &kustomizev1.KustomizationList{}, &corev1.EventList{})
}

// showsNothingOf fails the test if a text is in an object of the namespace.
func (s *harness) showsNothingOf(secret string, lists ...client.ObjectList) {
	s.Helper()
	for _, list := range lists {
		if err := s.Client.List(s.Context(), list, client.InNamespace(s.Namespace)); err != nil {
			s.Fatal(err)
		}
		text, err := json.Marshal(list)
		if err != nil {
			s.Fatal(err)
		}
		if strings.Contains(string(text), secret) {
			s.Errorf("%q is in\n%s", secret, text)
		}
	}
}
