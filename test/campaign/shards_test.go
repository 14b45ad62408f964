package campaign

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/s3server"
)

const (
	shardedApps    = 60
	shardedObjects = 2 // of each Kustomization
)

// TestCampaignShards has three replicas that share all objects. In the middle of a rollout, one of them is killed,
// stopped or cut off until its lease has ended, or replicas join and leave. No object may be written by two replicas at
// a time, none may be lost, and none may be applied again after its Kustomization recorded it.
func TestCampaignShards(t *testing.T) {
	const short, full = 2, 60
	e := begin(t, short, full)
	s := newSharded(t)
	losses := []func(random *rand.Rand){s.kill, s.stop, s.cut, s.grow, s.shrink}
	e.each(func(i int, random *rand.Rand) {
		s.commit(i + 1)
		<-time.After(time.Duration(random.IntN(2000)) * time.Millisecond)
		losses[i%len(losses)](random)
		s.completes()
		s.mustBeOrderly()
		s.members(3)
	})
	e.note("%d rollouts of %d Kustomizations: %d kills, %d stops, %d partitions, %d times 5 replicas, %d times 1; %d "+
		"writes of objects, %d repeated as they were in flight, by %d replicas at most; slowest rollout %s", e.count,
		shardedApps, s.count["kill"], s.count["stop"], s.count["cut"], s.count["grow"], s.count["shrink"], s.writes,
		s.repeated, s.writers, s.slowest.Round(time.Second))
}

// sharded is a tenant with replicas that share all objects.
type sharded struct {
	*leased
	replicas []*replica // those that run
	spare    []*replica // those that have ended
	began    time.Time
	since    *testenv.AuditLog // of the last commit
	count    map[string]int

	writes, repeated, writers int
}

func newSharded(t *testing.T) *sharded {
	t.Helper()
	s3 := s3server.New(t)
	s3.MakeBucket("artifacts")
	s := &sharded{leased: &leased{tenant: newTenant(t, testenv.NewGit(t))}, count: map[string]int{}}
	s.flags = []string{"--storage-backend-s3-endpoint", s3.URL, "--storage-backend-s3-bucket", "artifacts",
		"--auto-shards"}
	s.env = []string{"AWS_ACCESS_KEY_ID=" + s3server.AccessKey, "AWS_SECRET_ACCESS_KEY=" + s3server.SecretKey}
	s.commit(0)
	s.members(3)
	s.create(s.source("app"))
	for i := range shardedApps {
		s.create(s.app(fmt.Sprint("app-", i), func(k *kustomizev1.Kustomization) { k.Spec.Path = fmt.Sprint("./", i) }))
	}
	s.completes()
	return s
}

// members starts or stops replicas until there are n, each under a name that none had before.
func (s *sharded) members(n int) {
	s.Helper()
	for len(s.replicas) > n {
		s.end(0, syscall.SIGTERM)
	}
	for len(s.replicas) < n {
		if len(s.spare) == 0 {
			s.replicas = append(s.replicas, s.start())
			continue
		}
		r := s.spare[0]
		s.spare = s.spare[1:]
		s.rename(r)
		r.launch()
		r.runs()
		s.replicas = append(s.replicas, r)
	}
}

// end ends a replica by a signal.
func (s *sharded) end(i int, signal syscall.Signal) {
	s.Helper()
	r := s.replicas[i]
	s.replicas = slices.Delete(s.replicas, i, i+1)
	r.controller.stop(signal)
	s.spare = append(s.spare, r)
}

func (s *sharded) kill(random *rand.Rand) {
	s.count["kill"]++
	s.end(random.IntN(len(s.replicas)), syscall.SIGKILL)
}

func (s *sharded) stop(random *rand.Rand) {
	s.count["stop"]++
	r := s.replicas[random.IntN(len(s.replicas))]
	s.signal(r, syscall.SIGSTOP)
	<-time.After(leaseDuration + time.Duration(random.IntN(4000))*time.Millisecond)
	s.signal(r, syscall.SIGCONT)
}

