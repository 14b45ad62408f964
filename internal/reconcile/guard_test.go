package reconcile_test

import (
	"strings"
	"sync/atomic"
	"testing"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/reconcile/decision"
)

// brokenGates is a gatekeeper that panics until it is repaired.
type brokenGates struct {
	fakeGatekeeper
	repaired atomic.Bool
}

func (b *brokenGates) Snapshot([]reconcile.Ref, reconcile.Gated) []decision.Gate {
	if !b.repaired.Load() {
		panic("oh")
	}
	return nil
}

func TestPanicOfGatesRunsNoStep(t *testing.T) {
	gates := &brokenGates{}
	gates.set(true)
	s := &step{reconcile: applies("1"), gates: gates, behavior: reconcile.HoldsSync}
	b := newBench(t, s)
	b.until("the object is Stalled", has("Stalled", metav1.ConditionTrue, "Failed"))
	if n := s.count(); n != 0 {
		t.Errorf("the step ran %d times although its gates are unknown", n)
	}
	gates.repaired.Store(true)
	b.until("the object recovers", isReadyWith("1"))
}

func TestPanicOfFinalizeIsReported(t *testing.T) {
	var repaired atomic.Bool
	s := &step{reconcile: returns(reconcile.Ready("Succeeded", "fine")), finalize: func() error {
		if !repaired.Load() {
			panic("oh")
		}
		return nil
	}}
	b := newBench(t, s)
	b.until("the object is Ready", has("Ready", metav1.ConditionTrue, "Succeeded"))
	b.delete()
	b.until("the failure is reported", has("Ready", metav1.ConditionFalse, guard.ReasonInternalError))
	b.until("the message says how to report it", func(o *sourcev1.GitRepository) error {
		c := apimeta.FindStatusCondition(o.Status.Conditions, "Ready")
		if !strings.Contains(c.Message, guard.Hint) || strings.Contains(c.Message, "oh") {
			t.Fatalf("the message is %q", c.Message)
		}
		return nil
	})
	repaired.Store(true)
	b.untilGone()
}
