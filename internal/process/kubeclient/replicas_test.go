package kubeclient_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/reconcile/shard"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/s3server"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// replicas are processes that share all objects of a namespace.
type replicas struct {
	*system.System
	all []*system.System
}

func newReplicas(t *testing.T, n int, configure ...func(*options.Options)) *replicas {
	t.Helper()
	server := s3server.New(t)
	server.MakeBucket("artifacts")
	s := system.Prepare(t, append([]func(*options.Options){func(o *options.Options) {
		o.AutoShards, o.StorageAdvAddr = true, "sluice.example"
		// no lease ends although the machine stands still
		o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = 20*time.Minute, 15*time.Minute, 2*time.Second
	}}, configure...)...)
	s.Backend = artifact.S3Options{Endpoint: server.URL, Bucket: "artifacts", Region: "us-east-1"}
	r := &replicas{System: s}
	for range n {
		r.add()
	}
	r.agree(n)
	return r
}

// add starts one more replica, with a storage of its own.
func (r *replicas) add() *system.System {
	r.Helper()
	s := r.For(r.T)
	s.Storage, s.Requests = r.TempDir(), &system.Requests{}
	s.Start()
	r.all = append(r.all, s)
	return s
}

// agree waits until the leases of n replicas exist, and all name the same n replicas.
func (r *replicas) agree(n int) {
	r.Helper()
	testenv.Eventually(r, "the replicas do not agree", func() error {
		leases := r.leases()
		var ids []string
		for _, l := range leases {
			ids = append(ids, *l.Spec.HolderIdentity)
		}
		if len(ids) != n {
			return fmt.Errorf("%d replicas have a lease, want %d", len(ids), n)
		}
		for _, l := range leases {
			if view := shard.ParseView(l.Annotations[kubeclient.ViewAnnotation]); !view.Equal(shard.NewView(ids...)) {
				return fmt.Errorf("replica %s acts on %q, want %q", *l.Spec.HolderIdentity, view, ids)
			}
		}
		return nil
	})
}

// leases returns the Leases of the replicas.
func (r *replicas) leases() []coordinationv1.Lease {
	r.Helper()
	leases := &coordinationv1.LeaseList{}
	if err := r.Client.List(r.Context(), leases, client.InNamespace(r.Namespace),
		client.HasLabels{kubeclient.ReplicasLabel}); err != nil {
		r.Fatal(err)
	}
	return leases.Items
}

// mirrorsOf returns the number of git mirrors on the disk of a replica.
func mirrorsOf(s *system.System) int {
	found, err := filepath.Glob(filepath.Join(s.Storage, "mirrors", "*", "gen-*"))
	if err != nil {
		s.Fatal(err)
	}
	return len(found)
}

// apps creates Kustomizations of one source, each with a ConfigMap of its own, and returns the commit.
func (r *replicas) apps(n int, change ...func(*kustomizev1.Kustomization)) string {
	r.Helper()
	files := map[string]string{}
	for i := range n {
		files[fmt.Sprintf("%d/cm.yaml", i)] = system.ConfigMap(fmt.Sprintf("app-%d", i), "1")
	}
	commit := r.Git.Commit("app", files)
	r.GitRepository("app")
	r.GitRepository("app-again", func(g *sourcev1.GitRepository) { g.Spec.URL = r.Git.URL + "/app" })
	for i := range n {
		r.Kustomization(fmt.Sprintf("app-%d", i), "app", fmt.Sprintf("./%d", i), change...)
	}
	return commit
}

// change commits a value of all ConfigMaps.
func (r *replicas) change(n int, value string) string {
	r.Helper()
	files := map[string]string{}
	for i := range n {
		files[fmt.Sprintf("%d/cm.yaml", i)] = system.ConfigMap(fmt.Sprintf("app-%d", i), value)
	}
	commit := r.Git.Commit("app", files)
	r.RequestFetch("app")
	return commit
}

func (r *replicas) allReady(n int, commit string) {
	r.Helper()
	for i := range n {
		r.Ready(fmt.Sprintf("app-%d", i), commit)
	}
}

