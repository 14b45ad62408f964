package reconcile

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/reconcile/decision"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

// Gates with spec.onFailure or spec.waves watch what they let through: the kernel records since when an object is Ready
// with it, and whether it became unhealthy, in a sealed part of its status. The gates get it, and decide.

// watch is how gates with spec.onFailure or spec.waves watch an object.
type watch struct {
	gates []types.NamespacedName // the ones with spec.onFailure or spec.waves
	soak  time.Duration          // the longest time of these gates
	// reverts reports whether one of them makes objects go back to what was healthy.
	reverts bool
}

// watchOf returns how gates watch what they let through.
func watchOf(gates []decision.Gate) (w watch) {
	for _, g := range gates {
		if soak, reverts, watches := g.Watches(); watches {
			w.gates = append(w.gates, g.Key)
			w.soak, w.reverts = max(w.soak, soak), w.reverts || reverts
		}
	}
	return w
}

// maxFailureText bounds the causes of failures, in bytes.
const maxFailureText = 512

// changeOf identifies what a pass would let through in addition to the revision; empty if the revision says it all.
func (p *Pass[T]) changeOf(revision string) string {
	switch a := p.admitted; {
	case p.Variant != "":
		return p.Variant
	case a == nil || a.Revision != revision:
		return ""
	case a.Generation == p.Object.GetGeneration():
		return a.Change
	default:
		return fmt.Sprintf("generation %d", p.Object.GetGeneration()) // another spec with the same revision
	}
}

// IsWatched reports whether a gate with spec.onFailure watches the revision, which the object has with its current
// spec.
func (p *Pass[T]) IsWatched(revision string) bool {
	return p.admission.isWatched() && p.WasAdmitted(revision) &&
		p.admitted.Generation == p.Object.GetGeneration()
}

// Continue reports whether a step may go on with a revision although gates hold it, since the object has it already and
// a gate watches what becomes of it.
func (p *Pass[T]) Continue(revision string) bool {
	if !p.IsWatched(revision) || p.changeOf(revision) != p.admitted.Change {
		return false
	}
	p.revision = revision
	return true
}

// WasHealthy reports whether the object was Ready with what gates let through before, and is not unhealthy since.
func (p *Pass[T]) WasHealthy() bool {
	return p.admitted != nil && p.admitted.ReadyAt != nil && p.admitted.Failure == nil
}

// MayCountAsHealthy reports whether an object whose status says that it is Ready may count as healthy until its health
// is known. Behind a gate that watches it, the status must be sealed.
func (p *Pass[T]) MayCountAsHealthy() bool { return !p.admission.isWatched() || p.WasHealthy() }

// MayGoBack reports whether a gate may make the object go back. What was healthy must be kept then.
func (p *Pass[T]) MayGoBack() bool { return p.admission != nil && p.admission.watch.reverts }

// Refused returns how a gate makes the object go back from what it has; nil if none does. An object goes back once: if
// it is unhealthy then, it stays.
func (p *Pass[T]) Refused() *meta.Reverted {
	if p.admitted == nil || p.wasReverted != nil || !p.admission.isWatched() {
		return nil
	}
	from := p.admitted
	for _, g := range p.admission.gates {
		if refused := g.Refusal(p.admission.object, from.Revision, from.Change); refused.Holds() {
			return &meta.Reverted{From: from.Revision, Change: from.Change, Gate: g.Key.String(),
				Reason: refused.Args.Message, By: refused.Args.By}
		}
	}
	return nil
}

// GoBack makes the pass move the object to an earlier revision, as [Pass.Refused] says. If that is nil, it continues
// what an earlier pass began.
func (p *Pass[T]) GoBack(to string, refused *meta.Reverted) {
	p.revision, p.reverted = to, p.wasReverted
	if refused != nil {
		p.reverted = refused
		p.reverted.To = to
	}
}

// SetPrevious records what the object was healthy with before and can go back to; nil if there is nothing.
func (p *Pass[T]) SetPrevious(previous *meta.Previous) {
	if gated, ok := Object(p.Object).(Gated); ok {
		gated.Held().Previous = previous
	}
}

