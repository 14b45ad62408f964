package reconcile

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	ctrl "sigs.k8s.io/controller-runtime/pkg/reconcile"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
)

func request(name string) ctrl.Request {
	namespace, name, _ := strings.Cut(name, "/")
	return ctrl.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

func newTestQueue(t *testing.T, workers int, names ...string) *fairQueue {
	t.Helper()
	q := newQueue(t.Name(), workqueue.DefaultTypedControllerRateLimiter[ctrl.Request](), workers, &atomic.Int64{})
	t.Cleanup(q.ShutDown)
	for _, n := range names {
		q.Add(request(n))
	}
	return q
}

// start takes the requests that may start now.
func start(q *fairQueue) (names []string) {
	for q.Len() > 0 {
		r, _ := q.Get()
		names = append(names, r.String())
	}
	return names
}

// flood returns requests of a tenant.
func flood(namespace string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("%s/%d", namespace, i))
	}
	return names
}

func check(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestNamespacesTakeTurns(t *testing.T) {
	q := newTestQueue(t, 1, append(flood("hostile", 500), "a/0", "a/1", "b/0")...)
	var order []string
	for range 7 {
		r, _ := q.Get()
		order = append(order, r.String())
		q.Done(r)
	}
	check(t, "the order", order, "hostile/0", "a/0", "b/0", "hostile/1", "a/1", "hostile/2", "hostile/3")
}

func TestSlowPassesOfOneNamespaceLeaveWorkers(t *testing.T) {
	q := newTestQueue(t, 4, flood("hostile", 500)...)
	check(t, "alone, a namespace has all configured workers", start(q), "hostile/0", "hostile/1", "hostile/2",
		"hostile/3")
	for _, n := range []string{"a/0", "a/1", "b/0", "c/0"} {
		q.Add(request(n))
	}
	check(t, "others have the reserve, one each", start(q), "a/0", "b/0")
	q.Done(request("a/0"))
	check(t, "when one is done, the next without a worker starts", start(q), "c/0")
	q.Done(request("b/0"))
	check(t, "a namespace that had its turn gets another", start(q), "a/1")
	q.Done(request("hostile/0"))
	q.Done(request("a/1"))
	q.Done(request("c/0"))
	check(t, "without others, the namespace has all configured workers again", start(q), "hostile/4")
}

func TestWhileOthersWaitANamespaceHasAtMostItsShare(t *testing.T) {
	q := newTestQueue(t, 4, append(append(flood("x", 10), flood("y", 10)...), flood("z", 1)...)...)
	check(t, "the first", start(q), "x/0", "y/0", "z/0", "x/1")
	q.Done(request("z/0"))
	check(t, "the one with fewer workers is next", start(q), "y/1")
	q.Done(request("x/0"))
	check(t, "shares stay equal", start(q), "x/2")
}

func TestChangedObjectsComeBeforeListedOnes(t *testing.T) {
	q := newTestQueue(t, 1)
	low := priorityqueue.AddOpts{Priority: ptr.To(-100)}
	q.AddWithOpts(low, request("a/0"), request("a/1"), request("a/2"))
	q.Add(request("a/2")) // changed while it waits
	q.Add(request("a/3"))
	q.AddWithOpts(low, request("a/3")) // keeps the higher priority
	var order []string
	for range 4 {
		r, priority, _ := q.GetWithPriority()
		order = append(order, fmt.Sprint(r.String(), " ", priority))
		q.Done(r)
	}
	check(t, "the order", order, "a/2 0", "a/3 0", "a/0 -100", "a/1 -100")
	if len(q.order.namespaces)+len(q.order.priorities)+len(q.order.taken) != 0 || q.order.waiting != 0 {
		t.Errorf("the queue is not empty: %+v", q.order)
	}
}

// TestNotesLeaveWorkersToChanges has passes that would only note a commit: half of the workers do, and one while
// another object is changed.
func TestNotesLeaveWorkersToChanges(t *testing.T) {
	q := newTestQueue(t, 6)
	source := newQueue(t.Name(), workqueue.DefaultTypedControllerRateLimiter[ctrl.Request](), 1, q.order.changes)
	t.Cleanup(source.ShutDown)
	for _, n := range flood("a", 10) {
		q.AddWithOpts(priorityqueue.AddOpts{Priority: ptr.To(noted)}, request(n))
	}
	check(t, "half of the workers", start(q), "a/0", "a/1", "a/2")
	source.Add(request("a/source"))
	check(t, "the source", start(source), "a/source")
	q.Done(request("a/0"))
	q.Done(request("a/1"))
	check(t, "while the source is fetched, one goes on", start(q))
	q.Done(request("a/2"))
	check(t, "the next one", start(q), "a/3")
	q.Add(request("a/7"))
	source.Done(request("a/source"))
	check(t, "what changed comes first", start(q), "a/7")
	q.Done(request("a/7"))
	check(t, "half of the workers again", start(q), "a/4", "a/5")
}

// TestNotesGoOnAfterAChange has workers that wait for work, while passes that would only note a commit wait for the end
// of a change.
func TestNotesGoOnAfterAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTestQueue(t, 6)
		var notes atomic.Int32
		ended, noting := make(chan struct{}), make(chan struct{})
		for range 6 + reserve(6) {
			go func() {
				for {
					r, priority, shutdown := q.GetWithPriority()
					switch {
					case shutdown:
						return
					case priority == noted:
						notes.Add(1)
						<-noting
					default:
						<-ended
					}
					q.Done(r)
				}
			}()
		}
		q.Add(request("a/changed"))
		synctest.Wait()
		for _, n := range flood("a", 10) {
			q.AddWithOpts(priorityqueue.AddOpts{Priority: ptr.To(noted)}, request(n))
		}
		synctest.Wait()
		if n := notes.Load(); n != 1 {
			t.Errorf("%d notes while an object is changed, want 1", n)
		}
		close(ended)
		synctest.Wait()
		if n := notes.Load(); n != 3 {
			t.Errorf("%d notes after it, want 3", n)
		}
		close(noting)
		synctest.Wait()
		if n := notes.Load(); n != 10 {
			t.Errorf("%d notes at last, want 10", n)
		}
	})
}

