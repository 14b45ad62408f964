package reconcile

import (
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
