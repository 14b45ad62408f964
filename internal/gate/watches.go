package gate

import (
	"cmp"
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// watches are the objects of the cluster that checks of revisions are about, so that a change of one runs its checks at
// once. The caller locks it.
type watches struct {
	byPlace map[place]map[types.UID]reconcile.Ref // gates with checks of the objects of a kind in a namespace
	places  map[types.UID][]place                 // by gate
}

// place is where objects of a check are.
type place struct {
	kind      gatingv1.PromotingKind
	namespace string
}

// memberSelector selects the objects of a check of revisions.
type memberSelector struct {
	place
	name   string
	labels labels.Selector // nil: by name
}

func newMemberSelector(g *gatingv1.Gate, c *gatingv1.RevisionCheck) *memberSelector {
	if c == nil || c.KubeConfig != nil {
		return nil
	}
	s := &memberSelector{place: place{kind: c.Kind, namespace: cmp.Or(c.Namespace, g.Namespace)}, name: c.Name}
	if c.Selector != nil {
		parsed, err := metav1.LabelSelectorAsSelector(c.Selector)
		if err != nil {
			return nil // the check is invalid
		}
		s.labels = parsed
	}
	return s
}

// selects reports whether a check is about an object of its place.
func (s *memberSelector) selects(obj client.Object) bool {
	if s.labels != nil {
		return s.labels.Matches(labels.Set(obj.GetLabels()))
	}
	return s.name == obj.GetName()
}

// set replaces the objects of the checks of a gate.
func (w *watches) set(g *gatingv1.Gate, states map[string]*checkState) {
	w.forget(g.UID)
	for _, c := range g.Spec.Checks {
		s := newMemberSelector(g, c.Revision)
		states[c.Name].members = s
		if s == nil {
			continue
		}
		if w.byPlace == nil {
			w.byPlace, w.places = map[place]map[types.UID]reconcile.Ref{}, map[types.UID][]place{}
		}
		if w.byPlace[s.place] == nil {
			w.byPlace[s.place] = map[types.UID]reconcile.Ref{}
		}
		w.byPlace[s.place][g.UID] = refOf(g)
		w.places[g.UID] = append(w.places[g.UID], s.place)
	}
}

// forget removes the checks of a gate.
func (w *watches) forget(gate types.UID) {
	for _, p := range w.places[gate] {
		if delete(w.byPlace[p], gate); len(w.byPlace[p]) == 0 {
			delete(w.byPlace, p)
		}
	}
	delete(w.places, gate)
}

// Changed runs the checks of revisions that an object belongs to, or belonged to before it changed.
func (k *Checks) Changed(kind string, versions ...client.Object) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, obj := range versions {
		where := place{kind: gatingv1.PromotingKind(kind), namespace: obj.GetNamespace()}
		for gate, ref := range k.watch.byPlace[where] {
			for _, t := range k.byGate[gate] {
				if t.members != nil && t.members.place == where && t.members.selects(obj) {
					t.changed = true
					k.Edges.Enqueue(ref)
				}
			}
		}
	}
}

// Observe runs checks of revisions when their objects change. Objects of kinds without an informer in this process are
// read once per interval.
func (k *Checks) Observe(ctx context.Context, c cache.Cache, kinds []GatedKind) error {
	for _, kind := range kinds {
		informer, err := c.GetInformer(ctx, kind.Object)
		if err != nil {
			return err
		}
		changed := func(versions ...any) {
			var objects []client.Object
			for _, o := range versions {
				if obj, ok := o.(client.Object); ok {
					objects = append(objects, obj)
				}
			}
			if len(objects) == 2 && objects[0].GetResourceVersion() == objects[1].GetResourceVersion() {
				return
			}
			k.Changed(kind.Kind, objects...)
		}
		if _, err := informer.AddEventHandler(guard.EventHandler("observing revisions",
			toolscache.ResourceEventHandlerFuncs{
				AddFunc:    func(o any) { changed(o) },
				UpdateFunc: func(before, after any) { changed(before, after) },
				DeleteFunc: func(o any) { changed(o) },
			})); err != nil {
			return err
		}
	}
	return nil
}
