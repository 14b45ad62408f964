package gate

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/gate/waves"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/reconcile/decision"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// maxWaveMessage bounds the messages of status.waves, in characters.
const maxWaveMessage = 600

// effects are what must be enqueued after a decision.
type effects struct {
	objects []reconcile.Ref
	gates   []types.NamespacedName
}

func (e *effects) merge(o effects) {
	e.objects, e.gates = append(e.objects, o.objects...), append(e.gates, o.gates...)
}

// apply enqueues what a decision concerns. The caller holds no lock.
func (x *Index) apply(e effects) {
	for _, ref := range e.objects {
		x.Edges.Enqueue(ref)
	}
	if len(e.gates) == 0 {
		return
	}
	x.waiting.mu.Lock()
	defer x.waiting.mu.Unlock()
	slices.SortFunc(e.gates, func(a, b types.NamespacedName) int { return cmp.Compare(a.String(), b.String()) })
	for _, key := range slices.Compact(e.gates) {
		x.enqueueGate(key)
	}
}

// target returns the revision that the objects move to: the one that was asked for first last. An older one is
// returned to only if no object moves to the current one any longer. It is empty if nothing moves.
func (r *rollout) target() string {
	wanted := map[string]bool{}
	for _, m := range r.members {
		if m.Wants != "" {
			wanted[m.Wants] = true
		}
	}
	for revision := range r.asked {
		if !wanted[revision] && revision != r.state.Revision {
			delete(r.asked, revision)
		}
	}
	target := r.state.Revision
	for revision := range wanted {
		if target == "" || !wanted[target] && revision != target && target == r.state.Revision ||
			r.asked[revision] > r.asked[target] {
			target = revision
		}
	}
	return target
}

// decide decides again about the objects of a source, once all are known. asking is the object that gets the answer at
// once. The caller holds the lock. The time is read while it does: one from before the last decision would look as if
// the clock had been set back, and begin the soak again.
func (x *Index) decide(g *wavedGate, r *rollout, asking reconcile.Ref) effects {
	target := r.target()
	if target == "" || len(g.waves) == 0 || !x.knowsMembers(g) {
		return effects{}
	}
	list := make([]waves.Member, 0, len(r.members))
	for _, m := range r.members {
		list = append(list, *m)
	}
	before := r.decision.Describe(g.waves)
	r.decision = waves.Decide(g.waves, list, target, r.state, x.Clock.Now(), maxGap(g.gate))
	r.state = r.decision.State
	var changed effects
	if r.decision.Describe(g.waves) != before {
		changed.gates = append(changed.gates, g.key)
	}
	for ref, m := range r.members {
		if m.Wants == "" || ref == asking {
			continue
		}
		if last, waits := r.answered[ref], r.waits(g.waves, m).Text(); waits != last {
			r.answered[ref] = waits
			changed.objects = append(changed.objects, ref)
		}
	}
	return changed
}

// waits returns why an object that asks for a revision must wait; empty if it may take it.
func (r *rollout) waits(list []waves.Wave, m *waves.Member) decision.Cause {
	if m.Wants == r.decision.Revision && r.decision.Admits(m) {
		return decision.Cause{}
	}
	return r.decision.Waits(list, m, m.Wants)
}

// TakeTurn implements [reconcile.Gatekeeper].
func (x *Index) TakeTurn(gate types.NamespacedName, ref reconcile.Ref, obj reconcile.Gated,
	revision string) decision.Cause {
	if x.SeparateGates {
		return decision.Cause{Code: decision.WaveElsewhere}
	}
	cause, isMember, changed := x.ask(gate, ref, revision)
	if !isMember { // its informer has not seen it yet
		x.ObserveMember(ref, obj)
		cause, _, changed = x.ask(gate, ref, revision)
	}
	x.apply(changed)
	return cause
}

