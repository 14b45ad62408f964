package reconcile

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestEdgesAddKeepsReferencesUntilSet(t *testing.T) {
	kind := schema.GroupKind{Kind: "App"}
	app, source, successor := RefTo(kind, "ns", "app"), RefTo(kind, "ns", "source"), RefTo(kind, "ns", "successor")
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
	defer q.ShutDown()
	edges := NewEdges()
	edges.SetQueue(kind, q)
	notifies := func(ref Ref) bool {
		edges.NotifyDependents(ref)
		if q.Len() == 0 {
			return false
		}
		request, _ := q.Get()
		q.Done(request)
		return request.NamespacedName == app.NamespacedName
	}
	edges.Set(app, []Ref{source})
	edges.Add(app, successor)
	edges.Add(app, successor)
	if !notifies(source) || !notifies(successor) {
		t.Error("after Add, the dependent must be enqueued for both references")
	}
	edges.Set(app, []Ref{source})
	if !notifies(source) || notifies(successor) {
		t.Error("after Set, the dependent must be enqueued for the first reference only")
	}
	if edges.Set(app, nil); len(edges.dependents)+len(edges.references) > 0 {
		t.Errorf("edges remain: %v, %v", edges.dependents, edges.references)
	}
}

// order works off a queue with one worker, and returns the names in order. After each, next may add more.
func order(q *fairQueue, next func(done int)) (names []string) {
	for q.Len() > 0 {
		r, _ := q.Get()
		names = append(names, r.Name)
		if next != nil {
			next(len(names)) // while the pass is in work
		}
		q.Done(r)
	}
	return names
}

func TestChangedDependentsComeBeforeThoseThatOnlyNote(t *testing.T) {
	kind := schema.GroupKind{Kind: "App"}
	source := RefTo(schema.GroupKind{Kind: "Source"}, "ns", "source")
	q := newTestQueue(t, 1)
	edges := NewEdges()
	edges.SetQueue(kind, q)
	changed := ""
	edges.SetRanker(kind, func(obj, ref Ref) bool { return ref == source && obj.Name != changed })
	for i := range 20 {
		edges.Set(RefTo(kind, "ns", fmt.Sprint(i)), []Ref{source})
	}
	changed = "7"
	edges.NotifyDependents(source)
	names := order(q, func(done int) {
		if done == 3 { // while the second of those that only note is in work
			changed = "11"
			edges.NotifyDependents(source)
		}
	})
	if names[0] != "7" {
		t.Errorf("the one that changed is not the first: %v", names)
	}
	if at := slices.Index(names, "11"); at > 3 && !slices.Contains(names[:3], "11") {
		t.Errorf("the one that the second commit changes waits for others: %v", names)
	}
	if slices.Sort(names); len(slices.Compact(names)) != 20 {
		t.Errorf("not all had a pass: %v", names)
	}
}

func TestAnObjectThatOnlyNotesMovesUpWhenItIsEnqueued(t *testing.T) {
	kind := schema.GroupKind{Kind: "App"}
	source := RefTo(schema.GroupKind{Kind: "Source"}, "ns", "source")
	q := newTestQueue(t, 1)
	edges := NewEdges()
	edges.SetQueue(kind, q)
	edges.SetRanker(kind, func(obj, _ Ref) bool {
		if obj.Name == "2" {
			panic("cannot decide")
		}
		return true
	})
	for i := range 5 {
		edges.Set(RefTo(kind, "ns", fmt.Sprint(i)), []Ref{source})
	}
	edges.NotifyDependents(source)
	edges.Enqueue(RefTo(kind, "ns", "4")) // by another edge
	names := order(q, nil)
	if fmt.Sprint(names[:2]) != "[2 4]" || len(names) != 5 {
		t.Errorf("the order is %v, want 2 and 4 first", names)
	}
}
