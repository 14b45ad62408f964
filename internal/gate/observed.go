package gate

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// Observed is what the objects behind gates with spec.onFailure have, as far as this process has reconciled them. It is
// safe for concurrent use.
type Observed struct {
	mu    sync.Mutex
	gates map[reconcile.Ref][]types.NamespacedName // by object; also of objects that no gate watches
	has   map[types.NamespacedName]map[reconcile.Ref]*meta.Held
}

// set records what an object has, and returns the gates for which it matters: those for which its failure or its
// revision changed, or which did not know the object.
func (o *Observed) set(ref reconcile.Ref, watching []reconcile.Ref, has *meta.Held) (changed []types.NamespacedName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.gates == nil {
		o.gates, o.has = map[reconcile.Ref][]types.NamespacedName{},
			map[types.NamespacedName]map[reconcile.Ref]*meta.Held{}
	}
	var gates []types.NamespacedName
	for _, w := range watching {
		gates = append(gates, w.NamespacedName)
	}
	for _, g := range o.gates[ref] {
		if !slices.Contains(gates, g) {
			if delete(o.has[g], ref); len(o.has[g]) == 0 {
				delete(o.has, g)
			}
			changed = append(changed, g)
		}
	}
	if o.gates[ref] = gates; has == nil {
		delete(o.gates, ref)
		return changed
	}
	for _, g := range gates {
		if o.has[g] == nil {
			o.has[g] = map[reconcile.Ref]*meta.Held{}
		}
		before := o.has[g][ref]
		if o.has[g][ref] = has; before == nil || !meta.Equal(before.Admitted, has.Admitted) ||
			!meta.Equal(before.Reverted, has.Reverted) {
			changed = append(changed, g)
		}
	}
	return changed
}

// failing lists the objects behind a gate that became unhealthy within the soak time of a gate, those that failed first
// first. Objects that went back are not in it.
func (o *Observed) failing(gate types.NamespacedName, soak time.Duration) (refs []reconcile.Ref,
	has map[reconcile.Ref]*meta.Held) {
	o.mu.Lock()
	defer o.mu.Unlock()
	has = map[reconcile.Ref]*meta.Held{}
	for ref, h := range o.has[gate] {
		if isFailing(h, soak) && h.Reverted == nil {
			refs, has[ref] = append(refs, ref), h
		}
	}
	slices.SortFunc(refs, func(a, b reconcile.Ref) int {
		return cmp.Or(has[a].Admitted.Failure.At.Compare(has[b].Admitted.Failure.At.Time),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
	})
	return refs, has
}

// isFailing reports whether an object became unhealthy within a time after it was first Ready.
func isFailing(h *meta.Held, soak time.Duration) bool {
	a := h.Admitted
	return a != nil && a.Failure != nil && (a.ReadyAt == nil || a.Failure.At.Before(a.ReadyAt.Add(soak)))
}

// reverted lists what objects behind a gate went back from because of it.
func (o *Observed) reverted(gate types.NamespacedName) []gatingv1.FailedChange {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []gatingv1.FailedChange
	for ref, h := range o.has[gate] {
		if r := h.Reverted; r != nil && r.Gate == gate.String() {
			f := gatingv1.FailedChange{Revision: r.From, Change: r.Change, Since: r.Since, Message: r.Reason,
				RefusedBy: r.By}
			if r.By != "" {
				f.Objects, f.ResolvedAt = []gatingv1.FailedObject{failedObject(ref)}, &r.Since
			}
			all = append(all, f)
		}
	}
	return all
}

// admitted returns what the gates let through for an object behind a gate, and whether it is known.
func (o *Observed) admitted(gate types.NamespacedName, object string) (ref reconcile.Ref, has *meta.Held) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for ref, h := range o.has[gate] {
		if nameOf(ref) == object {
			return ref, h
		}
	}
	return reconcile.Ref{}, nil
}

// nameOf names an object as requests do.
func nameOf(ref reconcile.Ref) string { return ref.Kind + "/" + ref.NamespacedName.String() }

func failedObject(ref reconcile.Ref) gatingv1.FailedObject {
	return gatingv1.FailedObject{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}
}

// objectState is what is known of an object that failed.
type objectState int

const (
	unknownState   objectState = iota // this process has not reconciled the object
	failingState                      // it is still unhealthy
	recoveredState                    // it is healthy, or the gate does not apply to it
)

// of returns what is known of an object that failed behind a gate.
func (o *Observed) of(gate types.NamespacedName, f gatingv1.FailedObject, soak time.Duration) objectState {
	o.mu.Lock()
	defer o.mu.Unlock()
	ref := reconcile.RefTo(groupKindOf(f.Kind), f.Namespace, f.Name)
	if _, known := o.gates[ref]; !known {
		return unknownState
	}
	if h := o.has[gate][ref]; h != nil && isFailing(h, soak) {
		return failingState
	}
	return recoveredState
}

