package gate

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// enqueueDelay is how often a gate is enqueued at most because its waiting objects change, so that 10,000 objects that
// begin to wait at once cause few passes.
const enqueueDelay = time.Second

// waiting is the objects that wait for gates.
type waiting struct {
	mu       sync.Mutex
	gates    map[reconcile.Ref][]types.NamespacedName // by object
	objects  map[types.NamespacedName]map[reconcile.Ref]*waitingChange
	enqueued map[types.NamespacedName]bool // gates with a running delay, and whether something has changed since
}

// waitingChange is what waits for one gate.
type waitingChange struct {
	*meta.Pending
	rule, message string // of the gate, that hold it; empty if neither rules nor waves do
}

// equal reports whether the status of a gate lists the same.
func (w *waitingChange) equal(o *waitingChange) bool {
	return w != nil && w.Revision == o.Revision && counts(w.Pending) == counts(o.Pending) && w.Change == o.Change &&
		w.rule == o.rule && w.message == o.message
}

// SetWaiting implements [reconcile.Gatekeeper].
func (x *Index) SetWaiting(ref reconcile.Ref, has *meta.Held) {
	w := &x.waiting
	has = has.DeepCopy()
	w.mu.Lock()
	defer w.mu.Unlock()
	var gates []types.NamespacedName
	changes := map[types.NamespacedName]*waitingChange{}
	if has != nil && has.Pending != nil {
		for _, by := range has.HeldBy {
			namespace, name, _ := strings.Cut(by.Gate, "/")
			key := types.NamespacedName{Namespace: namespace, Name: name}
			gates = append(gates, key)
			changes[key] = &waitingChange{Pending: has.Pending, rule: by.Rule, message: by.Message}
		}
	}
	for _, g := range w.gates[ref] {
		if !slices.Contains(gates, g) {
			if delete(w.objects[g], ref); len(w.objects[g]) == 0 {
				delete(w.objects, g)
			}
			x.enqueueGate(g)
		}
	}
	if delete(w.gates, ref); len(gates) == 0 {
		return
	}
	if w.gates == nil {
		w.gates, w.objects = map[reconcile.Ref][]types.NamespacedName{},
			map[types.NamespacedName]map[reconcile.Ref]*waitingChange{}
	}
	w.gates[ref] = gates
	for _, g := range gates {
		if w.objects[g] == nil {
			w.objects[g] = map[reconcile.Ref]*waitingChange{}
		}
		previous := w.objects[g][ref]
		w.objects[g][ref] = changes[g]
		if !previous.equal(changes[g]) {
			x.enqueueGate(g)
		}
	}
}

func counts(p *meta.Pending) [3]int32 { return [3]int32{p.Created, p.Configured, p.Deleted} }

// enqueueGate enqueues a gate, as its status lists the waiting objects: at once, and after further changes again when
// the delay is over.
func (x *Index) enqueueGate(gate types.NamespacedName) {
	w := &x.waiting
	if _, delayed := w.enqueued[gate]; delayed {
		w.enqueued[gate] = true
		return
	}
	if w.enqueued == nil {
		w.enqueued = map[types.NamespacedName]bool{}
	}
	w.enqueued[gate] = false
	x.Edges.Enqueue(reconcile.Ref{GroupKind: GroupKind, NamespacedName: gate})
	guard.AfterFunc("enqueuing a gate", enqueueDelay, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		changed := w.enqueued[gate]
		if delete(w.enqueued, gate); changed {
			x.enqueueGate(gate)
		}
	})
}

// Waiting returns the objects that wait for a gate, at most limit, those that wait longest first, and how
// many there are in total.
func (x *Index) Waiting(gate types.NamespacedName, limit int) ([]gatingv1.WaitingObject, int64) {
	w := &x.waiting
	w.mu.Lock()
	defer w.mu.Unlock()
	refs := make([]reconcile.Ref, 0, len(w.objects[gate]))
	for ref := range w.objects[gate] {
		refs = append(refs, ref)
	}
	slices.SortFunc(refs, func(a, b reconcile.Ref) int {
		return cmp.Or(w.objects[gate][a].Since.Compare(w.objects[gate][b].Since.Time),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
	})
	var out []gatingv1.WaitingObject
	for _, ref := range refs[:min(len(refs), limit)] {
		pending := w.objects[gate][ref]
		o := gatingv1.WaitingObject{
			Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name,
			Revision: pending.Revision, Since: pending.Since, Risk: pending.Risk, Change: pending.Change,
			Rule: pending.rule, Message: pending.message,
		}
		if len(pending.Changes) > 0 {
			o.Created, o.Configured, o.Deleted = count(pending.Created), count(pending.Configured),
				count(pending.Deleted)
		}
		out = append(out, o)
	}
	return out, int64(len(refs))
}

func count(n int32) *int64 { return ptr.To(int64(n)) }
