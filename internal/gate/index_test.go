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
	"github.com/sluice-gitops/sluice/internal/credentials/seal"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/reconcile/decision"
)

var kustomizations = schema.GroupKind{Group: kustomizev1.GroupVersion.Group, Kind: kustomizev1.KustomizationKind}

var testSeals = seal.New(make([]byte, seal.Size))

// testIndex is an index of objects in memory, with the queue of their kind.
type testIndex struct {
	*Index
	objects []*kustomizev1.Kustomization
	queue   workqueue.TypedRateLimitingInterface[ctrl.Request]
	lists   int
	now     time.Time
}

func newTestIndex(tb testing.TB, objects ...*kustomizev1.Kustomization) *testIndex {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	s := &testIndex{objects: objects, now: now, queue: workqueue.NewTypedRateLimitingQueue(
		workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())}
	tb.Cleanup(s.queue.ShutDown)
	edges := reconcile.NewEdges()
	edges.SetQueue(kustomizations, s.queue)
	s.Index = &Index{
		Seals: testSeals, Edges: edges, Clock: clocktesting.NewFakePassiveClock(now),
		VerifySelection: func(context.Context, *gatingv1.Gate) error { return nil },
		Namespace:       func(name string) (labels.Set, bool) { return labels.Set{"team": name}, name != "unreadable" },
		EnqueueSelected: func(selected func(reconcile.Ref, reconcile.Gated) bool) {
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

func (s *testIndex) ref(k *kustomizev1.Kustomization) reconcile.Ref {
	return reconcile.RefTo(kustomizations, k.Namespace, k.Name)
}

// pass evaluates the gates like the kernel does in a pass, and returns what the closed ones decide.
func (s *testIndex) pass(k *kustomizev1.Kustomization) []decision.Decision {
	over := s.GatesFor(s.ref(k), k)
	s.Edges.Set(s.ref(k), over)
	held := s.holding(k)
	s.wait(k, held, &meta.Pending{Revision: "main@sha1:1", Since: &meta.Time{Time: s.now}})
	return held
}

// wait records a change that gates hold.
func (s *testIndex) wait(k *kustomizev1.Kustomization, held []decision.Decision, pending *meta.Pending) {
	has := &meta.Held{Pending: pending}
	for _, d := range held {
		has.HeldBy = append(has.HeldBy, meta.HoldingGate{Gate: d.Gate.String(), Code: d.Code.Name})
	}
	s.SetWaiting(s.ref(k), has)
}

// holding returns the decisions of the gates that are not open for all revisions.
func (s *testIndex) holding(k *kustomizev1.Kustomization) (held []decision.Decision) {
	for _, g := range s.Snapshot(s.GatesFor(s.ref(k), k), k) {
		if d := decision.Decide(g, Asker(k), decision.Change{}, s.now); d.Holds() {
			held = append(held, d)
		}
	}
	return held
}

// dequeue empties the queue, and returns how many objects were in it.
func (s *testIndex) dequeue() int {
	n := 0
	for s.queue.Len() > 0 {
		r, _ := s.queue.Get()
		s.queue.Done(r)
		n++
	}
	return n
}

func kustomization(namespace, name string, change ...func(*kustomizev1.Kustomization)) *kustomizev1.Kustomization {
	k := &kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	for _, c := range change {
		c(k)
	}
	return k
}

func withGates(gates ...meta.GateReference) func(*kustomizev1.Kustomization) {
	return func(k *kustomizev1.Kustomization) { k.Spec.Gates = gates }
}

func newGate(namespace, name string, state gatingv1.State, change ...func(*gatingv1.Gate)) *gatingv1.Gate {
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
	g.Status.Seal = &gatingv1.Seal{Sequence: 1,
		Value: testSeals.Seal(sealedParts(g, 0, g.Status.ObservedGeneration, 1)...)}
	return g
}

func withSelector(s gatingv1.Selector) func(*gatingv1.Gate) {
	return func(g *gatingv1.Gate) { g.Spec.Selector = &s }
}

func TestSelectorMatchesObjects(t *testing.T) {
	tier1 := gatingv1.Selector{Objects: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "1"}}}
	onlyApps := gatingv1.Selector{Namespaces: &gatingv1.NamespaceSelector{Names: []string{"apps"}}}
	onlyProd := gatingv1.Selector{Clusters: []gatingv1.ClusterSelector{
		{SecretRef: &meta.LocalObjectReference{Name: "prod"}}}}
	local := gatingv1.Selector{Clusters: []gatingv1.ClusterSelector{{Local: true}}}
	for name, c := range map[string]struct {
		selector gatingv1.Selector
		object   *kustomizev1.Kustomization
		matches  bool
	}{
		"empty selector, own namespace":   {object: kustomization("ops", "a"), matches: true},
		"empty selector, other namespace": {object: kustomization("apps", "a")},
		"namespace by name":               {selector: onlyApps, object: kustomization("apps", "a"), matches: true},
		"own namespace is not listed":     {selector: onlyApps, object: kustomization("ops", "a")},
		"all namespaces": {
			selector: gatingv1.Selector{Namespaces: &gatingv1.NamespaceSelector{Labels: &metav1.LabelSelector{}}},
			object:   kustomization("apps", "a"), matches: true},
		"namespace with the label": {selector: gatingv1.Selector{Namespaces: byTeam("apps")},
			object: kustomization("apps", "a"), matches: true},
		"namespace with another label": {selector: gatingv1.Selector{Namespaces: byTeam("apps")},
			object: kustomization("shop", "a")},
		"namespace with unknown labels": {selector: gatingv1.Selector{Namespaces: byTeam("apps")},
			object: kustomization("unreadable", "a"), matches: true},
		"listed kind": {selector: gatingv1.Selector{Kinds: []gatingv1.SelectedKind{"Kustomization"}},
			object: kustomization("ops", "a"), matches: true},
		"other kind": {selector: gatingv1.Selector{Kinds: []gatingv1.SelectedKind{"GitRepository"}},
			object: kustomization("ops", "a")},
		"object with the label": {selector: tier1, matches: true,
			object: kustomization("ops", "a", func(k *kustomizev1.Kustomization) {
				k.Labels = map[string]string{"tier": "1"}
			})},
		"object without the label": {selector: tier1, object: kustomization("ops", "a")},
		"invalid label selector": {
			selector: gatingv1.Selector{Objects: &metav1.LabelSelector{
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "k", Operator: "?"}}}},
			object: kustomization("ops", "a"), matches: true},
		"cluster by Secret": {selector: onlyProd, object: kustomization("ops", "a", onCluster("prod")),
			matches: true},
		"other cluster":                    {selector: onlyProd, object: kustomization("ops", "a", onCluster("test"))},
		"local cluster is not listed":      {selector: onlyProd, object: kustomization("ops", "a")},
		"local cluster":                    {selector: local, object: kustomization("ops", "a"), matches: true},
		"only the local cluster is listed": {selector: local, object: kustomization("ops", "a", onCluster("prod"))},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestIndex(t)
			s.Put(newGate("ops", "freeze", gatingv1.Closed, withSelector(c.selector)))
			if closed := s.pass(c.object); (len(closed) > 0) != c.matches {
				t.Errorf("closed gates: %v", closed)
			}
		})
	}
}

