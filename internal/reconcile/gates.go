package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/notify/event"
)

// Gated is an object that gates can hold.
type Gated interface {
	Object
	GateRefs() []meta.GateReference
	Held() *meta.Held
}

// Gatekeeper knows the gates.
type Gatekeeper interface {
	// Over lists the gates that stand over an object, by name or by selector, in order. Their change is to wake it.
	Over(ref Ref, obj Gated) []Ref
	// Closed returns those of them that are not open to the object now. manual: a person or a tool asked for this pass.
	Closed(over []Ref, obj Gated, manual bool) []Closed
	// Wait notes what waits with an object at closed gates; nothing does when pending is nil.
	Wait(ref Ref, at []Closed, pending *meta.Pending)
	// WaitForSync returns once all gates are known that there are: no pass starts before.
	WaitForSync(ctx context.Context) error
}

// Closed is a gate that is not open to an object.
type Closed struct {
	Gate   Ref
	Reason string                     // GateClosed, GateNotFound or AccessDenied
	State  string                     // for people, such as "is closed"
	Passes func(revision string) bool // whether a revision passes all the same; none does when nil
	Stop   bool                       // what is under way stops, too
}

// Sort of a kind, as gates see it.
type Sort int

// Sorts of kinds.
const (
	Ungated Sort = iota // gates do not hold the kind
	Source              // while a gate is closed, the last artifact is served on; the condition Blocked tells
	Sync                // what is under way is finished, then nothing is done; the condition Approved tells
)

// maxClosed bounds how many gates a message names.
const maxClosed = 3

// maxGates bounds how many gates a status lists; all that there are hold the object.
const maxGates = 100

// heldError is the error of a revision that gates hold back.
type heldError struct{ revision, states string }

func (e *heldError) Error() string {
	return fmt.Sprintf("revision '%s' waits: %s", e.revision, e.states)
}

// IsHeld tells whether an error is that of [Pass.Admit].
func IsHeld(err error) bool { return errors.As(err, new(*heldError)) }

// permit is what the gates say to one pass.
type permit struct {
	over     []Ref
	closed   []Closed
	admitted bool // a revision that all closed gates let pass was asked for
	manual   bool // gates are closed but to a pass that was asked for
}

// shut returns the gates that hold the pass: none if it was admitted all the same.
func (p *permit) shut() []Closed {
	if p == nil || p.admitted {
		return nil
	}
	return p.closed
}

func (p *permit) admit(revision string) error {
	if p == nil || len(p.closed) == 0 {
		return nil
	}
	p.admitted = !slices.ContainsFunc(p.closed, func(c Closed) bool { return c.Passes == nil || !c.Passes(revision) })
	if p.admitted {
		return nil
	}
	return &heldError{revision, p.states()}
}

// again tells whether a pass is to follow at once, since the gates say something else to it: what was under
// way is finished, or the pass was let through because it was asked for.
func (p *permit) again(s Sort, o Outcome) bool {
	return p != nil && (p.manual || s == Sync && o.state == ready && len(p.shut()) > 0)
}

// finishes tells whether the gates that closed let go on what is under way.
func (p *permit) finishes() bool {
	return p == nil || !slices.ContainsFunc(p.closed, func(c Closed) bool { return c.Stop })
}

// states says which gates are closed, such as "gate 'apps/freeze' is closed".
func (p *permit) states() string {
	var parts []string
	for i, c := range p.closed {
		if i == maxClosed {
			parts = append(parts, fmt.Sprintf("and %d more", len(p.closed)-maxClosed))
			break
		}
		parts = append(parts, fmt.Sprintf("gate '%s' %s", c.Gate.NamespacedName, c.State))
	}
	return strings.Join(parts, ", ")
}

// ask notes what wakes the object, and returns what the gates say of it; nil when none stands over it.
func (l *loop[T]) ask(obj T, manual bool) *permit {
	gated, ok := Object(obj).(Gated)
	references := l.Step.References(obj)
	if !ok || l.Gates == nil || l.Sort == Ungated {
		l.Edges.Set(l.ref(obj), references)
		return nil
	}
	over := l.Gates.Over(l.ref(obj), gated)
	l.Edges.Set(l.ref(obj), append(references, over...)) // before the gates are asked, so that no change is missed
	if len(over) == 0 {
		return nil
	}
	p := &permit{over: over, closed: l.Gates.Closed(over, gated, manual)}
	p.manual = manual && len(p.closed) < len(l.Gates.Closed(over, gated, false))
	return p
}

