package gate

import (
	"context"
	"fmt"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime/pkg/reconcile"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

var syncs = schema.GroupKind{Group: kustomizev1.GroupVersion.Group, Kind: kustomizev1.KustomizationKind}

// shelf is a book over objects of its own, and what was queued of them.
type shelf struct {
	*Book
	objects []*kustomizev1.Kustomization
	queue   workqueue.TypedRateLimitingInterface[ctrl.Request]
	lists   int
	now     time.Time
}

func newShelf(tb testing.TB, objects ...*kustomizev1.Kustomization) *shelf {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	s := &shelf{objects: objects, now: now, queue: workqueue.NewTypedRateLimitingQueue(
		workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())}
	tb.Cleanup(s.queue.ShutDown)
	edges := reconcile.NewEdges()
	edges.SetQueue(syncs, s.queue)
	s.Book = &Book{
		Edges: edges, Clock: clocktesting.NewFakePassiveClock(now),
		Namespace: func(name string) (labels.Set, bool) { return labels.Set{"team": name}, name != "unreadable" },
		Wake: func(selected func(reconcile.Ref, reconcile.Gated) bool) {
			s.lists++
			for _, k := range s.objects {
				if ref := s.ref(k); selected(ref, k) {
					edges.Enqueue(ref)
				}
			}
		},
	}
	return s
}

func (s *shelf) ref(k *kustomizev1.Kustomization) reconcile.Ref {
	return reconcile.RefTo(syncs, k.Namespace, k.Name)
}

// pass does what the kernel does of a pass, and returns what the gates said.
func (s *shelf) pass(k *kustomizev1.Kustomization) []reconcile.ClosedGate {
	over := s.GatesFor(s.ref(k), k)
	s.Edges.Set(s.ref(k), over)
	closed := s.ClosedGates(over, k, false)
	s.SetWaiting(s.ref(k), closed, &meta.Pending{Revision: "main@sha1:1", Since: &meta.Time{Time: s.now}})
	return closed
}

// woken returns how many objects were queued since it was asked last.
func (s *shelf) woken() int {
	n := 0
	for s.queue.Len() > 0 {
		r, _ := s.queue.Get()
		s.queue.Done(r)
		n++
	}
	return n
}

func syncOf(namespace, name string, change ...func(*kustomizev1.Kustomization)) *kustomizev1.Kustomization {
	k := &kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	for _, c := range change {
		c(k)
	}
	return k
}

func naming(gates ...meta.GateReference) func(*kustomizev1.Kustomization) {
	return func(k *kustomizev1.Kustomization) { k.Spec.Gates = gates }
}

func gateOf(namespace, name string, state gatingv1.State, change ...func(*gatingv1.Gate)) *gatingv1.Gate {
	g := &gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	status := metav1.ConditionFalse
	if state == gatingv1.Opened {
		status = metav1.ConditionTrue
	}
	apimeta.SetStatusCondition((*[]metav1.Condition)(&g.Status.Conditions),
		metav1.Condition{Type: gatingv1.OpenedCondition, Status: status, Reason: "Test"})
	for _, c := range change {
		c(g)
	}
	return g
}

func selecting(s gatingv1.Selector) func(*gatingv1.Gate) {
	return func(g *gatingv1.Gate) { g.Spec.Selector = &s }
}

func TestBookSelects(t *testing.T) {
	for name, c := range map[string]struct {
		selector gatingv1.Selector
		object   *kustomizev1.Kustomization
		over     bool
	}{
		"the gate's own namespace": {gatingv1.Selector{}, syncOf("ops", "a"), true},
		"no other namespace":       {gatingv1.Selector{}, syncOf("apps", "a"), false},
		"a namespace by name": {
			gatingv1.Selector{Namespaces: &gatingv1.NamespaceSelector{Names: []string{"apps"}}},
			syncOf("apps", "a"), true},
		"not its own then": {
			gatingv1.Selector{Namespaces: &gatingv1.NamespaceSelector{Names: []string{"apps"}}},
			syncOf("ops", "a"), false},
		"all namespaces": {
			gatingv1.Selector{Namespaces: &gatingv1.NamespaceSelector{Labels: &metav1.LabelSelector{}}},
			syncOf("apps", "a"), true},
		"namespaces by label":          {gatingv1.Selector{Namespaces: byTeam("apps")}, syncOf("apps", "a"), true},
		"not those with another label": {gatingv1.Selector{Namespaces: byTeam("apps")}, syncOf("shop", "a"), false},
		"those whose labels are not known": {gatingv1.Selector{Namespaces: byTeam("apps")},
			syncOf("unreadable", "a"), true},
		"a kind": {gatingv1.Selector{Kinds: []gatingv1.SelectedKind{"Kustomization"}},
			syncOf("ops", "a"), true},
		"no other kind": {gatingv1.Selector{Kinds: []gatingv1.SelectedKind{"GitRepository"}},
			syncOf("ops", "a"), false},
		"objects by label": {gatingv1.Selector{
			Objects: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "1"}}},
			syncOf("ops", "a", func(k *kustomizev1.Kustomization) { k.Labels = map[string]string{"tier": "1"} }), true},
		"no others": {gatingv1.Selector{Objects: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "1"}}},
			syncOf("ops", "a"), false},
		"all where the labels cannot be read": {
			gatingv1.Selector{Objects: &metav1.LabelSelector{
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "k", Operator: "?"}}}},
			syncOf("ops", "a"), true},
		"a cluster by its Secret": {gatingv1.Selector{Clusters: []gatingv1.ClusterSelector{
			{SecretRef: &meta.LocalObjectReference{Name: "prod"}}}}, syncOf("ops", "a", to("prod")), true},
		"no other cluster": {gatingv1.Selector{Clusters: []gatingv1.ClusterSelector{
			{SecretRef: &meta.LocalObjectReference{Name: "prod"}}}}, syncOf("ops", "a", to("test")), false},
		"not the local one": {gatingv1.Selector{
			Clusters: []gatingv1.ClusterSelector{{SecretRef: &meta.LocalObjectReference{Name: "prod"}}}},
			syncOf("ops", "a"), false},
		"the local one": {gatingv1.Selector{Clusters: []gatingv1.ClusterSelector{{Local: true}}},
			syncOf("ops", "a"), true},
		"no remote one then": {gatingv1.Selector{Clusters: []gatingv1.ClusterSelector{{Local: true}}},
			syncOf("ops", "a", to("prod")), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShelf(t)
			s.Put(gateOf("ops", "freeze", gatingv1.Closed, selecting(c.selector)))
			if closed := s.pass(c.object); (len(closed) > 0) != c.over {
				t.Errorf("held by %v", closed)
			}
		})
	}
}

