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
)

// Gated is an object that gates can hold.
type Gated interface {
	Object
	GateRefs() []meta.GateReference
	Held() *meta.Held
}

// Gatekeeper answers questions about gates.
type Gatekeeper interface {
	// GatesFor lists the gates that apply to an object, by name or by selector, in order. The object must be enqueued
	// when one of them changes.
	GatesFor(ref Ref, obj Gated) []Ref
	// ClosedGates returns which of the gates are closed to the object now. manual: the pass was requested by
	// annotation.
	ClosedGates(gates []Ref, obj Gated, manual bool) []ClosedGate
	// SetWaiting records the change of an object that waits at closed gates; a nil change clears the record.
	SetWaiting(ref Ref, at []ClosedGate, pending *meta.Pending)
	// WaitForSync returns once all existing gates are loaded. No pass starts before.
	WaitForSync(ctx context.Context) error
}

// ClosedGate is a gate that is closed to an object.
type ClosedGate struct {
	Gate          Ref
	Reason        string                     // GateClosed, GateNotFound or AccessDenied
	State         string                     // for messages, such as "is closed"
	Allows        func(revision string) bool // reports whether the gate admits a revision; nil admits none
	StopsProgress bool                       // the gate also stops work that is in progress
}

// GateBehavior is what a closed gate does to the objects of a kind.
type GateBehavior int

// Values of GateBehavior.
const (
	Ungated      GateBehavior = iota // gates do not apply to the kind
	BlocksSource                     // the last artifact stays available; condition Blocked
	HoldsSync                        // work in progress is finished, then nothing is changed; condition Approved
)

// maxClosed bounds how many gates a message names.
const maxClosed = 3

// maxGates bounds how many gates a status lists. Gates beyond that still hold the object.
const maxGates = 100

// heldError is the error of a revision that gates do not admit.
type heldError struct{ revision, states string }

func (e *heldError) Error() string {
	return fmt.Sprintf("revision '%s' is waiting: %s", e.revision, e.states)
}

// IsHeld reports whether err is the error of [Pass.Admit].
func IsHeld(err error) bool { return errors.As(err, new(*heldError)) }

// admission is the answer of the gates to one pass. A nil admission admits everything.
type admission struct {
	gates    []Ref
	closed   []ClosedGate
	admitted bool // all closed gates allowed the revision that was asked for
	manual   bool // the gates would be closed if the pass had not been requested
}

// blocking returns the gates that hold the pass; none if a revision was admitted.
func (a *admission) blocking() []ClosedGate {
	if a == nil || a.admitted {
		return nil
	}
	return a.closed
}

func (a *admission) admit(revision string) error {
	if a == nil || len(a.closed) == 0 {
		return nil
	}
	a.admitted = !slices.ContainsFunc(a.closed, func(c ClosedGate) bool {
		return c.Allows == nil || !c.Allows(revision)
	})
	if a.admitted {
		return nil
	}
	return &heldError{revision, a.states()}
}

// requiresAnotherPass reports whether another pass must follow at once because the gates now answer differently: work
// in progress has finished, or this pass was admitted only because it was requested.
func (a *admission) requiresAnotherPass(b GateBehavior, o Outcome) bool {
	return a != nil && (a.manual || b == HoldsSync && o.state == ready && len(a.blocking()) > 0)
}

// allowsProgress reports whether the closed gates allow work in progress to finish.
func (a *admission) allowsProgress() bool {
	return a == nil || !slices.ContainsFunc(a.closed, func(c ClosedGate) bool { return c.StopsProgress })
}

// states names the closed gates, such as "gate 'apps/freeze' is closed".
func (a *admission) states() string {
	var parts []string
	for i, c := range a.closed {
		if i == maxClosed {
			parts = append(parts, fmt.Sprintf("and %d more", len(a.closed)-maxClosed))
			break
		}
		parts = append(parts, fmt.Sprintf("gate '%s' %s", c.Gate.NamespacedName, c.State))
	}
	return strings.Join(parts, ", ")
}

// admissionOf sets the edges of the object and asks its gates; nil if no gate applies to it.
func (l *loop[T]) admissionOf(obj T, manual bool) *admission {
	gated, ok := Object(obj).(Gated)
	references := l.Step.References(obj)
	if !ok || l.Gates == nil || l.GateBehavior == Ungated {
		l.Edges.Set(l.ref(obj), references)
		return nil
	}
	gates := l.Gates.GatesFor(l.ref(obj), gated)
	l.Edges.Set(l.ref(obj), append(references, gates...)) // before the gates are asked, so that no change is missed
	if len(gates) == 0 {
		return nil
	}
	a := &admission{gates: gates, closed: l.Gates.ClosedGates(gates, gated, manual)}
	a.manual = manual && len(a.closed) < len(l.Gates.ClosedGates(gates, gated, false))
	return a
}