func byTeam(team string) *gatingv1.NamespaceSelector {
	return &gatingv1.NamespaceSelector{Labels: &metav1.LabelSelector{MatchLabels: map[string]string{"team": team}}}
}

func onCluster(secret string) func(*kustomizev1.Kustomization) {
	return func(k *kustomizev1.Kustomization) {
		k.Spec.KubeConfig = &kustomizev1.KubeConfigReference{SecretRef: &meta.SecretKeyReference{Name: secret}}
	}
}

func TestIndexFailsClosed(t *testing.T) {
	local, remote := []meta.GateReference{{Name: "g"}}, []meta.GateReference{{Namespace: "ops", Name: "g"}}
	for name, c := range map[string]struct {
		gate                 *gatingv1.Gate
		noCrossNamespaceRefs bool
		refs                 []meta.GateReference
		reason               string // empty: no gate is closed
		state                string
	}{
		"open gate": {gate: newGate("apps", "g", gatingv1.Opened), noCrossNamespaceRefs: true, refs: local},
		"closed gate": {gate: newGate("apps", "g", gatingv1.Closed), refs: local, reason: "GateClosed",
			state: "is closed"},
		"missing gate":              {refs: local, reason: "GateNotFound", state: "is not found"},
		"gate of another namespace": {gate: newGate("ops", "g", gatingv1.Opened), refs: remote},
		"denied reference to another namespace": {gate: newGate("ops", "g", gatingv1.Opened),
			noCrossNamespaceRefs: true, refs: remote, reason: "AccessDenied",
			state: "is in another namespace: cross-namespace references have been blocked"},
		"second gate is missing": {gate: newGate("apps", "g", gatingv1.Opened),
			refs: []meta.GateReference{{Name: "g"}, {Name: "h"}}, reason: "GateNotFound", state: "is not found"},
		"spec is not reconciled yet": {
			gate: newGate("apps", "g", gatingv1.Opened, func(g *gatingv1.Gate) { g.Generation = 2 }),
			refs: local, reason: "GateNotEvaluated", state: "is not evaluated yet"},
		"gate is being deleted": {
			gate: newGate("apps", "g", gatingv1.Opened,
				func(g *gatingv1.Gate) { g.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }),
			refs: local, reason: "GateClosed", state: "is closed"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestIndex(t)
			s.NoCrossNamespaceRefs = c.noCrossNamespaceRefs
			if c.gate != nil {
				s.Put(c.gate)
			}
			closed := s.pass(kustomization("apps", "a", withGates(c.refs...)))
			switch {
			case c.reason == "" && len(closed) > 0:
				t.Errorf("closed gates: %+v", closed)
			case c.reason != "" && (len(closed) != 1 || closed[0].Reason() != c.reason || closed[0].Text() != c.state):
				t.Errorf("closed gates: %+v", closed)
			}
		})
	}
}