func byTeam(team string) *gatingv1.NamespaceSelector {
	return &gatingv1.NamespaceSelector{Labels: &metav1.LabelSelector{MatchLabels: map[string]string{"team": team}}}
}

func to(secret string) func(*kustomizev1.Kustomization) {
	return func(k *kustomizev1.Kustomization) {
		k.Spec.KubeConfig = &kustomizev1.KubeConfigReference{SecretRef: &meta.SecretKeyReference{Name: secret}}
	}
}

func TestBookFailsClosed(t *testing.T) {
	far := meta.GateReference{Namespace: "ops", Name: "g"}
	for name, c := range map[string]struct {
		gate   *gatingv1.Gate
		strict bool
		refs   []meta.GateReference
		reason string
		state  string
	}{
		"open": {gateOf("apps", "g", gatingv1.Opened), true, []meta.GateReference{{Name: "g"}}, "", ""},
		"closed": {gateOf("apps", "g", gatingv1.Closed), false, []meta.GateReference{{Name: "g"}}, "GateClosed",
			"is closed"},
		"absent": {nil, false, []meta.GateReference{{Name: "g"}}, "GateNotFound", "is not found"},
		"far":    {gateOf("ops", "g", gatingv1.Opened), false, []meta.GateReference{far}, "", ""},
		"far, denied": {gateOf("ops", "g", gatingv1.Opened), true, []meta.GateReference{far}, "AccessDenied",
			"is in another namespace: cross-namespace references have been blocked"},
		"one of two": {gateOf("apps", "g", gatingv1.Opened), false, []meta.GateReference{{Name: "g"}, {Name: "h"}},
			"GateNotFound", "is not found"},
		"not looked at": {gateOf("apps", "g", gatingv1.Opened, func(g *gatingv1.Gate) { g.Generation = 2 }), false,
			[]meta.GateReference{{Name: "g"}}, "GateClosed", "is closed"},
		"going": {gateOf("apps", "g", gatingv1.Opened,
			func(g *gatingv1.Gate) { g.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }), false,
			[]meta.GateReference{{Name: "g"}}, "GateClosed", "is closed"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShelf(t)
			s.NoCrossNamespaceRefs = c.strict
			if c.gate != nil {
				s.Put(c.gate)
			}
			closed := s.pass(syncOf("apps", "a", naming(c.refs...)))
			switch {
			case c.reason == "" && len(closed) > 0:
				t.Errorf("held by %+v", closed)
			case c.reason != "" && (len(closed) != 1 || closed[0].Reason != c.reason || closed[0].State != c.state):
				t.Errorf("held by %+v", closed)
			}
		})
	}
}

