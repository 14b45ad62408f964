package gate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// groupKind identifies the kind to the kernel.
var groupKind = schema.GroupKind{Group: gatingv1.GroupVersion.Group, Kind: gatingv1.GateKind}

// Book knows all gates, which objects they stand over, and who waits at them. It implements
// [reconcile.Gatekeeper] from memory alone: what it knows comes from the informers that [Book.Observe]
// attaches it to.
type Book struct {
	Edges *reconcile.Edges
	Clock clock.PassiveClock
	// a gate of another namespace may not be named; by its selector it still stands over what it selects
	NoCrossNamespaceRefs bool
	// Namespace returns the labels of a namespace, and whether they could be read. Where they cannot, a gate
	// that selects by them stands over the namespace.
	Namespace func(name string) (labels.Set, bool)
	// Wake queues the objects that a gate selects, whether it did so before or not.
	Wake func(selected func(ref reconcile.Ref, obj reconcile.Gated) bool)

	synced []func() bool // whether what the informers held at the start was noted

	mu        sync.RWMutex
	gates     map[types.NamespacedName]*entry
	selecting map[types.NamespacedName]*selection
	waiting   waiting
}

// entry is a gate, and what of it its objects act on.
type entry struct {
	gate   *gatingv1.Gate
	answer string
}

// answerOf is what of a gate decides what it lets through. Other parts of its status, such as who waits,
// change without anybody being woken.
func answerOf(g *gatingv1.Gate) string {
	return fmt.Sprint(apimeta.IsStatusConditionTrue(g.Status.Conditions, gatingv1.OpenedCondition),
		g.Status.ObservedGeneration == g.Generation,
		g.DeletionTimestamp.IsZero(), g.Status.ApprovedRevisions, g.Spec.AllowManual, g.Spec.Overrun)
}

// Put notes a gate as it is, and wakes whom that concerns.
func (b *Book) Put(g *gatingv1.Gate) {
	key := types.NamespacedName{Namespace: g.Namespace, Name: g.Name}
	is, selects := &entry{g, answerOf(g)}, newSelection(g)
	b.mu.Lock()
	was, selected := b.gates[key], b.selecting[key]
	if b.gates == nil {
		b.gates, b.selecting = map[types.NamespacedName]*entry{}, map[types.NamespacedName]*selection{}
	}
	b.gates[key] = is
	if delete(b.selecting, key); selects != nil {
		b.selecting[key] = selects
	}
	b.mu.Unlock()
	if was == nil || was.answer != is.answer || !selected.same(selects) {
		b.Edges.NotifyDependents(reconcile.Ref{GroupKind: groupKind, NamespacedName: key})
	}
	if !selected.same(selects) && selects != nil {
		b.Wake(func(ref reconcile.Ref, obj reconcile.Gated) bool { return selects.over(b, ref, obj) })
	}
}

// Drop notes that a gate is gone. Objects that name it stay held; those that it selected are let go.
func (b *Book) Drop(key types.NamespacedName) {
	b.mu.Lock()
	delete(b.gates, key)
	delete(b.selecting, key)
	b.mu.Unlock()
	b.Edges.NotifyDependents(reconcile.Ref{GroupKind: groupKind, NamespacedName: key})
}

// NamespaceMoved wakes the objects of a namespace whose labels changed, if a gate selects by them.
func (b *Book) NamespaceMoved(name string) {
	b.mu.RLock()
	concerned := false
	for _, s := range b.selecting {
		concerned = concerned || s.namespaces != nil
	}
	b.mu.RUnlock()
	if concerned {
		b.Wake(func(ref reconcile.Ref, _ reconcile.Gated) bool { return ref.Namespace == name })
	}
}

// GatesFor implements [reconcile.Gatekeeper].
func (b *Book) GatesFor(ref reconcile.Ref, obj reconcile.Gated) []reconcile.Ref {
	var over []reconcile.Ref
	for _, g := range obj.GateRefs() {
		over = append(over, reconcile.RefTo(groupKind, cmp.Or(g.Namespace, obj.GetNamespace()), g.Name))
	}
	b.mu.RLock()
	candidates := make([]*selection, 0, len(b.selecting))
	for _, s := range b.selecting {
		candidates = append(candidates, s)
	}
	b.mu.RUnlock()
	for _, s := range candidates {
		if s.over(b, ref, obj) {
			over = append(over, reconcile.Ref{GroupKind: groupKind, NamespacedName: s.gate})
		}
	}
	slices.SortFunc(over, func(a, b reconcile.Ref) int {
		return strings.Compare(a.NamespacedName.String(), b.NamespacedName.String())
	})
	return slices.Compact(over)
}

// ClosedGates implements [reconcile.Gatekeeper].
func (b *Book) ClosedGates(over []reconcile.Ref, obj reconcile.Gated, manual bool) []reconcile.ClosedGate {
	now := b.Clock.Now()
	var closed []reconcile.ClosedGate
	b.mu.RLock()
	defer b.mu.RUnlock()
	for _, ref := range over {
		c := reconcile.ClosedGate{Gate: ref, Reason: meta.GateClosedReason, State: "is closed"}
		e := b.gates[ref.NamespacedName]
		switch {
		case b.NoCrossNamespaceRefs && ref.Namespace != obj.GetNamespace() && names(obj, ref):
			c.Reason, c.State = meta.AccessDeniedReason,
				"is in another namespace: cross-namespace references have been blocked"
		case e == nil:
			c.Reason, c.State = meta.GateNotFoundReason, "is not found"
		case manual && e.gate.Spec.AllowManual:
			continue
		case len(e.gate.Status.ApprovedRevisions) == 0 && Passes(e.gate, "", now):
			continue
		default:
			c.StopsProgress = e.gate.Spec.Overrun == gatingv1.OverrunStop
			c.Allows = func(revision string) bool { return Passes(e.gate, revision, now) }
			if r := e.gate.Status.ApprovedRevisions; len(r) > 0 && c.Allows(r[0]) {
				c.State = fmt.Sprintf("lets only %s through", quoted(r))
			}
		}
		closed = append(closed, c)
	}
	return closed
}

// names tells whether the object names the gate itself.
func names(obj reconcile.Gated, gate reconcile.Ref) bool {
	return slices.ContainsFunc(obj.GateRefs(), func(g meta.GateReference) bool {
		return g.Name == gate.Name && cmp.Or(g.Namespace, obj.GetNamespace()) == gate.Namespace
	})
}

// maxQuoted bounds how many revisions a message names.
const maxQuoted = 3

func quoted(revisions []string) string {
	text := "revision '" + strings.Join(revisions[:min(len(revisions), maxQuoted)], "', '") + "'"
	if more := len(revisions) - maxQuoted; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