func (s *sharded) cut(random *rand.Rand) {
	s.count["cut"]++
	r := s.replicas[random.IntN(len(s.replicas))]
	r.proxy.partition(true)
	<-time.After(leaseDuration + time.Duration(random.IntN(4000))*time.Millisecond)
	r.proxy.partition(false)
}

func (s *sharded) grow(*rand.Rand) {
	s.count["grow"]++
	s.members(5)
}

func (s *sharded) shrink(*rand.Rand) {
	s.count["shrink"]++
	s.members(5)
	s.members(1)
}

// commit changes the objects of all Kustomizations, and requests a fetch.
func (s *sharded) commit(n int) {
	s.Helper()
	files := map[string]string{}
	s.wanted = map[string]string{}
	for i := range shardedApps {
		for j := range shardedObjects {
			name := fmt.Sprintf("cm-%d-%d", i, j)
			s.wanted[name] = fmt.Sprint(n)
			files[fmt.Sprintf("%d/%d.yaml", i, j)] = configMap(name, s.wanted[name])
		}
	}
	s.since, s.began = testenv.NewAuditLog(s), time.Now()
	isFirst := s.head == ""
	s.head = s.git.Commit(s.repo, files)
	if !isFirst {
		s.fetch()
	}
}

// completes waits until all Kustomizations are Ready with the last commit.
func (s *sharded) completes() {
	s.Helper()
	testenv.Eventually(s, "the last commit is applied", func() error {
		var list kustomizev1.KustomizationList
		if err := s.client.List(s.Context(), &list, client.InNamespace(s.namespace)); err != nil {
			return err
		}
		for i := range list.Items {
			k := &list.Items[i]
			if !strings.HasSuffix(k.Status.LastAppliedRevision, s.head) || !reconcile.IsReady(k) {
				return fmt.Errorf("%s: %v", k.Name, k.Status.Conditions)
			}
		}
		return errors.Join(s.hasObjects(s.wanted), s.live())
	})
	s.slowest = max(s.slowest, time.Since(s.began))
}

// live fails the test if a replica has ended by itself.
func (s *sharded) live() error {
	s.Helper()
	for _, r := range s.replicas {
		r.mustLive()
	}
	return nil
}

// mustBeOrderly fails the test if two replicas wrote an object at once or in turns, or if an object was applied again
// after the replica that applied it had recorded it in the status of its Kustomization.
func (s *sharded) mustBeOrderly() {
	s.Helper()
	statuses := s.since.Statuses(s, s.namespace, "kustomizations")
	agents := map[string]bool{}
	for _, writes := range s.since.Applies(s, s.namespace, "configmaps") {
		s.writes += len(writes)
		s.repeated += len(writes) - 1
		app := "app-" + strings.Split(writes[0].Name, "-")[1]
		for i, w := range writes {
			agents[w.UserAgent] = true
			if i > 0 {
				s.compare(writes[:i], w, statuses[app])
			}
		}
	}
	s.writers = max(s.writers, len(agents))
}

// compare fails the test if a write of an object must not follow those before.
func (s *sharded) compare(before []testenv.Request, next testenv.Request, statuses []testenv.Request) {
	s.Helper()
	last := before[len(before)-1]
	print := func(r testenv.Request) string {
		return fmt.Sprintf("%s from %s to %s", r.UserAgent, r.Received.Format(time.StampMicro),
			r.Answered.Format(time.StampMicro))
	}
	if last.UserAgent != next.UserAgent && next.Received.Before(last.Answered) {
		s.Errorf("%s: two replicas wrote at once: %s, and %s", next.Name, print(last), print(next))
	}
	for _, r := range before[:len(before)-1] {
		if r.UserAgent == next.UserAgent && last.UserAgent != next.UserAgent {
			s.Errorf("%s: replicas wrote in turns: %s, %s, and %s", next.Name, print(r), print(last), print(next))
		}
	}
	if r, ok := testenv.RecordedBetween(last, next, statuses); ok {
		s.Errorf("%s: applied by %s, recorded by %s, and applied again by %s", next.Name, print(last), print(r),
			print(next))
	}
}