func TestBookLetsRevisionsThrough(t *testing.T) {
	s := newShelf(t)
	s.Put(gateOf("apps", "g", gatingv1.Opened, func(g *gatingv1.Gate) {
		g.Spec.AllowManual, g.Spec.Overrun = true, gatingv1.OverrunStop
		g.Status.ApprovedRevisions = []string{"main@sha1:1"}
	}))
	k := syncOf("apps", "a", naming(meta.GateReference{Name: "g"}))
	closed := s.pass(k)
	if len(closed) != 1 || !closed[0].Allows("main@sha1:1") || closed[0].Allows("main@sha1:2") || !closed[0].StopsProgress {
		t.Errorf("held by %+v", closed)
	}
	if want := "lets only revision 'main@sha1:1' through"; closed[0].State != want {
		t.Errorf("it %s, want %s", closed[0].State, want)
	}
	if closed := s.ClosedGates(s.GatesFor(s.ref(k), k), k, true); len(closed) > 0 {
		t.Errorf("a manual pass is held by %+v", closed)
	}
}

func TestBookWakesWhomItConcerns(t *testing.T) {
	named, chosen, free := syncOf("apps", "named", naming(meta.GateReference{Name: "g"})), syncOf("apps", "chosen"),
		syncOf("shop", "free")
	chosen.Labels = map[string]string{"tier": "1"}
	s := newShelf(t, named, chosen, free)
	step := func(what string, want, lists int, do func()) {
		t.Helper()
		s.lists = 0
		do()
		if got := s.woken(); got != want || s.lists != lists {
			t.Errorf("%s: %d woken by %d lists, want %d by %d", what, got, s.lists, want, lists)
		}
		for _, k := range s.objects {
			s.pass(k)
		}
	}
	tier := selecting(gatingv1.Selector{Objects: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "1"}}})
	for _, k := range s.objects {
		s.pass(k)
	}
	step("made", 1, 0, func() { s.Put(gateOf("apps", "g", gatingv1.Closed)) })
	step("nothing that decides", 0, 0, func() {
		s.Put(gateOf("apps", "g", gatingv1.Closed, func(g *gatingv1.Gate) { g.Status.WaitingCount = 7 }))
	})
	step("selects", 2, 1, func() { s.Put(gateOf("apps", "g", gatingv1.Closed, tier)) })
	step("opened", 2, 0, func() { s.Put(gateOf("apps", "g", gatingv1.Opened, tier)) })
	step("its namespace moved, by which nobody selects", 0, 0, func() { s.NamespaceMoved("apps") })
	step("selects no longer", 2, 0, func() { s.Put(gateOf("apps", "g", gatingv1.Opened)) })
	step("gone", 1, 0, func() { s.Drop(types.NamespacedName{Namespace: "apps", Name: "g"}) })
	step("selects by namespace", 1, 1, func() {
		s.Put(gateOf("ops", "teams", gatingv1.Closed, selecting(gatingv1.Selector{Namespaces: byTeam("shop")})))
	})
	step("a namespace moved", 2, 1, func() { s.NamespaceMoved("apps") })
}

