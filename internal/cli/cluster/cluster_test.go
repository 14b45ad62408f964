package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

func TestExplain(t *testing.T) {
	resource := schema.GroupResource{Resource: "kustomizations"}
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"unknown kind": {err: &apimeta.NoKindMatchError{}, want: "cannot list: this kind is not installed in the " +
			"cluster. Run sluice install"},
		"forbidden": {err: apierrors.NewForbidden(resource, "app",
			errors.New(`User "u" cannot get resource "kustomizations" in API group "kustomize.toolkit.fluxcd.io"`)),
			want: "Ask an administrator"},
		"unauthorized": {err: apierrors.NewUnauthorized("no"), want: "log in again"},
		"timeout":      {err: fmt.Errorf("get: %w", context.DeadlineExceeded), want: "Raise --timeout"},
		"other":        {err: errors.New("broken"), want: "cannot list: broken"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Explain("cannot list", c.err); got == nil || !strings.Contains(got.Error(), c.want) {
				t.Errorf("got %v, want %q in it", got, c.want)
			}
		})
	}
	if err := Explain("cannot list", nil); err != nil {
		t.Errorf("no error becomes %v", err)
	}
}

// withConditions returns a Kustomization of generation 2 that observed the given one.
func withConditions(observed int64, conditions ...metav1.Condition) *kustomizev1.Kustomization {
	ks := &kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "app", Generation: 2}}
	ks.Status.ObservedGeneration, ks.Status.Conditions = observed, conditions
	return ks
}

func TestIsSettled(t *testing.T) {
	ready := metav1.Condition{Type: reconcile.TypeReady, Status: metav1.ConditionTrue, Message: "applied"}
	failed := metav1.Condition{Type: reconcile.TypeReady, Status: metav1.ConditionFalse, Reason: "BuildFailed"}
	progressing := metav1.Condition{Type: reconcile.TypeReady, Status: metav1.ConditionUnknown}
	reconciling := metav1.Condition{Type: reconcile.TypeReconciling, Status: metav1.ConditionTrue}
	held := metav1.Condition{Type: meta.ApprovedCondition, Status: metav1.ConditionFalse, Message: "closed"}
	unevaluated := held
	unevaluated.Reason = meta.GateNotEvaluatedReason
	requested := withConditions(2, ready)
	requested.Annotations = map[string]string{meta.ReconcileRequestAnnotation: "now"}
	for name, c := range map[string]struct {
		object *kustomizev1.Kustomization
		want   bool
		err    string // of CheckReady
	}{
		"ready":                {object: withConditions(2, ready), want: true},
		"failed":               {object: withConditions(2, failed), want: true, err: "is not ready: BuildFailed"},
		"held":                 {object: withConditions(1, ready, held), want: true, err: "is held by a gate: closed"},
		"a new gate":           {object: withConditions(1, ready, unevaluated)},
		"new":                  {object: withConditions(0)},
		"progressing":          {object: withConditions(2, progressing)},
		"old generation":       {object: withConditions(1, ready)},
		"unhandled request":    {object: requested},
		"held and progressing": {object: withConditions(1, progressing, held, reconciling)},
	} {
		t.Run(name, func(t *testing.T) {
			if got := IsSettled(c.object); got != c.want {
				t.Fatalf("got %t, want %t", got, c.want)
			}
			if !c.want {
				return
			}
			err := CheckReady(kind.ByName(kustomizev1.KustomizationKind), c.object)
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("got %v, want %q", err, c.err)
			}
		})
	}
}

func TestOverwriteKeepsMetadataAndStatus(t *testing.T) {
	live := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"a": "1"}, "uid": "u"},
		"spec":     map[string]any{"old": "x"}, "status": map[string]any{"s": "1"}, "extra": "e",
	}}
	overwrite(live, &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"b": "2"}},
		"spec":     map[string]any{"new": "y"}, "status": map[string]any{"s": "2"},
	}})
	want := "map[extra:e metadata:map[labels:map[a:1 b:2] uid:u] spec:map[new:y] status:map[s:1]]"
	if got := fmt.Sprint(live.Object); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestOverwriteReplacesTheDataOfSecrets(t *testing.T) {
	live := &unstructured.Unstructured{Object: map[string]any{"kind": "Secret", "data": map[string]any{"old": "eA=="}}}
	overwrite(live, &unstructured.Unstructured{Object: map[string]any{"kind": "Secret",
		"stringData": map[string]any{"new": "y"}}})
	if got, want := fmt.Sprint(live.Object), "map[kind:Secret stringData:map[new:y]]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