// writers returns the replicas that patched the status of a Kustomization.
func (r *replicas) writers(name string) (found []int) {
	for i, s := range r.all {
		if len(s.Requests.Matching("PATCH /apis/"+kustomizev1.GroupVersion.String()+"/namespaces/"+r.Namespace+
			"/kustomizations/"+name+"/status?")) > 0 {
			found = append(found, i)
		}
	}
	return found
}

// owned returns how many of the Kustomizations each replica has to reconcile, if it has any, from few to many.
func (r *replicas) owned(apps int) []int {
	var ids []string
	for _, l := range r.leases() {
		ids = append(ids, *l.Spec.HolderIdentity)
	}
	view, owned := shard.NewView(ids...), map[string]int{}
	kind := kustomizev1.GroupVersion.WithKind(kustomizev1.KustomizationKind).GroupKind()
	for i := range apps {
		app := reconcile.RefTo(kind, r.Namespace, fmt.Sprintf("app-%d", i))
		owned[view.Owner(app.ShardKey())]++
	}
	return slices.Sorted(maps.Values(owned))
}

// TestReplicasShareAllObjects has three replicas. One is asked to stop, and two more start. Each object is reconciled
// by exactly one of them, whichever reconciles its source, and one of them has the mirror of a repository.
func TestReplicasShareAllObjects(t *testing.T) {
	t.Parallel()
	const apps = 24
	r := newReplicas(t, 3)
	commit := r.apps(apps)
	r.allReady(apps, commit)
	shares := map[int]int{}
	for i := range apps {
		name := fmt.Sprintf("app-%d", i)
		writers := r.writers(name)
		if len(writers) != 1 {
			t.Fatalf("the status of %s was written by the replicas %v, want one", name, writers)
		}
		shares[writers[0]]++
	}
	if got, want := slices.Sorted(maps.Values(shares)), r.owned(apps); !slices.Equal(got, want) {
		t.Errorf("the replicas reconciled %v objects, want %v", got, want)
	}
	r.GitRepositoryReady("app-again", commit)
	mirrors := 0
	for _, s := range r.all {
		mirrors += mirrorsOf(s)
	}
	if mirrors != 1 {
		t.Errorf("%d replicas have a mirror of the repository, want 1", mirrors)
	}

	stopped := slices.Max(r.writers("app-0"))
	r.all[stopped].Stop()
	r.agree(2)
	commit = r.change(apps, "2")
	r.allReady(apps, commit)

	for _, s := range r.all {
		s.Requests.Reset()
	}
	r.add()
	r.add()
	r.agree(4)
	commit = r.change(apps, "3")
	r.allReady(apps, commit)
	shares = map[int]int{}
	for i := range apps {
		writers := r.writers(fmt.Sprintf("app-%d", i))
		shares[writers[len(writers)-1]]++
	}
	got, want := slices.Sorted(maps.Values(shares)), r.owned(apps)
	if !slices.Equal(got, want) || shares[stopped] != 0 {
		t.Errorf("shares of the replicas: %v, want %v; 3 and 4 joined, %d stopped", shares, want, stopped)
	}
	for i := range apps {
		r.ConfigMapHas(fmt.Sprintf("app-%d", i), "3")
	}
}

