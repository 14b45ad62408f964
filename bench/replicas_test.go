package bench

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/s3server"
)

const replicaCount = 3

var (
	replicaApps    = flag.Int("shared", 2000, "how many Kustomizations the replicas of BenchmarkReplicas share")
	replicaLatency = flag.Duration("replica-latency", 100*time.Millisecond,
		"what its API server adds to each request, so that neither the API server nor the processors are the limit")
	sharing = flag.String("sharing", "auto", "how its replicas share the objects: auto or label")
)

// BenchmarkReplicas compares three replicas with one, by the time until new Kustomizations are Ready. They wait for a
// slow API server most of the time, as on a machine with enough processors.
func BenchmarkReplicas(b *testing.B) {
	for b.Loop() {
		t := newTable(fmt.Sprintf("%d Kustomizations of 1.5 ConfigMaps, an API server that takes %s for each request",
			*replicaApps, *replicaLatency), "replicas", "s", "Kustomizations a second", "x one replica", "CPU s of all",
			"most memory of one, MB", "requests each",
			"passes by each, % of all objects")
		one := shareWork(b, t, 1, 0)
		three := shareWork(b, t, replicaCount, one)
		b.ReportMetric(three/one, "x-throughput")
	}
}

// shareWork measures how many Kustomizations a second become Ready with some replicas. One is the result with one.
func shareWork(b *testing.B, t *table, replicas int, one float64) (perSecond float64) {
	b.Helper()
	s := newSimulation(b, *replicaApps, *simulatedSources, *replicaLatency)
	s.declareSources()
	all := s.startReplicas(replicas)
	sources := make([]int, s.sources)
	for source := range sources {
		sources[source] = source
	}
	testenv.Eventually(b, "the sources are Ready", s.sourcesReady)
	var cpu time.Duration
	for _, p := range all {
		cpu -= p.cpu()
	}
	wait, start, before := s.follow(sources...), time.Now(), s.cluster.Requests()
	s.declareApps()
	wait(func(int, string) {})
	took, memory := time.Since(start), 0.0
	requests := float64(s.requestsSince(before)) / float64(s.apps)
	var passes []string
	for _, p := range all {
		cpu += p.cpu()
		memory = max(memory, p.memory("VmHWM"))
		passes = append(passes, fmt.Sprintf("%.0f", 100*s.passesOf(p)))
		p.stop()
	}
	if perSecond = float64(s.apps) / took.Seconds(); one == 0 {
		one = perSecond
	}
	t.row(replicas, took.Seconds(), perSecond, perSecond/one, cpu.Seconds(), memory, requests,
		strings.Join(passes, ", "))
	return perSecond
}

// startReplicas starts replicas that share the objects, and waits until all know each other.
func (s *simulation) startReplicas(replicas int) (all []*process) {
	s.b.Helper()
	var shared []string
	if *sharing == "auto" {
		shared = append(sharedBucket(s.b), "--auto-shards")
	}
	for n := range replicas {
		flags := slices.Clone(shared)
		if *sharing == "label" && replicas > 1 {
			flags = append(flags, "--watch-label-selector", fmt.Sprintf("%s=%d", shardLabel, n))
		}
		all = append(all, startReplica(s.b, s.cluster.Kubeconfig, simulatedNamespace, flags...))
	}
	if *sharing == "auto" {
		testenv.Eventually(s.b, "the replicas share", func() error { return s.share(replicas) })
	}
	return all
}

// sharedBucket returns the flags of replicas that have a bucket.
func sharedBucket(b *testing.B) []string {
	b.Helper()
	s3 := s3server.New(b)
	s3.MakeBucket("artifacts")
	b.Setenv("AWS_ACCESS_KEY_ID", s3server.AccessKey)
	b.Setenv("AWS_SECRET_ACCESS_KEY", s3server.SecretKey)
	return []string{"--storage-backend-s3-endpoint", s3.URL, "--storage-backend-s3-bucket", "artifacts"}
}

// startReplica runs bin/sluice with an address for artifacts of its own.
func startReplica(b *testing.B, kubeconfig, namespace string, flags ...string) *process {
	b.Helper()
	address := testenv.FreeAddress(b)
	return startProcess(b, kubeconfig, namespace, b.TempDir(),
		append([]string{"--storage-addr", address, "--storage-adv-addr", address}, flags...)...)
}

// share returns an error unless the lease of each replica names all of them.
func (s *simulation) share(replicas int) error {
	var leases coordinationv1.LeaseList
	if err := s.client.List(s.b.Context(), &leases, client.HasLabels{"shards.sluice.dev/group"}); err != nil {
		return err
	}
	for _, l := range leases.Items {
		names := l.Annotations["shards.sluice.dev/replicas"]
		if len(leases.Items) != replicas || len(strings.Split(names, ",")) != replicas {
			return fmt.Errorf("%d leases, and '%s' shares with '%s'", len(leases.Items), l.Name, names)
		}
	}
	if len(leases.Items) != replicas {
		return fmt.Errorf("%d leases", len(leases.Items))
	}
	return nil
}

// sourcesReady returns an error unless all sources are Ready.
func (s *simulation) sourcesReady() error {
	var list sourcev1.GitRepositoryList
	if err := s.client.List(s.b.Context(), &list); err != nil {
		return err
	}
	for n := range list.Items {
		if !reconcile.IsReady(&list.Items[n]) {
			return errors.New(list.Items[n].Name + " is not Ready")
		}
	}
	return nil
}

// passesOf returns the part of the Kustomizations that a replica reconciled.
func (s *simulation) passesOf(p *process) float64 {
	s.b.Helper()
	metrics, err := p.scrape()
	if err != nil {
		s.b.Fatal(err)
	}
	n := 0
	for name := range metrics {
		if strings.HasPrefix(name, `gotk_reconcile_duration_seconds_count{kind="Kustomization"`) {
			n++
		}
	}
	return float64(n) / float64(s.apps)
}
