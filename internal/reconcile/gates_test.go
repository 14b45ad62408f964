package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// keeper is a gatekeeper with one gate over everything.
type keeper struct {
	mu      sync.Mutex
	over    bool
	closed  []reconcile.Closed
	pending *meta.Pending
}

var gateRef = reconcile.RefTo(schema.GroupKind{Group: "gating.toolkit.fluxcd.io", Kind: "Gate"}, "ops", "freeze")

func (k *keeper) set(over bool, closed ...reconcile.Closed) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.over, k.closed = over, closed
}

func (k *keeper) waiting() *meta.Pending {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.pending
}

func (k *keeper) Over(reconcile.Ref, reconcile.Gated) []reconcile.Ref {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.over {
		return nil
	}
	return []reconcile.Ref{gateRef}
}

func (k *keeper) Closed([]reconcile.Ref, reconcile.Gated, bool) []reconcile.Closed {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.closed)
}

func (k *keeper) Wait(_ reconcile.Ref, _ []reconcile.Closed, pending *meta.Pending) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pending = pending
}

func (k *keeper) WaitForSync(context.Context) error { return nil }

func shut(change ...func(*reconcile.Closed)) reconcile.Closed {
	c := reconcile.Closed{Gate: gateRef, Reason: meta.GateClosedReason, State: "is closed"}
	for _, do := range change {
		do(&c)
	}
	return c
}

// takes takes up a revision if it is admitted.
func takes(revision string) func(context.Context, *pass) reconcile.Outcome {
	return func(_ context.Context, p *pass) reconcile.Outcome {
		if err := p.Admit(revision); err != nil {
			return reconcile.Failed(err)
		}
		return reconcile.Ready("Succeeded", "took up %s", revision)
	}
}

func without(conditionType string) func(*sourcev1.GitRepository) error {
	return func(o *sourcev1.GitRepository) error {
		if c := apimeta.FindStatusCondition(o.Status.Conditions, conditionType); c != nil {
			return fmt.Errorf("%+v", c)
		}
		return nil
	}
}

func both(checks ...func(*sourcev1.GitRepository) error) func(*sourcev1.GitRepository) error {
	return func(o *sourcev1.GitRepository) error {
		var errs []error
		for _, check := range checks {
			errs = append(errs, check(o))
		}
		return errors.Join(errs...)
	}
}

func tookUp(revision string) func(*sourcev1.GitRepository) error {
	return func(o *sourcev1.GitRepository) error {
		c := apimeta.FindStatusCondition(o.Status.Conditions, "Ready")
		if c == nil || c.Status != metav1.ConditionTrue || c.Message != "took up "+revision {
			return fmt.Errorf("%+v", c)
		}
		return nil
	}
}

func waitsWith(revision string) func(*sourcev1.GitRepository) error {
	return func(o *sourcev1.GitRepository) error {
		if p := o.Status.Pending; p == nil || p.Revision != revision {
			return fmt.Errorf("%+v", p)
		}
		return nil
	}
}