func TestSelectorsStayInIsolatedNamespaces(t *testing.T) {
	everywhere := gatingv1.Selector{Namespaces: &gatingv1.NamespaceSelector{Labels: &metav1.LabelSelector{}}}
	byName := gatingv1.Selector{Namespaces: &gatingv1.NamespaceSelector{Names: []string{"apps", "hostile"}}}
	for name, c := range map[string]struct {
		gate     string // its namespace
		isolated bool
		selector gatingv1.Selector
		holds    map[string]bool // by the namespace of the object
	}{
		"a tenant, by labels": {"hostile", true, everywhere, map[string]bool{"apps": false, "hostile": true}},
		"a tenant, by name":   {"hostile", true, byName, map[string]bool{"apps": false, "hostile": true}},
		"the platform":        {"sluice-system", true, everywhere, map[string]bool{"apps": true, "hostile": true}},
		"not isolated":        {"hostile", false, everywhere, map[string]bool{"apps": true, "hostile": true}},
	} {
		s := newTestIndex(t)
		s.NoCrossNamespaceRefs, s.PlatformNamespace = c.isolated, "sluice-system"
		s.Put(newGate(c.gate, "g", gatingv1.Closed, withSelector(c.selector)))
		for namespace, want := range c.holds {
			if closed := s.pass(kustomization(namespace, "a")); (len(closed) > 0) != want {
				t.Errorf("%s: holds an object in %s: %v, want %v", name, namespace, len(closed) > 0, want)
			}
		}
	}
}

func TestIndexEnqueuesAffectedObjects(t *testing.T) {
	named, chosen, free := kustomization("apps", "named", withGates(meta.GateReference{Name: "g"})),
		kustomization("apps", "chosen"),
		kustomization("shop", "free")
	chosen.Labels = map[string]string{"tier": "1"}
	s := newTestIndex(t, named, chosen, free)
	step := func(what string, want, lists int, do func()) {
		t.Helper()
		s.lists = 0
		do()
		if got := s.dequeue(); got != want || s.lists != lists {
			t.Errorf("%s: %d objects enqueued with %d lists, want %d with %d", what, got, s.lists, want, lists)
		}
		for _, k := range s.objects {
			s.pass(k)
		}
	}
	tier := withSelector(gatingv1.Selector{Objects: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "1"}}})
	for _, k := range s.objects {
		s.pass(k)
	}
	step("gate created", 1, 0, func() { s.Put(newGate("apps", "g", gatingv1.Closed)) })
	step("only the waiting count changed", 0, 0, func() {
		s.Put(newGate("apps", "g", gatingv1.Closed, func(g *gatingv1.Gate) { g.Status.WaitingCount = 7 }))
	})
	step("selector added", 2, 1, func() { s.Put(newGate("apps", "g", gatingv1.Closed, tier)) })
	step("gate opened", 2, 0, func() { s.Put(newGate("apps", "g", gatingv1.Opened, tier)) })
	step("namespace changed, no gate selects by namespace", 0, 0, func() { s.NamespaceChanged("apps") })
	step("selector removed", 2, 0, func() { s.Put(newGate("apps", "g", gatingv1.Opened)) })
	step("gate deleted", 1, 0, func() { s.Delete(types.NamespacedName{Namespace: "apps", Name: "g"}) })
	step("gate selects by namespace", 1, 1, func() {
		s.Put(newGate("ops", "teams", gatingv1.Closed, withSelector(gatingv1.Selector{Namespaces: byTeam("shop")})))
	})
	step("namespace changed", 2, 1, func() { s.NamespaceChanged("apps") })
}

