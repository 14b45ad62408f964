package bench

import (
	"flag"
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

var failoverApps = flag.Int("failover", 1000, "how many Kustomizations of four objects BenchmarkFailover has")

// BenchmarkFailover changes the objects of all Kustomizations by a commit: once with a leader that lives, and once with
// one that is killed when half of them are Ready. A standby shares a bucket with it. Their lease has the default
// duration. The benchmark fails if an object is not applied, or applied again after a status recorded it.
func BenchmarkFailover(b *testing.B) {
	for b.Loop() {
		t := newTable(fmt.Sprintf("%d Kustomizations of four objects, all changed", *failoverApps), "",
			"all Ready after s", "left at the kill", "s from the kill to the lease",
			"s from the lease to all Ready", "x the time of that work without a kill", "objects never applied",
			"applied again, not recorded", "applied again, though recorded", "most memory of each, MB")
		f := newFailover(b)
		alone := f.roll("2", false)
		t.row("the leader lives", alone.took.Seconds(), "", "", "", "", alone.lost, alone.again, alone.wrong,
			f.memoryOfEach())
		killed := f.roll("3", true)
		work := alone.took.Seconds() * float64(killed.left) / float64(f.apps)
		ratio := killed.rest.Seconds() / work
		t.row("the leader is killed", killed.took.Seconds(), killed.left, killed.takeover.Seconds(),
			killed.rest.Seconds(), ratio, killed.lost, killed.again, killed.wrong, f.memoryOfEach())
		f.standby.stop()
		b.ReportMetric(float64(alone.lost+killed.lost), "lost")
		b.ReportMetric(float64(alone.wrong+killed.wrong), "twice")
		b.ReportMetric(killed.takeover.Seconds(), "takeover-s")
		b.ReportMetric(ratio, "rest/work")
	}
}

// failover is a fleet with a leader and a standby.
type failover struct {
	*fleet
	flags           []string
	leader, standby *process
}

// rollout is what a commit to all came to.
type rollout struct {
	took     time.Duration // from the request to fetch it until all are Ready
	left     int           // Kustomizations that were not Ready at the kill
	takeover time.Duration // from the kill until the standby had the lease
	rest     time.Duration // from then until all are Ready

	lost, again, wrong int // objects: never applied, applied again, and applied again though a status recorded it
}

func newFailover(b *testing.B) *failover {
	b.Helper()
	f := &failover{fleet: newFleet(b, *failoverApps, fourObjects),
		flags: append(sharedBucket(b), "--enable-leader-election")}
	head := f.commit("1", f.all()...)
	f.declare()
	wait := f.follow(head)
	f.leader = startReplica(b, testenv.Kubeconfig(b), f.namespace, f.flags...)
	testenv.Eventually(b, "the first process leads", func() error {
		_, err := f.lease()
		return err
	})
	f.standby = startReplica(b, testenv.Kubeconfig(b), f.namespace, f.flags...)
	wait()
	return f
}

// lease returns the lease if a process has it.
func (f *failover) lease() (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	key := types.NamespacedName{Namespace: f.namespace, Name: "sluice-leader-election"}
	err := f.client.Get(f.b.Context(), key, lease)
	if err == nil && (lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" ||
		lease.Spec.AcquireTime == nil) {
		err = fmt.Errorf("no process has the lease '%s'", lease.Name)
	}
	return lease, err
}

// mustLease returns the lease. A process must have it.
func (f *failover) mustLease() *coordinationv1.Lease {
	f.b.Helper()
	lease, err := f.lease()
	if err != nil {
		f.b.Fatal(err)
	}
	return lease
}

// roll changes all objects, and kills the leader when half of the Kustomizations are Ready, if asked to.
func (f *failover) roll(version string, kills bool) rollout {
	f.b.Helper()
	head := f.commit(version, f.all()...)
	quiet(f.b)
	before := f.mustLease()
	var r rollout
	var killed time.Time
	log := testenv.NewAuditLog(f.b)
	wait := f.followEach(head, func(done int) {
		if kills && done == (f.apps+1)/2 {
			f.leader.kill()
			killed, r.left = time.Now(), f.apps-done
		}
	})
	start := time.Now()
	f.pull()
	wait()
	end := time.Now()
	r.took = end.Sub(start)
	after := f.mustLease()
	took := after.Spec.AcquireTime.Time
	if changed := *after.Spec.HolderIdentity != *before.Spec.HolderIdentity; changed != kills {
		f.b.Fatalf("the lease of '%s' is that of '%s' after the rollout", *before.Spec.HolderIdentity,
			*after.Spec.HolderIdentity)
	}
	if kills {
		r.takeover, r.rest = took.Sub(killed), end.Sub(took)
	}
	f.judge(&r, log, took)
	r.lost = f.missing(version)
	return r
}

// judge counts objects that were applied more than once. The standby sends nothing before it has the lease, and the
// leader nothing since.
func (f *failover) judge(r *rollout, log *testenv.AuditLog, took time.Time) {
	f.b.Helper()
	sentBy := func(requests []testenv.Request) {
		for i := range requests {
			requests[i].UserAgent = "leader"
			if requests[i].Received.Before(took) {
				requests[i].UserAgent = "former leader"
			}
		}
	}
	statuses := log.Statuses(f.b, f.namespace, "kustomizations")
	for _, of := range statuses {
		sentBy(of)
	}
	for object, applies := range log.Applies(f.b, f.namespace, "serviceaccounts", "services", "deployments",
		"ingresses") {
		sentBy(applies)
		for i, next := range applies[1:] {
			// an object has the name of its Kustomization
			status, isRecorded := testenv.RecordedBetween(applies[i], next,
				statuses[next.Name])
			if !isRecorded {
				r.again++
			} else {
				r.wrong++
				f.b.Errorf("%s: applied at %s, recorded at %s, applied again at %s", object,
					applies[i].Received.Format(time.StampMicro), status.Received.Format(time.StampMicro),
					next.Received.Format(time.StampMicro))
			}
		}
	}
}

// missing returns how many objects do not have a version in the cluster, and fails the benchmark if one does not. The
// audit log does not say it, as the API server may drop a record.
func (f *failover) missing(version string) (missing int) {
	f.b.Helper()
	kinds := map[schema.GroupVersionKind]int{}
	for _, o := range f.objects(func(int) string { return f.namespace }, version) {
		kinds[o.GroupVersionKind()]++
	}
	for kind, n := range kinds {
		var list metav1.PartialObjectMetadataList
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		err := f.client.List(f.b.Context(), &list, client.InNamespace(f.namespace),
			client.MatchingLabels{"version": version})
		if err != nil {
			f.b.Fatal(err)
		}
		if len(list.Items) != n {
			missing += n - len(list.Items)
			f.b.Errorf("%d of %d objects of kind %s have version %s", len(list.Items), n, kind.Kind, version)
		}
	}
	return missing
}

// memoryOfEach returns the most memory of the processes that run.
func (f *failover) memoryOfEach() string {
	f.b.Helper()
	text := fmt.Sprintf("%.0f", f.standby.memory("VmHWM"))
	if f.leader.command.ProcessState == nil {
		text = fmt.Sprintf("%.0f, %s", f.leader.memory("VmHWM"), text)
	}
	return text
}