func TestBookListsWhoWaits(t *testing.T) {
	s := newShelf(t)
	s.Put(gateOf("apps", "g", gatingv1.Closed))
	gate := types.NamespacedName{Namespace: "apps", Name: "g"}
	wait := func(name string, since time.Time, p meta.Pending) {
		p.Since = &meta.Time{Time: since}
		k := syncOf("apps", name, naming(meta.GateReference{Name: "g"}))
		s.SetWaiting(s.ref(k), s.ClosedGates(s.GatesFor(s.ref(k), k), k, false), &p)
	}
	wait("late", s.now, meta.Pending{Revision: "main@sha1:1"})
	wait("early", s.now.Add(-time.Hour), meta.Pending{Revision: "main@sha1:1", Created: 1,
		Changes: []string{"ConfigMap/apps/a created"}})
	wait("later", s.now.Add(time.Hour), meta.Pending{Message: "cannot be told"})
	waiting, total := s.Waiting(gate, 2)
	if total != 3 || len(waiting) != 2 || waiting[0].Name != "early" || waiting[1].Name != "late" {
		t.Errorf("%d wait: %+v", total, waiting)
	}
	if w := waiting[0]; w.Revision != "main@sha1:1" || w.Created == nil || *w.Created != 1 {
		t.Errorf("%+v", w)
	}
	s.SetWaiting(reconcile.RefTo(syncs, "apps", "early"), nil, nil)
	if _, total := s.Waiting(gate, 2); total != 2 {
		t.Errorf("%d wait", total)
	}
	k := syncOf("apps", "late", naming(meta.GateReference{Name: "g"}))
	s.SetWaiting(s.ref(k), s.ClosedGates(s.GatesFor(s.ref(k), k), k, false), nil)
	if _, total := s.Waiting(gate, 2); total != 1 {
		t.Errorf("one with nothing to do is among %d that wait", total)
	}
}

// BenchmarkTenThousandBehindOneGate opens a gate over 10,000 objects, until the last one is queued and asked.
func BenchmarkTenThousandBehindOneGate(b *testing.B) {
	const n = 10_000
	for name, selector := range map[string]*gatingv1.Selector{
		"named":    nil,
		"selected": {Namespaces: &gatingv1.NamespaceSelector{Labels: &metav1.LabelSelector{}}},
	} {
		b.Run(name, func(b *testing.B) {
			var objects []*kustomizev1.Kustomization
			for i := range n {
				objects = append(objects, syncOf(fmt.Sprintf("team-%d", i%100), fmt.Sprintf("app-%d", i),
					func(k *kustomizev1.Kustomization) {
						if selector == nil {
							k.Spec.Gates = []meta.GateReference{{Namespace: "ops", Name: "freeze"}}
						}
					}))
			}
			s := newShelf(b, objects...)
			put := func(state gatingv1.State) {
				s.Put(gateOf("ops", "freeze", state, func(g *gatingv1.Gate) { g.Spec.Selector = selector }))
			}
			put(gatingv1.Closed)
			for _, k := range objects {
				s.pass(k)
			}
			s.woken()
			s.lists = 0
			var queued, asked time.Duration
			for b.Loop() {
				start := time.Now()
				put(gatingv1.Opened)
				if s.queue.Len() != n {
					b.Fatalf("%d are queued", s.queue.Len())
				}
				queued += time.Since(start)
				for _, k := range objects {
					if len(s.pass(k)) > 0 {
						b.Fatal("still held")
					}
				}
				asked += time.Since(start)
				s.woken()
				put(gatingv1.Closed)
				for _, k := range objects {
					s.pass(k)
				}
				s.woken()
			}
			b.ReportMetric(float64(queued.Microseconds())/1000/float64(b.N), "ms/queued")
			b.ReportMetric(float64(asked.Microseconds())/1000/float64(b.N), "ms/asked")
			b.ReportMetric(float64(s.lists), "lists")
		})
	}
}

func TestBookIsKnownBeforeAnyPass(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b := &Book{synced: []func() bool{func() bool { return false }}}
	if err := b.WaitForSync(ctx); err == nil {
		t.Error("a book that was not read is taken for known")
	}
}