func TestIndexListsWaitingObjects(t *testing.T) {
	s := newTestIndex(t)
	s.Put(newGate("apps", "g", gatingv1.Closed))
	gate := types.NamespacedName{Namespace: "apps", Name: "g"}
	wait := func(name string, since time.Time, p meta.Pending) {
		p.Since = &meta.Time{Time: since}
		k := kustomization("apps", name, withGates(meta.GateReference{Name: "g"}))
		s.wait(k, s.holding(k), &p)
	}
	wait("late", s.now, meta.Pending{Revision: "main@sha1:1"})
	wait("early", s.now.Add(-time.Hour), meta.Pending{Revision: "main@sha1:1", Created: 1,
		Changes: []string{"ConfigMap/apps/a created"}})
	wait("later", s.now.Add(time.Hour), meta.Pending{Message: "unknown"})
	waiting, total := s.Waiting(gate, 2)
	if total != 3 || len(waiting) != 2 || waiting[0].Name != "early" || waiting[1].Name != "late" {
		t.Errorf("%d objects wait: %+v", total, waiting)
	}
	if w := waiting[0]; w.Revision != "main@sha1:1" || w.Created == nil || *w.Created != 1 {
		t.Errorf("%+v", w)
	}
	s.SetWaiting(reconcile.RefTo(kustomizations, "apps", "early"), nil)
	if _, total := s.Waiting(gate, 2); total != 2 {
		t.Errorf("%d objects wait, want 2", total)
	}
	k := kustomization("apps", "late", withGates(meta.GateReference{Name: "g"}))
	s.wait(k, s.holding(k), nil)
	if _, total := s.Waiting(gate, 2); total != 1 {
		t.Errorf("%d objects wait, want 1: an object without a pending change does not wait", total)
	}
}

// BenchmarkOpenGateOf10000Objects opens a gate and measures the time until all its objects are enqueued, and until all
// have evaluated their gates.
func BenchmarkOpenGateOf10000Objects(b *testing.B) {
	const n = 10_000
	for name, selector := range map[string]*gatingv1.Selector{
		"named":    nil,
		"selected": {Namespaces: &gatingv1.NamespaceSelector{Labels: &metav1.LabelSelector{}}},
	} {
		b.Run(name, func(b *testing.B) {
			var objects []*kustomizev1.Kustomization
			for i := range n {
				objects = append(objects, kustomization(fmt.Sprintf("team-%d", i%100), fmt.Sprintf("app-%d", i),
					func(k *kustomizev1.Kustomization) {
						if selector == nil {
							k.Spec.Gates = []meta.GateReference{{Namespace: "ops", Name: "freeze"}}
						}
					}))
			}
			s := newTestIndex(b, objects...)
			put := func(state gatingv1.State) {
				s.Put(newGate("ops", "freeze", state, func(g *gatingv1.Gate) { g.Spec.Selector = selector }))
			}
			put(gatingv1.Closed)
			for _, k := range objects {
				s.pass(k)
			}
			s.dequeue()
			s.lists = 0
			var enqueued, evaluated time.Duration
			for b.Loop() {
				start := time.Now()
				put(gatingv1.Opened)
				if s.queue.Len() != n {
					b.Fatalf("%d objects enqueued", s.queue.Len())
				}
				enqueued += time.Since(start)
				for _, k := range objects {
					if len(s.pass(k)) > 0 {
						b.Fatal("the gate is still closed")
					}
				}
				evaluated += time.Since(start)
				s.dequeue()
				put(gatingv1.Closed)
				for _, k := range objects {
					s.pass(k)
				}
				s.dequeue()
			}
			b.ReportMetric(float64(enqueued.Microseconds())/1000/float64(b.N), "ms/enqueued")
			b.ReportMetric(float64(evaluated.Microseconds())/1000/float64(b.N), "ms/evaluated")
			b.ReportMetric(float64(s.lists), "lists")
		})
	}
}

func TestWaitForSyncFailsBeforeSync(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	x := &Index{synced: []func() bool{func() bool { return false }}}
	if err := x.WaitForSync(ctx); err == nil {
		t.Error("no error before the informers are synced")
	}
}
