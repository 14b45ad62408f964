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
	// ClosedGates returns which of the gates may hold the object now: those that are closed, and those with rules.
	// manual: the pass was requested by annotation.
	ClosedGates(gates []Ref, obj Gated, manual bool) []ClosedGate
	// SetWaiting records the change of an object that waits at closed gates; a nil change clears the record.
	SetWaiting(ref Ref, at []ClosedGate, pending *meta.Pending)
	// Watches returns which of the gates watch what they let through.
	Watches(gates []Ref) Watch
	// SetObserved records what an object has, for the gates that watch it; nil if the object is deleted.
	SetObserved(ref Ref, watching []Ref, has *meta.Held)
	// WaitForSync returns once all existing gates are loaded. No pass starts before.
	WaitForSync(ctx context.Context) error
}

// ClosedGate is a gate that may hold an object.
type ClosedGate struct {
	Gate          Ref
	Reason        string                     // GateClosed, GateNotFound or AccessDenied
	State         string                     // for messages, such as "is closed"
	Allows        func(revision string) bool // reports whether the gate admits a revision; nil admits none
	StopsProgress bool                       // the gate also stops work that is in progress

	// Judge returns what the rules of the gate say about a change to a revision. A nil change is one that cannot be
	// computed. It is nil for a gate without rules.
	Judge func(revision string, change Change) Judgement
	Rule  string // that holds the change which was asked about; empty if none does
	Open  bool   // without its rules, the gate would be open

	ChecksRevisions bool     // the gate allows only revisions that other objects have been Ready at
	Promoted        []string // such revisions that it allows now

	// Turn returns why the object must wait until a gate that would admit a revision lets it through, as others take it
	// before; empty if it need not wait. It is nil if the gate has no waves for the object. Gates do not ask for a
	// revision that they let through before.
	Turn func(revision string) string

	// Failed reports whether the gate is closed only because a change that it let through became unhealthy.
	Failed bool
	// Refuses returns why the gate refuses a revision that became unhealthy, although it is open; nil if it does not.
	// change identifies what would be applied if the revision does not. It is nil if the gate refuses nothing.
	Refuses func(revision, change string) *Refusal
}

// Judgement is what the rules of a gate say about a change.
type Judgement struct {
	Rule string // that decides; empty if none applies
	Held string // why the gate holds the change, for messages; empty if it admits it
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
	gates    []Ref
	asked    []ClosedGate // those that may hold the object
	closed   []ClosedGate // those that hold it: before a revision is asked for, those that are closed
	admitted bool         // all gates allowed the revision that was asked for
	again    bool         // another pass must follow a Ready one
	manual   bool         // the gates would be closed if the pass had not been requested
	watch    Watch
	change   string // what is asked for, if the revision does not say it
	taken    string // the revision that the gates let through before; empty if that is not known
}

// newAdmission returns the admission of a pass by gates, of which some may hold the object.
func newAdmission(gates []Ref, asked []ClosedGate) *admission {
	return &admission{gates: gates, asked: asked,
		closed: slices.DeleteFunc(slices.Clone(asked), func(c ClosedGate) bool { return c.Open })}
}

// at sets what the gates are asked for in addition to a revision.
func (a *admission) at(change string) *admission {
	if a != nil {
		a.change = change
	}
	return a
}

// hasRules reports whether a gate decides by the content of a change.
func (a *admission) hasRules() bool {
	return a != nil && slices.ContainsFunc(a.asked, func(c ClosedGate) bool { return c.Judge != nil })
}

// blocking returns the gates that hold the pass; none if a revision was admitted.
func (a *admission) blocking() []ClosedGate {
	if a == nil || a.admitted {
		return nil
	}
	return a.closed
}

// admit asks the gates about a revision. Gates with rules decide by the change; a nil change cannot be computed.
func (a *admission) admit(revision string, change Change) error {
	return a.decide(revision, func(c ClosedGate) Judgement { return c.Judge(revision, change) })
}

// admitUnchanged asks the gates about a revision that changes nothing. Gates with rules have nothing to decide then.
func (a *admission) admitUnchanged(revision string) error {
	return a.decide(revision, func(ClosedGate) Judgement { return Judgement{} })
}

// refuse holds a revision at the gates with rules, as what it changes cannot be computed.
func (a *admission) refuse(revision string, err error) error {
	return a.decide(revision, func(ClosedGate) Judgement {
		return Judgement{Held: "has rules, but the change cannot be computed: " + err.Error()}
	})
}

// decide records which gates hold a revision. judge is what a gate with rules says.
func (a *admission) decide(revision string, judge func(ClosedGate) Judgement) error {
	if a == nil || len(a.asked) == 0 {
		return nil
	}
	var closed []ClosedGate
	for _, c := range a.asked {
		admits := c.Open || c.Allows != nil && c.Allows(revision)
		if c.Judge != nil {
			judgement := judge(c)
			if admits = judgement.Held == ""; !admits {
				c.State, c.Rule = judgement.Held, judgement.Rule
			}
		}
		if c.Refuses != nil {
			if r := c.Refuses(revision, a.change); r != nil {
				c.State, admits = r.State, false
			}
		}
		if admits && c.Turn != nil && revision != a.taken {
			c.State = c.Turn(revision)
			admits = c.State == ""
		}
		if !admits {
			closed = append(closed, c)
		}
	}
	if a.admitted = len(closed) == 0; a.admitted {
		return nil
	}
	a.closed = closed
	return &heldError{revision, a.states()}
}

// requiresAnotherPass reports whether another pass must follow at once because the gates now answer differently: work
// in progress has finished, or this pass was admitted only because it was requested.
func (a *admission) requiresAnotherPass(b GateBehavior, o Outcome) bool {
	return a != nil && (a.manual ||
		o.state == ready && (a.again || b == HoldsSync && !o.watched && len(a.blocking()) > 0))
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
	a := newAdmission(gates, l.Gates.ClosedGates(gates, gated, manual))
	a.watch = l.Gates.Watches(gates)
	a.manual = manual && len(a.asked) < len(l.Gates.ClosedGates(gates, gated, false))
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
	status, closed := gated.Held(), a.shown(o)
	previous := status.Previous
	*status = meta.Held{Pending: l.pendingSince(o.pending, status.Pending), Admitted: status.Admitted,
		Reverted: status.Reverted}
	if a != nil {
		status.Previous = previous
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
	if o.state == held || o.watched {
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