// ask returns why an object must wait for a revision, and whether the object is known.
func (x *Index) ask(key types.NamespacedName, ref reconcile.Ref, revision string) (cause decision.Cause, isMember bool,
	changed effects) {
	w := &x.waves
	w.mu.Lock()
	defer w.mu.Unlock()
	unknown := decision.Cause{Code: decision.WaveUndecided}
	g := w.gates[key]
	if g == nil {
		return unknown, false, changed
	}
	r := g.sources[g.objects[ref]]
	if r == nil || r.members[ref] == nil {
		return unknown, false, changed
	}
	if problem := g.problem(); problem != nil {
		return decision.Cause{Code: decision.WavesInvalid, Args: decision.Args{Message: problem.Error()}}, true, changed
	}
	if _, ok := r.asked[revision]; !ok {
		r.sequence++
		r.asked[revision] = r.sequence
	}
	m := r.members[ref]
	m.Wants = revision
	changed = x.decide(g, r, ref)
	if cause = unknown; x.knowsMembers(g) {
		cause = r.waits(g.waves, m)
	}
	r.answered[ref] = cause.Text()
	return cause, true, changed
}

// problem returns a fault if the gate has more objects than waves can order.
func (g *wavedGate) problem() error {
	if n := len(g.objects); n > gatingv1.MaxWaveMembers {
		return fault.New(gatingv1.InvalidWavesReason, "spec.waves divides %d objects, but at most %d can be divided", n,
			gatingv1.MaxWaveMembers).WithHint("Use several gates, each for a part of the objects").Final()
	}
	if n := len(g.sources); n > gatingv1.MaxWaveSources {
		return fault.New(gatingv1.InvalidWavesReason, "spec.waves divides the objects of %d sources, but at most %d "+
			"are possible", n, gatingv1.MaxWaveSources).WithHint("Use several gates, each for a part of the sources").
			Final()
	}
	return nil
}

// WaveProgress returns how far the revisions behind a gate have come, for its status, and when the next soak ends.
func (x *Index) WaveProgress(g *gatingv1.Gate) (all []gatingv1.WaveProgress, next time.Time, err error) {
	w := &x.waves
	w.mu.Lock()
	var changed effects
	waved := w.gates[types.NamespacedName{Namespace: g.Namespace, Name: g.Name}]
	if waved != nil && waved.gate.UID == g.UID && len(waved.waves) > 0 {
		if !x.knowsMembers(waved) {
			defer w.mu.Unlock()
			next = x.Clock.Now().Add(time.Second)
			return slices.Clone(waved.gate.Status.Waves), next, nil // as it was before the start
		}
		if err = waved.problem(); err == nil {
			for source, r := range waved.sources {
				changed.merge(x.decide(waved, r, reconcile.Ref{}))
				if r.state.Revision != "" {
					all = append(all, waved.progress(source, r, g.Status.Failures))
					next = earliest(next, r.decision.Until)
				}
			}
		}
	}
	w.mu.Unlock()
	changed.gates = nil // this is the pass of the gate
	x.apply(changed)
	slices.SortFunc(all, func(a, b gatingv1.WaveProgress) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Source, b.Source))
	})
	return all, next, err
}

// progress returns how far a revision has come.
func (g *wavedGate) progress(source sourceKey, r *rollout, failures []gatingv1.FailedChange) gatingv1.WaveProgress {
	d := &r.decision
	p := gatingv1.WaveProgress{Kind: source.kind, Source: source.source, Revision: d.Revision,
		Passed: slices.Clone(d.Passed), Complete: d.IsComplete(g.waves), Digest: d.Digest,
		Message: excerpt.Line(d.Describe(g.waves), maxWaveMessage)}
	if !p.Complete {
		p.Wave = g.waves[d.Current].Name
	}
	if !d.Until.IsZero() {
		p.Since, p.ObservedAt, p.Until = &meta.Time{Time: d.Since}, &meta.Time{Time: d.Observed},
			&meta.Time{Time: d.Until}
	}
	for _, f := range failures {
		if f.Revision == d.Revision && f.Change == "" && !p.Complete {
			p.Message = excerpt.Line("revision '"+f.Revision+"' failed: "+f.Message, maxWaveMessage)
		}
	}
	return p
}