// gateMessage is the message of the condition of an object that gates hold.
func (l *loop[T]) gateMessage(a *admission) string {
	if l.GateBehavior == HoldsSync {
		return fmt.Sprintf("Reconciliation is waiting approval, %s.", a.states())
	}
	return fmt.Sprintf("Reconciliation is blocked as %s.", a.states())
}

// reportGates writes the answer of the gates and the pending change to the status, and records the change at the gates.
func (l *loop[T]) reportGates(obj T, a *admission, o Outcome) {
	gated, ok := Object(obj).(Gated)
	if !ok || l.Gates == nil {
		return
	}
	status, closed := gated.Held(), a.blocking()
	*status = meta.Held{Pending: l.pendingSince(o.pending, status.Pending), Admitted: status.Admitted}
	if a != nil {
		for _, g := range a.gates[:min(len(a.gates), maxGates)] {
			status.Gates = append(status.Gates, g.NamespacedName.String())
		}
	}
	switch {
	case l.GateBehavior == HoldsSync && a == nil:
		Unmark(obj, meta.ApprovedCondition)
	case l.GateBehavior == HoldsSync && len(closed) == 0:
		Mark(obj, meta.ApprovedCondition, metav1.ConditionTrue, meta.GateOpenReason, "Reconciliation is approved.")
	case l.GateBehavior == HoldsSync:
		Mark(obj, meta.ApprovedCondition, metav1.ConditionFalse, closed[0].Reason, l.gateMessage(a))
	case len(closed) == 0:
		Unmark(obj, meta.BlockedCondition)
	default:
		Mark(obj, meta.BlockedCondition, metav1.ConditionTrue, closed[0].Reason, l.gateMessage(a))
	}
	if o.state == held {
		describeWaiting(obj, closed, status.Pending)
	}
	l.Gates.SetWaiting(l.ref(obj), closed, status.Pending)
}

// gateSync is a source without events that is synced once all gates are loaded.
type gateSync struct{ Gatekeeper }

func (gateSync) Start(context.Context, queue) error { return nil }

func (gateSync) String() string { return "gates" }

// clearWaiting records that the object does not wait at any gate.
func (l *loop[T]) clearWaiting(obj T) {
	if l.Gates != nil {
		l.Gates.SetWaiting(l.ref(obj), nil, nil)
	}
}

// pendingSince sets since when the change waits; nil if no change waits.
func (l *loop[T]) pendingSince(pending, before *meta.Pending) *meta.Pending {
	if pending == nil || pending.Revision == "" && pending.Message == "" {
		return nil
	}
	if before != nil && before.Revision == pending.Revision {
		pending.Since = before.Since
	}
	if pending.Since == nil {
		pending.Since = &meta.Time{Time: l.Clock.Now()}
	}
	return pending
}

// emitGates emits one event for each change of the conditions that gates set.
func (l *loop[T]) emitGates(obj, before T, o Outcome) {
	metadata := o.metadata
	if o.pending != nil && o.pending.Revision != "" {
		metadata = map[string]string{meta.EventRevisionKey: o.pending.Revision}
	}
	for _, t := range []string{meta.ApprovedCondition, meta.BlockedCondition} {
		was := apimeta.FindStatusCondition(before.CommonStatus().Conditions, t)
		is := apimeta.FindStatusCondition(obj.CommonStatus().Conditions, t)
		switch {
		case is == nil && was != nil:
			l.Events.Emit(l.GroupKind.Group, obj, Event{Type: normal, Reason: meta.GateOpenReason,
				Message: "No gate holds the reconciliation.", Metadata: metadata})
		case is != nil && (was == nil || was.Status != is.Status || was.Message != is.Message):
			l.Events.Emit(l.GroupKind.Group, obj, Event{Type: normal, Reason: is.Reason, Message: is.Message,
				Metadata: metadata})
		}
	}
}

// isInProgress reports whether the previous pass left unfinished work for the current spec.
func isInProgress(obj Object) bool {
	c := apimeta.FindStatusCondition(obj.CommonStatus().Conditions, TypeReconciling)
	return c != nil && c.Status == metav1.ConditionTrue && c.Reason == ReasonProgressing &&
		c.ObservedGeneration == obj.GetGeneration()
}