// groupKindOf returns the group and kind of a kind that deploys.
func groupKindOf(kind string) schema.GroupKind {
	if kind == helmv2.HelmReleaseKind {
		return schema.GroupKind{Group: helmv2.GroupVersion.Group, Kind: kind}
	}
	return schema.GroupKind{Group: kustomizev1.GroupVersion.Group, Kind: kind}
}

// Watches implements [reconcile.Gatekeeper].
func (x *Index) Watches(gates []reconcile.Ref) reconcile.Watch {
	var w reconcile.Watch
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, ref := range gates {
		e := x.gates[ref.NamespacedName]
		if e == nil || e.gate.Spec.OnFailure == "" && len(e.gate.Spec.Waves) == 0 {
			continue
		}
		if w.Gates = append(w.Gates, ref); e.gate.Spec.OnFailure != "" {
			w.Soak = max(w.Soak, e.gate.GetSoak())
			w.Reverts = w.Reverts || e.gate.Spec.OnFailure == gatingv1.OnFailureRevert
		}
	}
	return w
}

// SetObserved implements [reconcile.Gatekeeper].
func (x *Index) SetObserved(ref reconcile.Ref, watching []reconcile.Ref, has *meta.Held) {
	for _, g := range x.Observed.set(ref, watching, has) {
		if x.concerns(g, ref, has) {
			x.waiting.mu.Lock()
			x.enqueueGate(g)
			x.waiting.mu.Unlock()
		}
	}
}

// concerns reports whether what an object has may change what a gate does: it failed, or it is one of those that
// failed before.
func (x *Index) concerns(gate types.NamespacedName, ref reconcile.Ref, has *meta.Held) bool {
	if has != nil && (has.Admitted != nil && has.Admitted.Failure != nil || has.Reverted != nil) {
		return true
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	e := x.gates[gate]
	if e != nil && has != nil && e.gate.Annotations[gatingv1.RefusePrefix+gatingv1.ObjectSuffix] == nameOf(ref) {
		return true
	}
	return e != nil && slices.ContainsFunc(e.gate.Status.Failures, func(f gatingv1.FailedChange) bool {
		return slices.Contains(f.Objects,
			gatingv1.FailedObject{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name})
	})
}

// refuses returns the function that returns why a gate refuses a revision for an object; nil if it refuses nothing.
func (e *entry) refuses(obj reconcile.Gated) func(revision, change string) *reconcile.Refusal {
	g := e.gate
	if g.Spec.OnFailure != gatingv1.OnFailureRevert || len(g.Status.Failures) == 0 || isOverridden(g) {
		return nil
	}
	return func(revision, change string) *reconcile.Refusal {
		for i := range g.Status.Failures {
			f := &g.Status.Failures[i]
			if !isFailed(f, obj, revision, change) {
				continue
			}
			which := "', which failed: "
			if f.RefusedBy != "" {
				which = "': "
			}
			return &reconcile.Refusal{State: "refuses revision '" + revision + which + f.Message, Reason: f.Message,
				Reverts: true, By: f.RefusedBy}
		}
		return nil
	}
}

// Refused returns why a gate refuses a revision for an object, by the status of the gate; empty if it does not. change
// identifies what would be applied if the revision does not.
func Refused(g *gatingv1.Gate, obj reconcile.Gated, revision, change string) string {
	refuses := (&entry{gate: g}).refuses(obj)
	if refuses == nil {
		return ""
	}
	if r := refuses(revision, change); r != nil {
		return r.State
	}
	return ""
}

// isFailed reports whether a change of an object is one that failed. A revision that failed is so for all objects. If
// only an object's values or spec failed, or a person made the object go back, it is so for this object only.
func isFailed(f *gatingv1.FailedChange, obj reconcile.Gated, revision, change string) bool {
	if f.Revision != revision || f.Change != "" && f.Change != change {
		return false
	}
	return f.Change == "" && f.RefusedBy == "" || slices.ContainsFunc(f.Objects, func(o gatingv1.FailedObject) bool {
		return o.Namespace == obj.GetNamespace() && o.Name == obj.GetName() &&
			(f.RefusedBy == "" || o.Kind == kindOf(obj))
	})
}

// kindOf returns the kind of an object that can go back.
func kindOf(obj reconcile.Gated) string {
	if _, ok := obj.(*helmv2.HelmRelease); ok {
		return helmv2.HelmReleaseKind
	}
	return kustomizev1.KustomizationKind
}

// isFailureHold reports whether a gate is closed only because a change that it let through is unhealthy. The seal
// covers it.
func isFailureHold(g *gatingv1.Gate) bool {
	return g.Status.Why != nil && g.Status.Why.Reason == gatingv1.WhyRevisionFailed
}

// holdsFor returns the newest failure for which a gate holds all changes, or nil. The gate may be closed for another
// reason, too. The seal covers it.
func holdsFor(g *gatingv1.Gate) *gatingv1.FailedChange {
	if g.Spec.OnFailure != gatingv1.OnFailureHold {
		return nil
	}
	for i := range g.Status.Failures {
		if g.Status.Failures[i].ResolvedAt == nil {
			return &g.Status.Failures[i]
		}
	}
	return nil
}