// TestTheNextPassAfterANoteIsNoNote has an object that noted a change, and is due after its interval.
func TestTheNextPassAfterANoteIsNoNote(t *testing.T) {
	q := newTestQueue(t, 1)
	q.AddWithOpts(priorityqueue.AddOpts{Priority: ptr.To(noted), After: time.Millisecond}, request("a/0"))
	if _, priority, _ := q.GetWithPriority(); priority != 0 {
		t.Errorf("the priority is %d", priority)
	}
}

func TestAnObjectInWorkIsNotStartedTwice(t *testing.T) {
	q := newTestQueue(t, 4, "a/0")
	check(t, "the first", start(q), "a/0")
	q.Add(request("a/0"))
	check(t, "while it is in work", start(q))
	q.Done(request("a/0"))
	check(t, "after it", start(q), "a/0")
}

// TestShortIntervalsHaveABudget has objects of a namespace that want to be reconciled every millisecond.
func TestShortIntervalsHaveABudget(t *testing.T) {
	kernel := &Kernel{Clock: clocktesting.NewFakeClock(time.Unix(0, 0))}
	l := newLoop(kernel, Kind[*kustomizev1.Kustomization]{})
	hasty := func(namespace string) time.Duration {
		k := &kustomizev1.Kustomization{}
		k.Namespace, k.Spec.Interval = namespace, meta.Duration{Duration: time.Millisecond}
		return l.requeueAfter(k, Ready("Ready", ""))
	}
	var last time.Duration
	for n := range 500 {
		if last = hasty("hostile"); last < minInterval {
			t.Fatalf("pass %d is due in %s", n, last)
		}
	}
	if want := 400 * time.Second / retriesPerSecond; last != want {
		t.Errorf("the last of 500 passes is due in %s, want %s", last, want)
	}
	if d := hasty("other"); d != minInterval {
		t.Errorf("a pass of another namespace is due in %s, want %s", d, minInterval)
	}
}

func TestRetriesOfANamespaceHaveABudget(t *testing.T) {
	var b retryBudgets
	now := time.Unix(0, 0)
	for range retryBurst {
		if d := b.delay("hostile", now, time.Millisecond); d != time.Millisecond {
			t.Fatalf("a retry within the budget waits for %s", d)
		}
	}
	var last time.Duration
	for range 400 {
		last = b.delay("hostile", now, time.Millisecond)
	}
	if want := 400 * time.Second / retriesPerSecond; last != want {
		t.Errorf("the last of 500 retries waits for %s, want %s", last, want)
	}
	if d := b.delay("other", now, time.Millisecond); d != time.Millisecond {
		t.Errorf("a retry of another namespace waits for %s", d)
	}
	if d := b.delay("hostile", now.Add(time.Hour), time.Minute); d != time.Minute {
		t.Errorf("a retry after the budget is full again waits for %s", d)
	}
}
