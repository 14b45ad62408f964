package gate

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// TestFailureOfManyObjectsLastsUntilAllRecover has a change that made more objects unhealthy than a failure lists.
func TestFailureOfManyObjectsLastsUntilAllRecover(t *testing.T) {
	c, now := &Controller{Observed: &Observed{}}, time.Now()
	g := &gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "release"},
		Spec: gatingv1.GateSpec{OnFailure: gatingv1.OnFailureHold, Soak: &meta.Duration{Duration: time.Hour}}}
	gate := []types.NamespacedName{{Namespace: g.Namespace, Name: g.Name}}
	set := func(n int, failure *meta.AdmittedFailure) {
		c.Observed.set(reconcile.RefTo(groupKindOf(kustomizev1.KustomizationKind), "apps", fmt.Sprintf("app-%02d", n)),
			gate, &meta.Held{Admitted: &meta.Admitted{Revision: "main@sha1:a", Failure: failure}})
	}
	const objects = gatingv1.MaxFailedObjects + 2
	for n := range objects {
		set(n, &meta.AdmittedFailure{At: meta.Time{Time: now.Add(time.Duration(n) * time.Second)}})
	}
	for recovered := range objects {
		g.Status.Failures = c.failures(t.Context(), g, now)
		if len(g.Status.Failures) != 1 {
			t.Fatalf("after %d of %d recovered: %+v", recovered, objects, g.Status.Failures)
		}
		set(recovered, nil)
	}
	if left := c.failures(t.Context(), g, now); len(left) > 0 {
		t.Errorf("after all recovered: %+v", left)
	}
}
