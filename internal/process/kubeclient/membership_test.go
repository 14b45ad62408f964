package kubeclient

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/reconcile/shard"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// newMember returns a replica that has a lease in a namespace. Its clock is now.
func newMember(t *testing.T, namespace string, now *time.Time) *replica {
	t.Helper()
	clock := func() time.Time { return *now }
	o := options.Options{AutoShards: true, LeaderElection: true, RuntimeNamespace: namespace,
		LeaseDuration: 35 * time.Second, RenewDeadline: 30 * time.Second, RetryPeriod: 5 * time.Second}
	fence := &Fence{now: clock, validFor: o.RenewDeadline}
	m, err := NewMembership(testenv.Cluster(t), o, &shard.Shards{}, fence, nil)
	if err != nil {
		t.Fatal(err)
	}
	m.now = clock
	r := &replica{Membership: m, id: newID("host"), others: map[string]*other{}}
	if err := r.create(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.shards.Join(r.id)
	return r
}

// editLease changes the Lease of a replica as a user with the right to update it does.
func (r *replica) editLease(t *testing.T, change func(l *coordinationv1.Lease)) {
	t.Helper()
	l, err := r.leases.Get(t.Context(), r.lease.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	change(l)
	if _, err := r.leases.Update(t.Context(), l, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestEditedLeaseStandsForItsReplica has a Lease that names another holder. The replica whose it is still works on its
// objects, so that the others must not take them over.
func TestEditedLeaseStandsForItsReplica(t *testing.T) {
	t.Parallel()
	now := time.Now()
	namespace := testenv.Namespace(t)
	a, b := newMember(t, namespace, &now), newMember(t, namespace, &now)
	for name, edit := range map[string]func(s *coordinationv1.LeaseSpec){
		"another holder": func(s *coordinationv1.LeaseSpec) { s.HolderIdentity = ptr.To("another") },
		"no holder":      func(s *coordinationv1.LeaseSpec) { s.HolderIdentity = nil },
		"the observer":   func(s *coordinationv1.LeaseSpec) { s.HolderIdentity = ptr.To(b.id) },
		"nothing":        func(s *coordinationv1.LeaseSpec) { *s = coordinationv1.LeaseSpec{} },
		"short":          func(s *coordinationv1.LeaseSpec) { s.LeaseDurationSeconds = ptr.To(int32(1)) },
	} {
		a.editLease(t, func(l *coordinationv1.Lease) { edit(&l.Spec) })
		if err := b.list(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.adapt()
		if b.others[a.id] == nil || !strings.Contains(b.next.String(), a.id) {
			t.Errorf("%s: the other replica takes over: others %v, next view %s", name, b.others, b.next)
		}
		if err := a.write(t.Context(), a.view); err == nil {
			t.Errorf("%s: the edit caused no conflict", name)
		}
		if err := a.write(t.Context(), a.view); err != nil {
			t.Fatal(err)
		}
		if s := a.lease.Spec; ptr.Deref(s.HolderIdentity, "") != a.id || ptr.Deref(s.LeaseDurationSeconds, 0) != 35 ||
			s.RenewTime == nil {
			t.Errorf("%s: the replica renewed its Lease as %+v", name, s)
		}
	}
}

// TestLeasesWithoutProcessEnd has Leases that no process renews, with absurd content.
func TestLeasesWithoutProcessEnd(t *testing.T) {
	t.Parallel()
	now := time.Now()
	namespace := testenv.Namespace(t)
	r := newMember(t, namespace, &now)
	views := map[string]string{"max": "max", "commas": strings.Repeat(",", 200<<10), "a.b-c": "\x00\u202e,,\n",
		"long": strings.Repeat("x", 200<<10)}
	for id, view := range views {
		l := r.Membership.lease(id, now)
		l.Annotations[ViewAnnotation] = view
		l.Spec.LeaseDurationSeconds = ptr.To(int32(math.MaxInt32))
		l.Spec.RenewTime = &metav1.MicroTime{Time: now.AddDate(1000, 0, 0)}
		if _, err := r.leases.Create(t.Context(), l, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	look := func() {
		t.Helper()
		if err := r.list(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.adapt()
	}
	if look(); len(r.next) != len(views)+1 {
		t.Errorf("the next view is %s", r.next)
	}
	now = now.Add(options.MaxLeaseDuration + time.Second)
	if look(); len(r.next) != 1 {
		t.Errorf("after an hour, the next view still is %s", r.next)
	}
	now = now.Add(staleLeases * options.MaxLeaseDuration)
	testenv.Eventually(t, "the Leases without a process are deleted", func() error {
		if look(); len(r.others) != 0 { // a deletion may take longer than the replica waits
			return fmt.Errorf("%d still exist", len(r.others))
		}
		return nil
	})
}