// TestReplicaForgetsObjectsThatMoveAway lets objects move to another replica, which changes them, and back. The first
// replica drops what it keeps about them, such as mirrors, and does not take what it applied before for what is there.
func TestReplicaForgetsObjectsThatMoveAway(t *testing.T) {
	t.Parallel()
	const apps = 8
	r := newReplicas(t, 1)
	r.allReady(apps, r.apps(apps))
	first := r.leases()[0]
	repositories := []string{r.Git.URL + "/app"}
	for i := range 8 {
		name := fmt.Sprintf("repository-%d", i)
		commit := r.Git.Commit(name, map[string]string{"a": "b"})
		r.GitRepository(name)
		r.GitRepositoryReady(name, commit)
		repositories = append(repositories, r.Git.URL+"/"+name)
	}
	other := r.add()
	r.agree(2)
	var ids []string
	for _, l := range r.leases() {
		ids = append(ids, *l.Spec.HolderIdentity)
	}
	kept := 0
	for _, url := range repositories {
		if shard.NewView(ids...).Owner("git/"+url) == *first.Spec.HolderIdentity {
			kept++
		}
	}
	testenv.Eventually(t, "the mirrors of other replicas stay", func() error {
		if n := mirrorsOf(r.all[0]); n != kept {
			return fmt.Errorf("%d mirrors, want %d of %d", n, kept, len(repositories))
		}
		return nil
	})
	r.allReady(apps, r.change(apps, "2"))
	other.Stop()
	r.agree(1)
	r.allReady(apps, r.change(apps, "1"))
	for i := range apps {
		r.ConfigMapHas(fmt.Sprintf("app-%d", i), "1")
	}
}

// TestGatesKnowWhatWaitsOnOtherReplicas has a closed gate before objects of three replicas.
func TestGatesKnowWhatWaitsOnOtherReplicas(t *testing.T) {
	t.Parallel()
	const apps = 9
	r := newReplicas(t, 3)
	r.Gate("release", func(g *gatingv1.Gate) {
		g.Spec.Selector = &gatingv1.Selector{Kinds: []gatingv1.SelectedKind{kustomizev1.KustomizationKind},
			Objects: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}}
	})
	commit := r.apps(apps, func(k *kustomizev1.Kustomization) { k.Labels = map[string]string{"app": "x"} })
	for i := range apps {
		r.WaitsFor(fmt.Sprintf("app-%d", i), commit)
	}
	r.waits("release", apps)
	r.TurnGate("release", gatingv1.Opened)
	r.allReady(apps, commit)
	r.waits("release", 0)
}

// TestGatesKnowWhatWaitsOnOtherShards has a closed gate before objects of two shards, which labels divide. Both
// processes reconcile the gate, and say the same.
func TestGatesKnowWhatWaitsOnOtherShards(t *testing.T) {
	t.Parallel()
	const key = "sharding.fluxcd.io/key"
	first := system.Prepare(t, func(o *options.Options) { o.WatchLabelSelector = key + "=first" })
	second := first.For(t)
	second.Storage = t.TempDir()
	second.Configure = []func(*options.Options){func(o *options.Options) { o.WatchLabelSelector = key + "=second" }}
	first.Start()
	second.Start()
	r := &replicas{System: first}
	r.Gate("release", func(g *gatingv1.Gate) {
		g.Spec.Selector = &gatingv1.Selector{Kinds: []gatingv1.SelectedKind{kustomizev1.KustomizationKind}}
	})
	shard := func(name string) map[string]string { return map[string]string{key: name} }
	commit := r.Git.Commit("app", map[string]string{"cm.yaml": system.ConfigMap("cm", "1")})
	r.GitRepository("app", func(g *sourcev1.GitRepository) { g.Labels = shard("first") })
	for _, name := range []string{"first", "second"} {
		r.Kustomization(name, "app", "", func(k *kustomizev1.Kustomization) { k.Labels = shard(name) })
		r.WaitsFor(name, commit)
	}
	r.waits("release", 2)
	for range 2 { // each of them reconciles the gate again
		r.RequestReconcile(&gatingv1.Gate{}, "release")
		r.waits("release", 2)
	}
	r.TurnGate("release", gatingv1.Opened)
	r.Ready("first", commit)
	r.Ready("second", commit)
	r.waits("release", 0)
}

// waits waits until the status of a gate says that n objects wait for it.
func (r *replicas) waits(gate string, n int64) {
	r.Helper()
	testenv.Eventually(r, "the gate lists other objects", func() error {
		g := &gatingv1.Gate{}
		if err := r.Get(g, gate); err != nil {
			return err
		}
		if g.Status.WaitingCount != n {
			return fmt.Errorf("%d objects wait: %+v", g.Status.WaitingCount, g.Status.Waiting)
		}
		return nil
	})
}