// sentence says what the gates do to an object.
func (l *loop[T]) sentence(p *permit) string {
	if l.Sort == Sync {
		return fmt.Sprintf("Reconciliation is waiting approval, %s.", p.states())
	}
	return fmt.Sprintf("Reconciliation is blocked as %s.", p.states())
}

// explain completes an outcome that is held by what the gates said.
func (l *loop[T]) explain(o Outcome, p *permit) Outcome {
	if o.state == held {
		o.reason, o.message = p.closed[0].Reason, l.sentence(p)
	}
	return o
}

// tell writes into the status, and to the gates, what they said and what waits.
func (l *loop[T]) tell(obj T, p *permit, o Outcome) {
	gated, ok := Object(obj).(Gated)
	if !ok || l.Gates == nil {
		return
	}
	status, closed := gated.Held(), p.shut()
	*status = meta.Held{Pending: l.since(o.pending, status.Pending)}
	if p != nil {
		for _, g := range p.over[:min(len(p.over), maxGates)] {
			status.Gates = append(status.Gates, g.NamespacedName.String())
		}
	}
	switch {
	case l.Sort == Sync && p == nil:
		Unmark(obj, meta.ApprovedCondition)
	case l.Sort == Sync && len(closed) == 0:
		Mark(obj, meta.ApprovedCondition, metav1.ConditionTrue, meta.GateOpenReason, "Reconciliation is approved.")
	case l.Sort == Sync:
		Mark(obj, meta.ApprovedCondition, metav1.ConditionFalse, closed[0].Reason, l.sentence(p))
	case len(closed) == 0:
		Unmark(obj, meta.BlockedCondition)
	default:
		Mark(obj, meta.BlockedCondition, metav1.ConditionTrue, closed[0].Reason, l.sentence(p))
	}
	l.Gates.Wait(l.ref(obj), closed, status.Pending)
}

// gatesKnown is a source of no events, whose sync is that of the gates.
type gatesKnown struct{ Gatekeeper }

func (gatesKnown) Start(context.Context, queue) error { return nil }

// leave notes that the object waits at no gate.
func (l *loop[T]) leave(obj T) {
	if l.Gates != nil {
		l.Gates.Wait(l.ref(obj), nil, nil)
	}
}

// since notes when the change began to wait.
func (l *loop[T]) since(pending, before *meta.Pending) *meta.Pending {
	if pending == nil || pending.Revision == "" && pending.Message == "" {
		return nil // nothing waits
	}
	if before != nil && before.Revision == pending.Revision {
		pending.Since = before.Since
	}
	if pending.Since == nil {
		pending.Since = &metav1.Time{Time: l.Clock.Now()}
	}
	return pending
}

// emitGates records one event per transition of what the gates say.
func (l *loop[T]) emitGates(obj, before T, o Outcome) {
	metadata := o.metadata
	if o.pending != nil && o.pending.Revision != "" {
		metadata = map[string]string{event.Revision: o.pending.Revision}
	}
	for _, t := range []string{meta.ApprovedCondition, meta.BlockedCondition} {
		was := apimeta.FindStatusCondition(before.CommonStatus().Conditions, t)
		is := apimeta.FindStatusCondition(obj.CommonStatus().Conditions, t)
		switch {
		case is == nil && was != nil:
			l.Events.Emit(l.GroupKind.Group, obj,
				Event{Type: normal, Reason: meta.GateOpenReason, Message: "No gate holds the reconciliation.",
					Metadata: metadata})
		case is != nil && (was == nil || was.Status != is.Status || was.Message != is.Message):
			l.Events.Emit(l.GroupKind.Group, obj,
				Event{Type: normal, Reason: is.Reason, Message: is.Message, Metadata: metadata})
		}
	}
}

// underWay tells whether the pass before left work that goes on, by the spec as it is.
func underWay(obj Object) bool {
	c := apimeta.FindStatusCondition(obj.CommonStatus().Conditions, TypeReconciling)
	return c != nil && c.Status == metav1.ConditionTrue && c.Reason == ReasonProgressing &&
		c.ObservedGeneration == obj.GetGeneration()
}
