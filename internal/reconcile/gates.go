package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/reconcile/decision"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

// Gated is an object that gates can hold.
type Gated interface {
	Object
	GateRefs() []meta.GateReference
	Held() *meta.Held
}

// Gatekeeper knows gates. Whether a gate holds a change is decided by [decision.Decide].
type Gatekeeper interface {
	// GatesFor lists the gates that apply to an object, by name or by selector, in order. The object must be enqueued
	// when one of them changes.
	GatesFor(ref Ref, obj Gated) []Ref
	// Snapshot returns the gates as an object sees them now.
	Snapshot(gates []Ref, obj Gated) []decision.Gate
	// Judge asks the rules of a gate about a change. A nil change is one of a kind whose changes are not computed.
	Judge(gate decision.Gate, obj Gated, change Change) decision.Ruling
	// TakeTurn asks the waves of a gate to let an object take a revision, and returns why the object must wait; empty
	// if it may go on. A gate that answers may enqueue other objects. It is not asked for a revision that it let
	// through before.
	TakeTurn(gate types.NamespacedName, ref Ref, obj Gated, revision string) decision.Cause
	// SetWaiting records the change of an object that gates hold, as its status says; nil clears the record.
	SetWaiting(ref Ref, has *meta.Held)
	// SetObserved records what an object has, for the gates that watch it; nil if the object is deleted.
	SetObserved(ref Ref, watching []types.NamespacedName, has *meta.Held)
	// WaitForSync returns once all existing gates are loaded. No pass starts before.
	WaitForSync(ctx context.Context) error
}

// Change is what an object would change. Gates with rules know its type.
type Change interface {
	// Digest identifies the content of the change.
	Digest() string
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
	keeper   Gatekeeper
	now      time.Time
	ref      Ref
	obj      Gated
	object   decision.Object
	all      []decision.Gate
	gates    []decision.Gate // the ones that are asked: all, unless the pass was requested
	held     []decision.Decision
	admitted bool // all gates allowed the revision that was asked for
	again    bool // another pass must follow a Ready one
	manual   bool // a gate is not asked because the pass was requested
	watch    watch
}

// newAdmission returns the admission of a pass by gates, before a revision is asked for.
func newAdmission(keeper Gatekeeper, refs []Ref, ref Ref, obj Gated, manual bool, now time.Time) *admission {
	a := &admission{keeper: keeper, now: now, ref: ref, obj: obj, all: keeper.Snapshot(refs, obj),
		object: decision.Object{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}}
	a.watch = watchOf(a.all)
	for _, g := range a.all {
		if manual && g.LetsManual() {
			a.manual = a.manual || g.MayHold(a.object, now)
			continue
		}
		a.gates = append(a.gates, g)
		if d := decision.Decide(g, a.object, decision.Change{}, now); d.Holds() {
			a.held = append(a.held, d)
		}
	}
	return a
}

// hasRules reports whether a gate decides by the content of a change.
func (a *admission) hasRules() bool {
	return a != nil && slices.ContainsFunc(a.gates, func(g decision.Gate) bool { return g.AsksRules(a.now) })
}

// blocking returns the decisions that hold the pass; none if a revision was admitted.
func (a *admission) blocking() []decision.Decision {
	if a == nil || a.admitted {
		return nil
	}
	return a.held
}

// judge asks the rules of a gate about a change.
func (a *admission) judge(g decision.Gate, change Change) decision.Ruling {
	return a.keeper.Judge(g, a.obj, change)
}

// decide asks the gates about a change, and returns an error if one holds it. judge is what a gate with rules says.
func (a *admission) decide(c decision.Change, judge func(decision.Gate) decision.Ruling) error {
	if a == nil {
		return nil
	}
	a.held = nil
	for _, g := range a.gates {
		if c.Rules = (decision.Ruling{}); g.AsksRules(a.now) {
			c.Rules = judge(g)
		}
		d := decision.Decide(g, a.object, c, a.now)
		if d.NeedsTurn {
			d.Cause = a.keeper.TakeTurn(g.Key, a.ref, a.obj, c.Revision)
		}
		if d.Holds() {
			a.held = append(a.held, d)
		}
	}
	if a.admitted = len(a.held) == 0; a.admitted {
		return nil
	}
	return &heldError{c.Revision, a.states()}
}

