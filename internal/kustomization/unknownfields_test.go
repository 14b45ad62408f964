package kustomization_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// mistyped is a Deployment with an unknown field in line 5.
const mistyped = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replica: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: x}]}
`

func readyMessage(k *kustomizev1.Kustomization) string {
	return apimeta.FindStatusCondition(k.Status.Conditions, "Ready").Message
}

// TestUnknownFieldsAreLeftOut names the fields in the condition until they are gone, and in one event.
func TestUnknownFieldsAreLeftOut(t *testing.T) {
	t.Parallel()
	s := newSteps(t)
	files := map[string]string{"app/web.yaml": mistyped, "app/cm.yaml": system.ConfigMap("cm", "1")}
	commit := s.Commit("app", files)
	s.apply("app", "app", "./app")
	where := "Deployment/" + s.Namespace + "/web: spec.replica in app/web.yaml, line 5"
	want := "; 1 unknown field was left out: " + where
	if got := readyMessage(s.Ready("app", commit)); !strings.HasSuffix(got, want) {
		t.Errorf("the message is %q, want %q at the end", got, want)
	}
	s.HasEvent("app", meta.AppliedWithWarningsReason, where, "--strict-fields")
	d := &appsv1.Deployment{}
	if err := s.Get(d, "web"); err != nil || *d.Spec.Replicas != 1 {
		t.Errorf("the Deployment has %v replicas, %v", d.Spec.Replicas, err)
	}

	files["app/cm.yaml"] = system.ConfigMap("cm", "2")
	commit = s.Commit("app", files)
	s.Pass("app")
	if got := readyMessage(s.Ready("app", commit)); !strings.HasSuffix(got, want) {
		t.Errorf("after another change, the message is %q, want %q at the end", got, want)
	}
	if n := s.HasEvent("app", meta.AppliedWithWarningsReason, where); n != 1 {
		t.Errorf("%d events, want 1", n)
	}

	files["app/web.yaml"] = strings.Replace(mistyped, "replica:", "replicas:", 1)
	commit = s.Commit("app", files)
	s.Pass("app")
	if got := readyMessage(s.Ready("app", commit)); strings.Contains(got, "unknown") {
		t.Errorf("after the correction, the message is %q", got)
	}
}

// TestStrictFieldsRefuseUnknownFields also shows that nothing is applied.
func TestStrictFieldsRefuseUnknownFields(t *testing.T) {
	t.Parallel()
	s := newSteps(t, func(o *options.Options) { o.StrictFields = true })
	s.Commit("app", map[string]string{"app/web.yaml": mistyped, "app/cm.yaml": system.ConfigMap("cm", "1"),
		"app/kustomization.yaml": "resources: [web.yaml, cm.yaml]\nnamePrefix: a-\n"})
	s.apply("app", "app", "./app")
	s.NotReady(&kustomizev1.Kustomization{}, "app", meta.ReconciliationFailedReason,
		"Deployment/"+s.Namespace+"/a-web sets unknown fields: spec.replica in app/web.yaml, line 5")
	if err := s.Get(&appsv1.Deployment{}, "a-web"); err == nil {
		t.Error("the Deployment was applied")
	}
}
