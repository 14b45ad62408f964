package gate

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// calm is how long a gate is left alone after it was told that those who wait changed, so that ten thousand
// that come at once are told in a few words.
const calm = time.Second

// waiting is who waits at which gate.
type waiting struct {
	mu    sync.Mutex
	at    map[reconcile.Ref][]types.NamespacedName // by object
	queue map[types.NamespacedName]map[reconcile.Ref]*meta.Pending
	due   map[types.NamespacedName]bool // gates that will be told
}

// SetWaiting implements [reconcile.Gatekeeper].
func (b *Book) SetWaiting(ref reconcile.Ref, at []reconcile.ClosedGate, pending *meta.Pending) {
	w := &b.waiting
	pending = pending.DeepCopy()
	w.mu.Lock()
	defer w.mu.Unlock()
	var gates []types.NamespacedName
	for _, c := range at {
		if pending != nil {
			gates = append(gates, c.Gate.NamespacedName)
		}
	}
	for _, g := range w.at[ref] {
		if !slices.Contains(gates, g) {
			if delete(w.queue[g], ref); len(w.queue[g]) == 0 {
				delete(w.queue, g)
			}
			b.tell(g)
		}
	}
	if delete(w.at, ref); len(gates) == 0 {
		return
	}
	if w.at == nil {
		w.at, w.queue = map[reconcile.Ref][]types.NamespacedName{},
			map[types.NamespacedName]map[reconcile.Ref]*meta.Pending{}
	}
	w.at[ref] = gates
	for _, g := range gates {
		if w.queue[g] == nil {
			w.queue[g] = map[reconcile.Ref]*meta.Pending{}
		}
		was := w.queue[g][ref]
		w.queue[g][ref] = pending
		if was == nil || was.Revision != pending.Revision || counts(was) != counts(pending) {
			b.tell(g)
		}
	}
}

func counts(p *meta.Pending) [3]int32 { return [3]int32{p.Created, p.Configured, p.Deleted} }

// tell wakes a gate in a moment, since its status shows who waits.
func (b *Book) tell(gate types.NamespacedName) {
	w := &b.waiting
	if w.due[gate] {
		return
	}
	if w.due == nil {
		w.due = map[types.NamespacedName]bool{}
	}
	w.due[gate] = true
	time.AfterFunc(calm, func() {
		w.mu.Lock()
		delete(w.due, gate)
		w.mu.Unlock()
		b.Edges.Enqueue(reconcile.Ref{GroupKind: groupKind, NamespacedName: gate})
	})
}

// Waiting returns the objects that wait at a gate, those first that wait longest, most of them at most, and
// how many there are in all.
func (b *Book) Waiting(gate types.NamespacedName, most int) ([]gatingv1.WaitingObject, int64) {
	w := &b.waiting
	w.mu.Lock()
	defer w.mu.Unlock()
	refs := make([]reconcile.Ref, 0, len(w.queue[gate]))
	for ref := range w.queue[gate] {
		refs = append(refs, ref)
	}
	slices.SortFunc(refs, func(x, y reconcile.Ref) int {
		return cmp.Or(w.queue[gate][x].Since.Compare(w.queue[gate][y].Since.Time),
			cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name), cmp.Compare(x.Kind, y.Kind))
	})
	var out []gatingv1.WaitingObject
	for _, ref := range refs[:min(len(refs), most)] {
		waits := w.queue[gate][ref]
		o := gatingv1.WaitingObject{
			Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name,
			Revision: waits.Revision, Since: waits.Since,
		}
		if len(waits.Changes) > 0 {
			o.Created, o.Configured, o.Deleted = count(waits.Created), count(waits.Configured), count(waits.Deleted)
		}
		out = append(out, o)
	}
	return out, int64(len(refs))
}

func count(n int32) *int64 { return ptr.To(int64(n)) }
