package reconcile

import (
	"context"
	"testing"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrl "sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/testenv/allocation"
)

// atRest is a step that finds nothing to do.
type atRest struct {
	Step[*sourcev1.GitRepository]
}

func (atRest) References(*sourcev1.GitRepository) []Ref { return nil }

func (atRest) Reconcile(context.Context, *Pass[*sourcev1.GitRepository]) Outcome {
	return Ready(meta.SucceededReason, "stored artifact for revision '%s'", "main@sha1:1").Unchanged()
}

// TestAPassAtRestAllocatesLittle bounds what the kernel allocates for a pass that finds nothing to do.
func TestAPassAtRestAllocatesLittle(t *testing.T) {
	const most = 140
	o := &sourcev1.GitRepository{}
	o.Namespace, o.Name, o.Finalizers = "apps", "web", []string{Finalizer}
	o.Spec.Interval = meta.Duration{Duration: time.Hour}
	c := &oneObject{object: o}
	l := newLoop(&Kernel{Client: c, Edges: NewEdges(), Events: EmitToAll(), Clock: clock.RealClock{}},
		Kind[*sourcev1.GitRepository]{Step: atRest{},
			New: func() *sourcev1.GitRepository { return &sourcev1.GitRepository{} }})
	pass := func() {
		if _, err := l.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o)}); err != nil {
			t.Fatal(err)
		}
	}
	pass() // writes the status
	written := c.object
	if n := allocation.PerRun(pass); n > most {
		t.Errorf("%.0f allocations, want at most %d", n, most)
	}
	if c.object != written || !IsReady(written) {
		t.Errorf("the status was written again: %+v", c.object.Status)
	}
}
