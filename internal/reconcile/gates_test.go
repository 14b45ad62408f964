package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/reconcile/decision"
)

// fakeGatekeeper has one gate that applies to all objects.
type fakeGatekeeper struct {
	mu      sync.Mutex
	exists  bool
	gates   []decision.Gate
	pending *meta.Pending
}

var gateRef = reconcile.RefTo(schema.GroupKind{Group: "gating.toolkit.fluxcd.io", Kind: "Gate"}, "ops", "freeze")

func (k *fakeGatekeeper) set(exists bool, gates ...decision.Gate) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.exists, k.gates = exists, gates
}

func (k *fakeGatekeeper) waiting() *meta.Pending {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.pending
}

func (k *fakeGatekeeper) GatesFor(reconcile.Ref, reconcile.Gated) []reconcile.Ref {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.exists {
		return nil
	}
	return []reconcile.Ref{gateRef}
}

func (k *fakeGatekeeper) Snapshot([]reconcile.Ref, reconcile.Gated) []decision.Gate {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.gates) == 0 && k.exists {
		return []decision.Gate{aGate(func(g *gatingv1.Gate) { g.Status.ApprovedRevisions = nil })}
	}
	return slices.Clone(k.gates)
}

func (k *fakeGatekeeper) Judge(decision.Gate, reconcile.Gated, reconcile.Change) decision.Ruling {
	return decision.Ruling{}
}

func (k *fakeGatekeeper) TakeTurn(types.NamespacedName, reconcile.Ref, reconcile.Gated, string) decision.Cause {
	return decision.Cause{}
}

func (k *fakeGatekeeper) SetObserved(reconcile.Ref, []types.NamespacedName, *meta.Held) {}

func (k *fakeGatekeeper) SetWaiting(_ reconcile.Ref, has *meta.Held) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.pending = nil; has != nil {
		k.pending = has.Pending
	}
}

func (k *fakeGatekeeper) WaitForSync(context.Context) error { return nil }

// aGate returns a gate that is open for the revision "none".
func aGate(change ...func(*gatingv1.Gate)) decision.Gate {
	g := &gatingv1.Gate{}
	g.Status.Conditions = []metav1.Condition{{Type: gatingv1.OpenedCondition, Status: metav1.ConditionTrue}}
	g.Status.ApprovedRevisions = []string{"none"}
	for _, do := range change {
		do(g)
	}
	return decision.Gate{Key: gateRef.NamespacedName, Gate: g}
}

// applies returns a step that becomes Ready with a revision if it is admitted.
func applies(revision string) func(context.Context, *pass) reconcile.Outcome {
	return func(_ context.Context, p *pass) reconcile.Outcome {
		if err := p.Admit(revision); err != nil {
			return reconcile.Failed(err)
		}
		return reconcile.Ready("Succeeded", "applied %s", revision)
	}
}

func lacks(conditionType string) func(*sourcev1.GitRepository) error {
	return func(o *sourcev1.GitRepository) error {
		if c := apimeta.FindStatusCondition(o.Status.Conditions, conditionType); c != nil {
			return fmt.Errorf("%+v", c)
		}
		return nil
	}
}

func all(checks ...func(*sourcev1.GitRepository) error) func(*sourcev1.GitRepository) error {
	return func(o *sourcev1.GitRepository) error {
		var errs []error
		for _, check := range checks {
			errs = append(errs, check(o))
		}
		return errors.Join(errs...)
	}
}

func isReadyWith(revision string) func(*sourcev1.GitRepository) error {
	return func(o *sourcev1.GitRepository) error {
		c := apimeta.FindStatusCondition(o.Status.Conditions, "Ready")
		if c == nil || c.Status != metav1.ConditionTrue ||
			before(c.Message) != "applied "+revision {
			return fmt.Errorf("%+v", c)
		}
		return nil
	}
}

// before returns the part of a message before what waits at gates.
func before(message string) string {
	before, _, _ := strings.Cut(message, "; waiting at gate ")
	return before
}

func isPending(revision string) func(*sourcev1.GitRepository) error {
	return func(o *sourcev1.GitRepository) error {
		if p := o.Status.Pending; p == nil || p.Revision != revision {
			return fmt.Errorf("%+v", p)
		}
		return nil
	}
}

// isHeldBy checks the codes of the gates that hold the object.
func isHeldBy(codes ...string) func(*sourcev1.GitRepository) error {
	return func(o *sourcev1.GitRepository) error {
		var got []string
		for _, by := range o.Status.HeldBy {
			if got = append(got, by.Code); by.Gate != "ops/freeze" {
				return fmt.Errorf("%+v", by)
			}
		}
		if !slices.Equal(got, codes) {
			return fmt.Errorf("held by %v", got)
		}
		return nil
	}
}

