package gate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/credentials/seal"
	"github.com/sluice-gitops/sluice/internal/gate/ruling"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/reconcile/decision"
)

// Index is an in-memory index of all gates, of the objects that they select, and of the objects that wait for them. It
// implements [reconcile.Gatekeeper] without requests: informers attached by [Index.Observe] keep it up to date. It is
// safe for concurrent use.
type Index struct {
	Edges *reconcile.Edges
	Clock clock.PassiveClock
	Seals *seal.Key // of the status of gates
	// NoCrossNamespaceRefs denies references to gates of other namespaces. A selector then selects in the namespace of
	// its gate only, even if the admission policy allowed more, except that of a gate in PlatformNamespace.
	NoCrossNamespaceRefs bool
	PlatformNamespace    string // of the process
	// VerifySelection returns nil if the author of a gate has the right to select objects of other namespaces.
	VerifySelection func(ctx context.Context, g *gatingv1.Gate) error
	// Namespace returns the labels of a namespace, and whether they could be read. If not, a gate that selects by
	// namespace labels selects the namespace.
	Namespace func(name string) (labels.Set, bool)
	// EnqueueSelected enqueues all objects for which selected returns true.
	EnqueueSelected func(selected func(ref reconcile.Ref, obj reconcile.Gated) bool)

	synced []func() bool // report whether the initial lists of the informers were processed

	mu        sync.RWMutex
	gates     map[types.NamespacedName]*entry
	rules     ruling.Cache
	selectors map[types.NamespacedName]*selector
	waiting   waiting

	Observed Observed // what objects have that gates with spec.onFailure watch

	// SeparateGates: the controller of gates runs in another process, so that waves are not ordered.
	SeparateGates bool
	waves         waveIndex
}

// entry is a gate in the index.
type entry struct {
	gate     *gatingv1.Gate // with an empty status if no controller wrote its status
	state    string         // see stateOf
	sequence int64          // the highest one of the seals of the gate
}

// newEntry returns the entry of a gate. A status without a valid seal, and one that is older than the last one, is not
// used: the gate is closed until a controller has written its status.
func (x *Index) newEntry(g *gatingv1.Gate, previous *entry) *entry {
	e := &entry{gate: g}
	if previous != nil && previous.gate.UID == g.UID {
		e.sequence = previous.sequence
	}
	if isSealed(x.Seals, g) && g.Status.Seal.Sequence >= e.sequence {
		e.sequence = g.Status.Seal.Sequence
	} else {
		e.gate = g.DeepCopy()
		e.gate.Status = gatingv1.GateStatus{}
	}
	e.state = stateOf(e.gate)
	return e
}

// compiled returns the compiled rules of a gate, or why they are invalid.
func (x *Index) compiled(g *gatingv1.Gate) (*ruling.Rules, error) {
	return x.rules.Compile(ruling.Key{Namespace: g.Namespace, Name: g.Name, UID: g.UID, Generation: g.Generation},
		g.Spec.Rules)
}

// CheckRules returns why the rules of a gate are invalid.
func (x *Index) CheckRules(g *gatingv1.Gate) error {
	_, err := x.compiled(g)
	return err
}

// stateOf returns a string that changes when the decisions of a gate may change. Changes to the rest of its
// status, such as the list of waiting objects, do not enqueue its objects.
func stateOf(g *gatingv1.Gate) string {
	soaks, _ := decision.Soaks(g)
	return fmt.Sprint(apimeta.IsStatusConditionTrue(g.Status.Conditions, gatingv1.OpenedCondition),
		g.Status.ObservedGeneration == g.Generation,
		g.DeletionTimestamp.IsZero(), g.Status.ApprovedRevisions, g.Spec.AllowManual, g.Spec.Overrun,
		decision.IsOverridden(g), changesOf(g.Status.ApprovedChanges), g.Spec.OnFailure, g.GetSoak(),
		decision.IsFailureHold(g), failuresOf(g.Status.Failures), soaks, len(g.Spec.Waves) > 0)
}