// TestReplicaThatLostItsLease has a Lease that is deleted. The replica takes part again with another.
func TestReplicaThatLostItsLease(t *testing.T) {
	t.Parallel()
	r := newReplicas(t, 2)
	commit := r.apps(6)
	r.allReady(6, commit)
	lost := &r.leases()[0]
	if err := r.Client.Delete(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the replica does not take part again", func() error {
		var names []string
		for _, l := range r.leases() {
			names = append(names, l.Name)
		}
		if len(names) != 2 || slices.Contains(names, lost.Name) {
			return fmt.Errorf("leases %v, want two, and not %s", names, lost.Name)
		}
		return nil
	})
	r.agree(2)
	commit = r.change(6, "2")
	r.allReady(6, commit)
}

// TestObjectsOfADeadReplicaMoveWhenItsLeaseEnds has a Lease of a replica that claims all objects, and whose process
// does nothing. The other replica leaves them alone while the Lease is renewed, and has them when it ended.
func TestObjectsOfADeadReplicaMoveWhenItsLeaseEnds(t *testing.T) {
	t.Parallel()
	clock := testclock.NewFakeClock(time.Now().Truncate(time.Second))
	r := newReplicas(t, 1, func(o *options.Options) {
		o.Clock = clock
		o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = 30*time.Second, 25*time.Second, 100*time.Millisecond
	})
	commit := r.apps(3)
	r.allReady(3, commit)
	alive := r.leases()[0]
	now := metav1.NewMicroTime(clock.Now())
	dead := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: "sluice-replica-dead",
		Labels: alive.Labels, Annotations: map[string]string{kubeclient.ViewAnnotation: "dead"}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("dead"), RenewTime: &now,
			LeaseDurationSeconds: ptr.To(int32(1))}} // the replica waits for as long as its own lease lasts
	r.Create(dead)
	// tick lets a second pass, and returns once the replica has renewed its own lease after that.
	tick := func() (view string) {
		clock.Step(time.Second)
		testenv.Eventually(t, "the replica does not renew its lease", func() error {
			l := &coordinationv1.Lease{}
			if err := r.Get(l, alive.Name); err != nil {
				return err
			}
			if view = l.Annotations[kubeclient.ViewAnnotation]; l.Spec.RenewTime.Time.Before(clock.Now()) {
				return fmt.Errorf("renewed at %s for %s", l.Spec.RenewTime, view)
			}
			return nil
		})
		return view
	}
	renew := func() {
		now := metav1.NewMicroTime(clock.Now())
		r.Update(dead, dead.Name, func() { dead.Spec.RenewTime = &now })
		tick()
	}
	testenv.Eventually(t, "the replica knows the other one", func() error {
		if view := tick(); !strings.Contains(view, "dead") {
			return fmt.Errorf("it acts on %s", view)
		}
		return nil
	})
	renew()
	renew()
	r.all[0].Requests.Reset()
	commit = r.change(3, "2")
	renew()
	renew()
	if written := r.all[0].Requests.Matching("PATCH "); len(written) > 0 {
		t.Errorf("the replica wrote objects of another one: %v", written)
	}
	for range 35 { // the lease lasts 30 seconds after the replica has seen it renewed
		tick()
	}
	r.allReady(3, commit)
}

// TestAutoShardsNeedABucket checks what a process without a storage backend says.
func TestAutoShardsNeedABucket(t *testing.T) {
	t.Parallel()
	s := system.Prepare(t, func(o *options.Options) { o.AutoShards = true })
	o := s.Options()
	const want = "--auto-shards needs a bucket from which each replica gets the artifacts of the others: set " +
		"--storage-backend-s3-endpoint and --storage-backend-s3-bucket"
	if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	o.Backend = artifact.S3Options{Endpoint: "https://s3.example", Bucket: "b"}
	o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = 30*time.Second, 25*time.Second, 2*time.Second
	if err := o.Validate(); err != nil {
		t.Error(err)
	}
	o.RenewDeadline = o.LeaseDuration
	if o.Validate() == nil {
		t.Error("a lease that ends before the renew deadline was accepted")
	}
}
