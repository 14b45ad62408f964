package health

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-gitops/sluice/internal/guard"
)

// TestObjectsThatNoAPIServerWouldStoreAreUnknown has objects of a remote cluster, which may answer anything.
func TestObjectsThatNoAPIServerWouldStoreAreUnknown(t *testing.T) {
	pod := func(status map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod",
			"metadata": map[string]any{"name": "x", "namespace": "x", "resourceVersion": "7"}, "status": status}}
	}
	hostile := pod(map[string]any{"phase": "Running",
		"conditions":        []any{map[string]any{"type": "Ready", "status": "False", "reason": "x"}},
		"containerStatuses": []any{"a string"}})
	if guard.Run("testing", func() { observe(hostile) }) {
		t.Fatal("kstatus reads the object: find another one")
	}
	o := observeWith(nil, nil)(hostile)
	if o.status != Unknown || o.version != "7" || !strings.Contains(o.message, "internal error") ||
		!strings.Contains(o.message, guard.Hint) {
		t.Errorf("the observation is %+v", o)
	}
	if o := observeWith(nil, nil)(pod(map[string]any{"phase": "Succeeded"})); o.status != Current {
		t.Errorf("a Pod that succeeded is %+v", o)
	}
}