func TestClosedGateHoldsWhatIsReady(t *testing.T) {
	for name, c := range map[string]struct {
		sort   reconcile.Sort
		closed func(*sourcev1.GitRepository) error
		open   func(*sourcev1.GitRepository) error
	}{
		"a source": {reconcile.Source, has("Blocked", metav1.ConditionTrue, "GateClosed"), without("Blocked")},
		"a sync": {reconcile.Sync, has("Approved", metav1.ConditionFalse, "GateClosed"),
			has("Approved", metav1.ConditionTrue, "GateOpen")},
	} {
		t.Run(name, func(t *testing.T) {
			gates := &keeper{}
			b := newBench(t, &step{reconcile: takes("1"), gates: gates, sort: c.sort})
			b.until("it is ready, and no gate is over it", both(tookUp("1"), without("Approved"), without("Blocked")))

			gates.set(true)
			b.edges.Wake(b.ref())
			b.until("an open gate stands over it", both(c.open, func(o *sourcev1.GitRepository) error {
				if !slices.Equal(o.Status.Gates, []string{"ops/freeze"}) {
					return fmt.Errorf("gates %v", o.Status.Gates)
				}
				return nil
			}))

			gates.set(true, shut())
			b.step.set(takes("2"))
			b.edges.Fire(gateRef)
			b.until("it is held as it is", both(c.closed, tookUp("1"), waitsWith("2"), without("Reconciling")))
			if p := gates.waiting(); p == nil || p.Revision != "2" {
				t.Errorf("the gates know of %+v", p)
			}
			passes := b.step.count()
			b.edges.Fire(gateRef)
			b.until("one more pass", func(*sourcev1.GitRepository) error {
				if b.step.count() == passes {
					return errors.New("none yet")
				}
				return nil
			})

			gates.set(true, shut(func(c *reconcile.Closed) { c.Passes = func(r string) bool { return r == "2" } }))
			b.edges.Fire(gateRef)
			b.until("an approved revision is let through", both(c.open, tookUp("2")))
			b.until("an event tells of it", func(*sourcev1.GitRepository) error {
				b.events.mu.Lock()
				defer b.events.mu.Unlock()
				if !slices.ContainsFunc(b.events.events,
					func(e reconcile.Event) bool { return e.Message == "took up 2" }) ||
					!slices.ContainsFunc(b.events.events,
						func(e reconcile.Event) bool { return e.Reason == meta.GateOpenReason }) {
					return fmt.Errorf("%+v", b.events.events)
				}
				return nil
			})

			gates.set(false)
			b.edges.Fire(gateRef)
			b.until("no gate is left", both(without("Approved"), without("Blocked"),
				func(o *sourcev1.GitRepository) error {
					if len(o.Status.Gates) > 0 || o.Status.Pending != nil {
						return fmt.Errorf("%+v", o.Status.Held)
					}
					return nil
				}))
		})
	}
}

func TestSpecThatWaitsIsNotObserved(t *testing.T) {
	gates := &keeper{}
	b := newBench(t, &step{reconcile: takes("1"), gates: gates, sort: reconcile.Sync})
	b.until("it is ready", tookUp("1"))
	gates.set(true, shut())
	b.patch(`{"spec":{"url":"https://example.com/y"}}`)
	b.until("the new spec waits", func(o *sourcev1.GitRepository) error {
		if o.Status.Pending == nil || o.Status.ObservedGeneration == o.Generation || reconcile.IsReady(o) {
			return fmt.Errorf("%+v", o.Status)
		}
		return nil
	})
}

func TestWhatIsUnderWayIsFinished(t *testing.T) {
	var mu sync.Mutex
	var underWay []bool
	rollout := func(_ context.Context, p *pass) reconcile.Outcome {
		mu.Lock()
		defer mu.Unlock()
		underWay = append(underWay, p.UnderWay)
		if err := p.Admit("1"); err != nil && !p.UnderWay {
			return reconcile.Held(meta.Pending{Revision: "1"})
		}
		return reconcile.Progressing(time.Hour, "rolling out")
	}
	gates := &keeper{over: true}
	b := newBench(t, &step{reconcile: rollout, gates: gates, sort: reconcile.Sync})
	b.until("it rolls out", has("Reconciling", metav1.ConditionTrue, "Progressing"))

	gates.set(true, shut())
	b.edges.Fire(gateRef)
	b.until("it goes on behind the closed gate",
		both(has("Approved", metav1.ConditionFalse, "GateClosed"),
			has("Reconciling", metav1.ConditionTrue, "Progressing")))

	gates.set(true, shut(func(c *reconcile.Closed) { c.Stop = true }))
	b.edges.Fire(gateRef)
	b.until("a gate that stops it stops it", both(without("Reconciling"),
		has("Ready", metav1.ConditionUnknown, "GateClosed"), waitsWith("1")))
	mu.Lock()
	defer mu.Unlock()
	if underWay[0] || !slices.Contains(underWay, true) || underWay[len(underWay)-1] {
		t.Errorf("under way: %v", underWay)
	}
}

func TestDeletionIsNotGated(t *testing.T) {
	gates := &keeper{over: true, closed: []reconcile.Closed{shut()}}
	b := newBench(t, &step{reconcile: takes("1"), gates: gates, sort: reconcile.Sync})
	b.until("it waits", has("Ready", metav1.ConditionUnknown, "GateClosed"))
	b.delete()
	b.untilGone()
	if p := gates.waiting(); p != nil {
		t.Errorf("the gates still know of %+v", p)
	}
}
