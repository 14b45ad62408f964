package reconcile

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
)

// definition is that of Kustomizations, and the one object that the API server has.
type definition struct {
	lacks bool
	live  *kustomizev1.Kustomization
	reads int
}

func (d *definition) LacksGates(context.Context, schema.GroupKind, bool, bool) (string, error) {
	return map[bool]string{true: "the definition lacks the field"}[d.lacks], nil
}

func (d *definition) Read(_ context.Context, obj client.Object) error {
	d.reads++
	d.live.DeepCopyInto(obj.(*kustomizev1.Kustomization))
	return nil
}

// owned returns an object whose fields have an owner. The API server keeps that of the gates while it hides them.
func owned(generation int64, gates ...string) *kustomizev1.Kustomization {
	k := &kustomizev1.Kustomization{}
	k.Name, k.Generation = "app", generation
	for _, name := range gates {
		k.Spec.Gates = append(k.Spec.Gates, meta.GateReference{Name: name})
	}
	k.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: "controller", Subresource: "status", FieldsV1: metav1.NewFieldsV1(`{"f:status":{}}`)},
		{Manager: "kubectl", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:gates":{},"f:path":{}}}`)},
	}
	return k
}

// TestGatesThatAnAPIServerStillHides has API servers that use a new definition later than it can be read.
func TestGatesThatAnAPIServerStillHides(t *testing.T) {
	withoutOwner, emptied := owned(1), owned(1)
	withoutOwner.ManagedFields = nil
	emptied.Spec.Gates = []meta.GateReference{}
	for name, c := range map[string]struct {
		live  *kustomizev1.Kustomization
		knows bool // the process has seen the gates
		goes  bool // without gates
	}{
		"hidden from a process that started since":   {live: owned(1)},
		"hidden from a process that has seen them":   {live: owned(1), knows: true},
		"the object never named gates":               {live: withoutOwner, goes: true},
		"the object names an empty list":             {live: emptied, goes: true},
		"removed by a change of the spec":            {live: owned(2), knows: true, goes: true},
		"lost, and the process had seen them before": {live: withoutOwner, knows: true},
	} {
		t.Run(name, func(t *testing.T) {
			d, events := &definition{live: c.live}, &collector{}
			l := newLoop(&Kernel{Definitions: d, Events: events, Retry: DefaultRetry}, Kind[*kustomizev1.Kustomization]{
				New:          func() *kustomizev1.Kustomization { return &kustomizev1.Kustomization{} },
				GateBehavior: HoldsSync})
			if c.knows {
				if _, _, ok := l.withGates(t.Context(), owned(1, "release")); !ok {
					t.Fatal("an object with gates is not reconciled")
				}
			}
			cached := owned(c.live.Generation)
			d.lacks = true
			if _, result, ok := l.withGates(t.Context(), cached); ok || result.RequeueAfter != unknownGatesRetry {
				t.Errorf("while the definition lacks the field, the object is reconciled: %t, due in %s", ok,
					result.RequeueAfter)
			}
			d.lacks = false
			for n := range 3 {
				_, result, ok := l.withGates(t.Context(), cached)
				if ok != c.goes {
					t.Fatalf("pass %d is reconciled without gates: %t, want %t", n, ok, c.goes)
				}
				if !ok && result.RequeueAfter > 5*time.Second {
					t.Errorf("the next pass after pass %d is due in %s: users wait", n, result.RequeueAfter)
				}
			}
			if c.goes {
				if d.reads != 1 {
					t.Errorf("an object without gates was read %d times", d.reads)
				}
				return
			}
			if last := events.messages[len(events.messages)-1]; !strings.Contains(last, "hides them for a moment") ||
				!strings.Contains(last, "apply the object again, with its gates or another change of its spec") {
				t.Errorf("the event is %q", last)
			}

			d.live = owned(1, "release")
			for range 2 {
				obj, _, ok := l.withGates(t.Context(), cached)
				if !ok || len(obj.Spec.Gates) != 1 {
					t.Errorf("the gates that the API server has again: reconciled: %t, %v", ok, obj.Spec.Gates)
				}
			}
		})
	}
}