// requiresAnotherPass reports whether another pass must follow at once because the gates now answer differently: work
// in progress has finished, or this pass was admitted only because it was requested.
func (a *admission) requiresAnotherPass(b GateBehavior, o Outcome) bool {
	return a != nil && (a.manual ||
		o.state == ready && (a.again || b == HoldsSync && !o.watched && len(a.blocking()) > 0))
}

// allowsProgress reports whether the closed gates allow work in progress to finish.
func (a *admission) allowsProgress() bool {
	return a == nil || !slices.ContainsFunc(a.held, func(d decision.Decision) bool { return d.StopsProgress })
}

// states names the closed gates, such as "gate 'apps/freeze' is closed".
func (a *admission) states() string {
	var parts []string
	for i, d := range a.held {
		if i == maxClosed {
			parts = append(parts, fmt.Sprintf("and %d more", len(a.held)-maxClosed))
			break
		}
		parts = append(parts, fmt.Sprintf("gate '%s' %s", d.Gate, d.Text()))
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
	return newAdmission(l.Gates, gates, l.ref(obj), gated, manual, l.Clock.Now())
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
	status, holding := gated.Held(), a.shown(o)
	previous := status.Previous
	*status = meta.Held{Pending: l.pendingSince(o.pending, status.Pending), Admitted: status.Admitted,
		Reverted: status.Reverted}
	if a != nil {
		status.Previous = previous
		for _, g := range a.all[:min(len(a.all), maxGates)] {
			status.Gates = append(status.Gates, g.Key.String())
		}
	}
	switch {
	case l.GateBehavior == HoldsSync && a == nil:
		Unmark(obj, meta.ApprovedCondition)
	case l.GateBehavior == HoldsSync && len(holding) == 0:
		Mark(obj, meta.ApprovedCondition, metav1.ConditionTrue, meta.GateOpenReason, "Reconciliation is approved.")
	case l.GateBehavior == HoldsSync:
		Mark(obj, meta.ApprovedCondition, metav1.ConditionFalse, holding[0].Reason(), l.gateMessage(a))
	case len(holding) == 0:
		Unmark(obj, meta.BlockedCondition)
	default:
		Mark(obj, meta.BlockedCondition, metav1.ConditionTrue, holding[0].Reason(), l.gateMessage(a))
	}
	if status.Pending != nil {
		status.HeldBy = recordOf(holding)
	}
	if o.state == held || o.watched {
		describeWaiting(obj, status)
	}
	l.Gates.SetWaiting(l.ref(obj), status)
}

// maxHeldByMessage bounds why a gate holds a change in the status, in characters.
const maxHeldByMessage = 300

// recordOf returns what the status says about the gates that hold a change.
func recordOf(holding []decision.Decision) (all []meta.HoldingGate) {
	for _, d := range holding[:min(len(holding), maxGates)] {
		by := meta.HoldingGate{Gate: d.Gate.String(), Code: d.Code.Name, Rule: d.Args.Rule}
		if d.PerObject || d.Code == decision.RefusesForObject {
			by.Message = excerpt.Line(d.Text(), maxHeldByMessage)
		}
		all = append(all, by)
	}
	return all
}

// gateSync is a source without events that is synced once all gates are loaded.
type gateSync struct{ Gatekeeper }

func (gateSync) Start(context.Context, queue) error { return nil }

func (gateSync) String() string { return "gates" }

// clearWaiting records that the object does not wait at any gate.
func (l *loop[T]) clearWaiting(obj T) {
	if l.Gates != nil {
		l.Gates.SetWaiting(l.ref(obj), nil)
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