func TestClosedGateHoldsReadyObject(t *testing.T) {
	for name, c := range map[string]struct {
		behavior reconcile.GateBehavior
		closed   func(*sourcev1.GitRepository) error
		open     func(*sourcev1.GitRepository) error
	}{
		"source": {behavior: reconcile.BlocksSource, closed: has("Blocked", metav1.ConditionTrue, "GateClosed"),
			open: lacks("Blocked")},
		"sync": {behavior: reconcile.HoldsSync, closed: has("Approved", metav1.ConditionFalse, "GateClosed"),
			open: has("Approved", metav1.ConditionTrue, "GateOpen")},
	} {
		t.Run(name, func(t *testing.T) {
			gates := &fakeGatekeeper{}
			b := newBench(t, &step{reconcile: applies("1"), gates: gates, behavior: c.behavior})
			b.until("the object is ready without gates", all(isReadyWith("1"), lacks("Approved"), lacks("Blocked")))

			gates.set(true)
			b.edges.Enqueue(b.ref())
			b.until("the open gate is in the status", all(c.open, func(o *sourcev1.GitRepository) error {
				if !slices.Equal(o.Status.Gates, []string{"ops/freeze"}) {
					return fmt.Errorf("gates %v", o.Status.Gates)
				}
				return nil
			}))

			gates.set(true, aGate())
			b.step.set(applies("2"))
			b.edges.NotifyDependents(gateRef)
			b.until("the closed gate holds the object",
				all(c.closed, isReadyWith("1"), isPending("2"), isHeldBy("AllowsOnly"), lacks("Reconciling")))
			if p := gates.waiting(); p == nil || p.Revision != "2" {
				t.Errorf("the pending change at the gate is %+v, want revision 2", p)
			}
			anotherPassRuns(b)

			gates.set(true, aGate(func(g *gatingv1.Gate) { g.Status.ApprovedRevisions = []string{"2"} }))
			b.edges.NotifyDependents(gateRef)
			b.until("the allowed revision is applied", all(c.open, isReadyWith("2"), isHeldBy()))
			eventsReportChange(b)

			gates.set(false)
			b.edges.NotifyDependents(gateRef)
			b.until("the conditions of gates are removed", all(lacks("Approved"), lacks("Blocked"),
				func(o *sourcev1.GitRepository) error {
					if len(o.Status.Gates) > 0 || o.Status.Pending != nil {
						return fmt.Errorf("%+v", o.Status.Held)
					}
					return nil
				}))
		})
	}
}

// anotherPassRuns waits for one more pass.
func anotherPassRuns(b *bench) {
	passes := b.step.count()
	b.edges.NotifyDependents(gateRef)
	b.until("another pass runs", func(*sourcev1.GitRepository) error {
		if b.step.count() == passes {
			return errors.New("no further pass yet")
		}
		return nil
	})
}

// eventsReportChange waits for the events of the applied revision and the open gate.
func eventsReportChange(b *bench) {
	b.until("events report it", func(*sourcev1.GitRepository) error {
		b.events.mu.Lock()
		defer b.events.mu.Unlock()
		if !slices.ContainsFunc(b.events.events,
			func(e reconcile.Event) bool { return e.Message == "applied 2" }) ||
			!slices.ContainsFunc(b.events.events,
				func(e reconcile.Event) bool { return e.Reason == meta.GateOpenReason }) {
			return fmt.Errorf("%+v", b.events.events)
		}
		return nil
	})
}

func TestHeldSpecIsNotObserved(t *testing.T) {
	gates := &fakeGatekeeper{}
	b := newBench(t, &step{reconcile: applies("1"), gates: gates, behavior: reconcile.HoldsSync})
	b.until("the object is ready", isReadyWith("1"))
	gates.set(true, aGate())
	b.patch(`{"spec":{"url":"https://example.com/y"}}`)
	b.until("the new spec is pending", func(o *sourcev1.GitRepository) error {
		if o.Status.Pending == nil || o.Status.ObservedGeneration == o.Generation || reconcile.IsReady(o) {
			return fmt.Errorf("%+v", o.Status)
		}
		return nil
	})
}

func TestWorkInProgressIsFinishedBehindClosedGate(t *testing.T) {
	var mu sync.Mutex
	var inProgress []bool
	rollout := func(_ context.Context, p *pass) reconcile.Outcome {
		mu.Lock()
		defer mu.Unlock()
		inProgress = append(inProgress, p.InProgress)
		if err := p.Admit("1"); err != nil && !p.InProgress {
			return reconcile.Held(meta.Pending{Revision: "1"})
		}
		return reconcile.Progressing(time.Hour, "rolling out")
	}
	gates := &fakeGatekeeper{exists: true}
	b := newBench(t, &step{reconcile: rollout, gates: gates, behavior: reconcile.HoldsSync})
	b.until("the rollout is in progress", has("Reconciling", metav1.ConditionTrue, "Progressing"))

	gates.set(true, aGate())
	b.edges.NotifyDependents(gateRef)
	b.until("the rollout continues behind the closed gate",
		all(has("Approved", metav1.ConditionFalse, "GateClosed"),
			has("Reconciling", metav1.ConditionTrue, "Progressing")))

	gates.set(true, aGate(func(g *gatingv1.Gate) { g.Spec.Overrun = gatingv1.OverrunStop }))
	b.edges.NotifyDependents(gateRef)
	b.until("a gate with StopsProgress stops the rollout", all(lacks("Reconciling"),
		has("Ready", metav1.ConditionUnknown, "GateClosed"), isPending("1")))
	mu.Lock()
	defer mu.Unlock()
	if inProgress[0] || !slices.Contains(inProgress, true) || inProgress[len(inProgress)-1] {
		t.Errorf("Pass.InProgress by pass: %v", inProgress)
	}
}

func TestGatesDoNotHoldDeletion(t *testing.T) {
	gates := &fakeGatekeeper{exists: true, gates: []decision.Gate{aGate()}}
	b := newBench(t, &step{reconcile: applies("1"), gates: gates, behavior: reconcile.HoldsSync})
	b.until("the object waits", has("Ready", metav1.ConditionUnknown, "GateClosed"))
	b.delete()
	b.untilGone()
	if p := gates.waiting(); p != nil {
		t.Errorf("the pending change is still recorded at the gate: %+v", p)
	}
}
