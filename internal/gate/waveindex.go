package gate

import (
	"cmp"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/gate/waves"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// waveIndex is the gates with waves and their objects. Informers keep it up to date, object by object.
type waveIndex struct {
	count    atomic.Int32 // of gates with waves; without any, objects cost nothing
	loaded   atomic.Bool  // the informers have delivered all objects that existed at the start
	events   sync.Mutex   // serializes events of objects with lists of objects, so that no event is lost
	mu       sync.Mutex
	gates    map[types.NamespacedName]*wavedGate
	byObject map[reconcile.Ref][]types.NamespacedName
}

// wavedGate is a gate with waves.
type wavedGate struct {
	key       types.NamespacedName
	gate      *gatingv1.Gate // as last put into the index
	waves     []waves.Wave
	selectors []labels.Selector
	sources   map[sourceKey]*rollout
	objects   map[reconcile.Ref]sourceKey
	// isListed is set while all objects are known. With a part of them, a wave could seem to be empty.
	isListed bool
}

// rollout is the objects of one source, and the revision that they move to.
type rollout struct {
	members  map[reconcile.Ref]*waves.Member
	state    waves.State
	decision waves.Decision
	answered map[reconcile.Ref]string // what objects that wait got as the last answer
	asked    map[string]int64         // wanted revisions, in the order in which they were asked for first
	sequence int64
}

// putWaves updates the waves of a gate. The objects are listed if the waves, or what the gate selects, changed.
func (x *Index) putWaves(g *gatingv1.Gate, selectionChanged bool) {
	w := &x.waves
	key := types.NamespacedName{Namespace: g.Namespace, Name: g.Name}
	if len(g.Spec.Waves) == 0 {
		x.dropWaves(key)
		return
	}
	w.mu.Lock()
	before := w.gates[key]
	if before != nil && before.gate.UID == g.UID && reflect.DeepEqual(before.gate.Spec.Waves, g.Spec.Waves) {
		before.gate = g
		before.isListed = before.isListed && !selectionChanged
		w.mu.Unlock()
		if selectionChanged {
			x.listMembers(before)
		}
		return
	}
	current := &wavedGate{key: key, gate: g, sources: map[sourceKey]*rollout{},
		objects: map[reconcile.Ref]sourceKey{}}
	current.waves, current.selectors, _ = wavesOf(g) // the controller reports the error, and closes the gate
	if w.gates == nil {
		w.gates, w.byObject = map[types.NamespacedName]*wavedGate{}, map[reconcile.Ref][]types.NamespacedName{}
	}
	if w.gates[key] = current; before == nil {
		w.count.Add(1)
	} else {
		w.forget(key, before)
	}
	w.mu.Unlock()
	x.listMembers(current)
}

// listMembers observes all objects, as a gate has changed, and then decides about those of the gate.
func (x *Index) listMembers(g *wavedGate) {
	x.observeAll()
	w := &x.waves
	w.mu.Lock()
	var changed effects
	if g.isListed = true; w.gates[g.key] == g {
		for _, r := range g.sources {
			changed.merge(x.decide(g, r, reconcile.Ref{}))
		}
	}
	w.mu.Unlock()
	x.apply(changed)
}

// knowsMembers reports whether all objects of a gate are known: those that existed at the start, and those that the
// gate selected when it changed. The caller holds the lock.
func (x *Index) knowsMembers(g *wavedGate) bool {
	if w := &x.waves; !w.loaded.Load() {
		w.loaded.Store(!slices.ContainsFunc(x.synced, func(synced func() bool) bool { return !synced() }))
	}
	return g.isListed && x.waves.loaded.Load()
}

// dropWaves removes a gate that is deleted or has no waves any longer.
func (x *Index) dropWaves(key types.NamespacedName) {
	w := &x.waves
	w.mu.Lock()
	defer w.mu.Unlock()
	if g := w.gates[key]; g != nil {
		w.forget(key, g)
		delete(w.gates, key)
		w.count.Add(-1)
	}
}

// forget removes the objects of a gate from the map by object. The caller holds the lock.
func (w *waveIndex) forget(key types.NamespacedName, g *wavedGate) {
	for ref := range g.objects {
		w.byObject[ref] = slices.DeleteFunc(w.byObject[ref], func(k types.NamespacedName) bool { return k == key })
		if len(w.byObject[ref]) == 0 {
			delete(w.byObject, ref)
		}
	}
}

// observeAll observes all objects.
func (x *Index) observeAll() {
	x.waves.events.Lock()
	defer x.waves.events.Unlock()
	x.EnqueueSelected(func(ref reconcile.Ref, obj reconcile.Gated) bool {
		x.setMember(ref, obj)
		return false
	})
}

// ObserveMember updates the waves that an object belongs to. A nil object is deleted.
func (x *Index) ObserveMember(ref reconcile.Ref, obj reconcile.Gated) {
	if x.waves.count.Load() == 0 {
		return
	}
	x.waves.events.Lock()
	defer x.waves.events.Unlock()
	x.setMember(ref, obj)
}

// setMember updates the waves that an object belongs to. The caller serializes the events of objects.
func (x *Index) setMember(ref reconcile.Ref, obj reconcile.Gated) {
	var gates []types.NamespacedName
	var source sourceKey
	var member waves.Member
	if obj != nil && obj.GetDeletionTimestamp().IsZero() {
		var isDivided bool
		if source, isDivided = sourceOf(obj); !isDivided {
			return
		}
		gates, member = x.gatesHolding(ref, obj), x.memberOf(ref, obj)
	}
	w := &x.waves
	w.mu.Lock()
	var changed effects
	for _, key := range w.byObject[ref] {
		if g := w.gates[key]; g != nil && !slices.Contains(gates, key) {
			changed.merge(x.removeMember(g, ref))
		}
	}
	delete(w.byObject, ref)
	for _, key := range gates {
		if g := w.gates[key]; g != nil {
			w.byObject[ref] = append(w.byObject[ref], key)
			m := member
			m.Wave, m.Problem = waveOf(g.selectors, obj), cmp.Or(m.Problem, waitsAtOthers(obj, key))
			changed.merge(x.putMember(g, ref, source, m))
		}
	}
	w.mu.Unlock()
	x.apply(changed)
}

// gatesHolding returns the gates that hold an object. An object that names a gate of another namespace, although such
// references are blocked, is not behind that gate: it is held in any case.
func (x *Index) gatesHolding(ref reconcile.Ref, obj reconcile.Gated) (gates []types.NamespacedName) {
	for _, g := range x.GatesFor(ref, obj) {
		if !x.NoCrossNamespaceRefs || g.Namespace == obj.GetNamespace() || !refersTo(obj, g) {
			gates = append(gates, g.NamespacedName)
		}
	}
	return gates
}

// putMember adds or replaces an object of a gate. The caller holds the lock.
func (x *Index) putMember(g *wavedGate, ref reconcile.Ref, source sourceKey, m waves.Member) effects {
	var changed effects
	if before, ok := g.objects[ref]; ok && before != source {
		changed.merge(x.removeMember(g, ref))
	}
	r := g.sources[source]
	if r == nil {
		r = &rollout{members: map[reconcile.Ref]*waves.Member{}, answered: map[reconcile.Ref]string{},
			asked: map[string]int64{}, state: recorded(g.gate, source, x.Clock.Now())}
		g.sources[source] = r
	}
	if before := r.members[ref]; before != nil {
		if m.Wants = before.Wants; m.Wants == m.Has || m.IsSuspended {
			m.Wants = ""
		}
		if *before == m {
			return changed
		}
	}
	g.objects[ref], r.members[ref] = source, &m
	changed.merge(x.decide(g, r, reconcile.Ref{}))
	return changed
}

// removeMember removes an object of a gate. The caller holds the lock.
func (x *Index) removeMember(g *wavedGate, ref reconcile.Ref) effects {
	source, ok := g.objects[ref]
	if !ok {
		return effects{}
	}
	r := g.sources[source]
	delete(g.objects, ref)
	delete(r.members, ref)
	delete(r.answered, ref)
	if len(r.members) == 0 {
		delete(g.sources, source)
		return effects{gates: []types.NamespacedName{g.key}}
	}
	return x.decide(g, r, reconcile.Ref{})
}

// settlingTime is how long after a restart no wave follows another one: objects that were Ready before count as healthy
// until their health is known again.
const settlingTime = 20 * time.Second

// recorded returns what the sealed status of a gate says about a roll-out, for the current spec.
func recorded(g *gatingv1.Gate, source sourceKey, now time.Time) waves.State {
	if g.Status.ObservedGeneration != g.Generation {
		return waves.State{}
	}
	for _, p := range g.Status.Waves {
		if (sourceKey{kind: p.Kind, source: p.Source}) == source {
			s := waves.State{Revision: p.Revision, Passed: p.Passed, Digest: p.Digest,
				Settles: now.Add(settlingTime)}
			if p.Since != nil && p.ObservedAt != nil {
				s.Since, s.Observed = p.Since.Time, p.ObservedAt.Time
			}
			return s
		}
	}
	return waves.State{}
}

// maxGap returns for how long the objects of a gate may be unobserved during a soak.
func maxGap(g *gatingv1.Gate) time.Duration {
	return 2*g.Schedule().Interval + defaultCheckTimeout + time.Second
}