// Reverted returns how the object went back; nil if it has the revision that the gates let through last.
func (p *Pass[T]) Reverted() *meta.Reverted {
	if p.revision == "" {
		return p.wasReverted
	}
	return p.reverted
}

func (a *admission) isWatched() bool { return a != nil && len(a.watch.gates) > 0 }

// shown returns the closed gates that the status of an object shows. An object that only is observed, and for which no
// change waits, does not show gates that are closed because of a failure: they hold nothing.
func (a *admission) shown(o Outcome) []decision.Decision {
	held := a.blocking()
	if o.watched && (o.pending == nil || o.pending.Revision == "") &&
		!slices.ContainsFunc(held, func(d decision.Decision) bool { return !d.Failed }) {
		return nil
	}
	return held
}

// Watched marks the outcome of an object that gates hold, and whose health was checked because one of them watches
// what it let through. held is the outcome of [Held], with the change that waits.
func (o Outcome) Watched(held Outcome) Outcome {
	o.watched, o.pending = true, held.pending
	return o
}

// Unhealthy marks a failed outcome as a failure of what was applied, and not, for example, of a source or a build.
func (o Outcome) Unhealthy() Outcome {
	o.unhealthy = o.state == failed || o.state == stalled
	return o
}

// sealAdmitted records in the status which revision the gates let through, and what became of it.
func (l *loop[T]) sealAdmitted(pass *Pass[T], o Outcome) {
	obj := pass.Object
	gated, ok := Object(obj).(Gated)
	if !ok || l.Seals == nil {
		return
	}
	var a *meta.Admitted
	switch before := pass.admitted; {
	case pass.revision != "":
		a = &meta.Admitted{Revision: pass.revision, Generation: obj.GetGeneration(), Decided: pass.decided}
		switch {
		case pass.reverted != nil && pass.Variant != "":
			a.Change = "before " + pass.reverted.Change
		case pass.reverted == nil && pass.admission.isWatched():
			a.Change = pass.changeOf(pass.revision)
		}
		if before != nil && before.Revision == a.Revision && before.Generation == a.Generation &&
			before.Change == a.Change {
			a.ReadyAt, a.Failure = before.ReadyAt, before.Failure
		}
	case o.watched && before != nil:
		a = before.DeepCopy()
	default:
		return
	}
	status := gated.Held()
	if !pass.admission.isWatched() {
		a.Change, a.ReadyAt, a.Failure = "", nil, nil
	} else {
		l.judge(a, pass.admission.watch.soak, o)
	}
	status.Reverted = pass.Reverted()
	if status.Reverted != nil && status.Reverted.Since.IsZero() {
		status.Reverted.Since = meta.TimeOf(l.Clock.Now().UTC().Truncate(time.Second))
	}
	a.Seal = l.Seals.Seal(sealedParts(l.GroupKind, obj, a, status.Reverted)...)
	status.Admitted = a
}

// judge records whether an object is Ready with a revision, or became unhealthy within a time after it was first Ready.
func (l *loop[T]) judge(a *meta.Admitted, soak time.Duration, o Outcome) {
	now := l.Clock.Now().UTC().Truncate(time.Second) // the precision of the API
	switch {
	case o.state == ready:
		a.Failure = nil
		if a.ReadyAt == nil {
			a.ReadyAt = &meta.Time{Time: now}
		}
	case o.unhealthy && a.Failure == nil && (a.ReadyAt == nil || now.Before(a.ReadyAt.Add(soak))):
		a.Failure = &meta.AdmittedFailure{At: meta.TimeOf(now), Message: excerpt.Bytes(o.message, maxFailureText)}
	}
}

// tellGates tells the gates that watch an object what it has.
func (l *loop[T]) tellGates(obj T, a *admission) {
	gated, ok := Object(obj).(Gated)
	if !ok || l.Gates == nil || l.GateBehavior != HoldsSync {
		return
	}
	var gates []types.NamespacedName
	if a != nil {
		gates = a.watch.gates
	}
	l.Gates.SetObserved(l.ref(obj), gates, gated.Held().DeepCopy())
}
