package kustomization_test

import (
	"errors"
	"fmt"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// TestStartOverArtifactsOfFlux starts over the statuses of Flux, whose artifact server is gone. The source is
// suspended, so that the time until it stores its artifact is long.
func TestStartOverArtifactsOfFlux(t *testing.T) {
	t.Parallel()
	s := prepareHarness(t)
	commit := s.Git.Commit("app", map[string]string{"a.yaml": "apiVersion: v1\nkind: ConfigMap\n" +
		"metadata: {name: a}\ndata: {k: \"1\"}\n"})
	revision := "main@sha1:" + commit
	s.GitRepository("app", func(g *sourcev1.GitRepository) { g.Spec.Suspend = true })
	s.Kustomization("app", "app", "")
	setStatus(s, &sourcev1.GitRepository{}, fmt.Sprintf(`{"artifact": {"url": "http://127.0.0.1:1/app.tar.gz", `+
		`"path": "app.tar.gz", "revision": %q, "digest": "sha256:%064d", "lastUpdateTime": "2026-01-01T00:00:00Z"}}`,
		revision, 0))
	setStatus(s, &kustomizev1.Kustomization{}, fmt.Sprintf(`{"observedGeneration": 1, "lastAppliedRevision": %q, `+
		`"conditions": [{"type": "Ready", "status": "True", "reason": "ReconciliationSucceeded", `+
		`"message": "of Flux", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}`, revision))
	s.Start()
	testenv.Eventually(t, "the Kustomization waits for the artifact", func() error {
		k := &kustomizev1.Kustomization{}
		if err := s.Get(k, "app"); err != nil {
			return err
		}
		ready := apimeta.FindStatusCondition(k.Status.Conditions, reconcile.TypeReady)
		if ready == nil || ready.Status != metav1.ConditionTrue || ready.Message != "of Flux" {
			t.Fatalf("Ready is %+v", ready)
		}
		if !apimeta.IsStatusConditionTrue(k.Status.Conditions, reconcile.TypeReconciling) {
			return errors.New("it does not wait yet")
		}
		return nil
	})
	s.Patch(&sourcev1.GitRepository{}, "app", `{"spec": {"suspend": false}}`)
	testenv.Eventually(t, "the artifact is applied", func() error {
		k := &kustomizev1.Kustomization{}
		if err := s.Get(k, "app"); err != nil {
			return err
		}
		if !reconcile.IsReady(k) || apimeta.IsStatusConditionTrue(k.Status.Conditions, reconcile.TypeReconciling) ||
			apimeta.FindStatusCondition(k.Status.Conditions, reconcile.TypeReady).Message == "of Flux" {
			return fmt.Errorf("%+v", k.Status.Conditions)
		}
		return nil
	})
	s.ConfigMapHas("a", "1")
	s.HasEvent("app", meta.ReconciliationSucceededReason) // events are in order
	events := &eventsv1.EventList{}
	if err := s.Client.List(t.Context(), events, client.InNamespace(s.Namespace)); err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		if e.Type == "Warning" {
			t.Errorf("an alert was sent: %s %s", e.Reason, e.Note)
		}
	}
}

// setStatus replaces fields of the status of object app.
func setStatus(s *harness, o client.Object, status string) {
	s.Helper()
	o.SetNamespace(s.Namespace)
	o.SetName("app")
	patch := client.RawPatch(types.MergePatchType, []byte(`{"status": `+status+`}`))
	if err := s.Client.Status().Patch(s.Context(), o, patch); err != nil {
		s.Fatal(err)
	}
}