// Put adds or replaces a gate, and enqueues the objects that the change concerns.
func (x *Index) Put(g *gatingv1.Gate) {
	key := types.NamespacedName{Namespace: g.Namespace, Name: g.Name}
	selects := newSelector(g)
	if selects != nil {
		x.mu.RLock()
		before := x.selectors[key]
		x.mu.RUnlock()
		selects.confined, _ = x.confines(context.Background(), g, before) // the controller reports the error
	}
	x.mu.Lock()
	previous, selected := x.gates[key], x.selectors[key]
	current := x.newEntry(g, previous)
	if x.gates == nil {
		x.gates, x.selectors = map[types.NamespacedName]*entry{}, map[types.NamespacedName]*selector{}
	}
	x.gates[key] = current
	if delete(x.selectors, key); selects != nil {
		x.selectors[key] = selects
	}
	x.mu.Unlock()
	if previous == nil || previous.state != current.state || !selected.equal(selects) {
		x.Edges.NotifyDependents(reconcile.Ref{GroupKind: GroupKind, NamespacedName: key})
	}
	if !selected.equal(selects) && selects != nil {
		x.EnqueueSelected(func(ref reconcile.Ref, obj reconcile.Gated) bool { return selects.matches(x, ref, obj) })
	}
	x.putWaves(current.gate, !selected.equal(selects))
}

// Delete removes a gate. Objects that refer to it by name stay held; objects that it selected are released.
func (x *Index) Delete(key types.NamespacedName) {
	x.mu.Lock()
	delete(x.gates, key)
	delete(x.selectors, key)
	x.mu.Unlock()
	x.dropWaves(key)
	x.Edges.NotifyDependents(reconcile.Ref{GroupKind: GroupKind, NamespacedName: key})
}

// NamespaceChanged enqueues the objects of a namespace whose labels changed, if a gate selects by namespace labels.
func (x *Index) NamespaceChanged(name string) {
	x.mu.RLock()
	byLabels := false
	for _, s := range x.selectors {
		byLabels = byLabels || s.namespaces != nil
	}
	x.mu.RUnlock()
	if byLabels {
		if x.waves.count.Load() > 0 {
			x.observeAll()
		}
		x.EnqueueSelected(func(ref reconcile.Ref, _ reconcile.Gated) bool { return ref.Namespace == name })
	}
}

// HasGates reports whether any gate exists.
func (x *Index) HasGates() bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return len(x.gates) > 0
}

// GatesFor implements [reconcile.Gatekeeper].
func (x *Index) GatesFor(ref reconcile.Ref, obj reconcile.Gated) []reconcile.Ref {
	var over []reconcile.Ref
	for _, g := range obj.GateRefs() {
		over = append(over, reconcile.RefTo(GroupKind, cmp.Or(g.Namespace, obj.GetNamespace()), g.Name))
	}
	x.mu.RLock()
	selectors := make([]*selector, 0, len(x.selectors))
	for _, s := range x.selectors {
		selectors = append(selectors, s)
	}
	x.mu.RUnlock()
	for _, s := range selectors {
		if s.matches(x, ref, obj) {
			over = append(over, reconcile.Ref{GroupKind: GroupKind, NamespacedName: s.gate})
		}
	}
	slices.SortFunc(over, func(a, b reconcile.Ref) int {
		return strings.Compare(a.NamespacedName.String(), b.NamespacedName.String())
	})
	return slices.Compact(over)
}

// Snapshot implements [reconcile.Gatekeeper].
func (x *Index) Snapshot(over []reconcile.Ref, obj reconcile.Gated) []decision.Gate {
	x.mu.RLock()
	defer x.mu.RUnlock()
	gates := make([]decision.Gate, 0, len(over))
	for _, ref := range over {
		g, e := decision.Gate{Key: ref.NamespacedName}, x.gates[ref.NamespacedName]
		if e != nil {
			g.Gate = e.gate
		} else {
			g.Blocked = decision.NotFound
		}
		if x.NoCrossNamespaceRefs && ref.Namespace != obj.GetNamespace() && refersTo(obj, ref) {
			g.Blocked = decision.OtherNamespace
		}
		gates = append(gates, g)
	}
	return gates
}

// refersTo reports whether the object refers to the gate by name.
func refersTo(obj reconcile.Gated, gate reconcile.Ref) bool {
	return slices.ContainsFunc(obj.GateRefs(), func(g meta.GateReference) bool {
		return g.Name == gate.Name && cmp.Or(g.Namespace, obj.GetNamespace()) == gate.Namespace
	})
}
