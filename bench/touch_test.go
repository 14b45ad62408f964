package bench

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/stubapi"
)

var touched = flag.Int("touched", 2000, "how many Kustomizations BenchmarkTouch and BenchmarkNotes have")

var commits = flag.Int("commits", 100, "how many commits BenchmarkNotes has")

// notesAtOnce is half of --concurrent.
const notesAtOnce = 5

// BenchmarkTouch changes one of many Kustomizations of a repository by a commit, and another one by a further commit
// while the others still note the first. It measures how long each change takes, from the request to fetch it, and
// until all have noted the revision.
func BenchmarkTouch(b *testing.B) {
	f := newFleet(b, *touched, func(app int, version string) []string {
		return []string{configMap(appName(app), version)}
	})
	head := f.commit("1", f.all()...)
	f.declare()
	t := newTable(fmt.Sprintf("%d Kustomizations, two commits that touch one each", *touched), "",
		"the change is applied, s", "all have noted it, s", "status writes", "CPU s", "API server CPU s")
	for b.Loop() {
		wait := f.follow(head)
		p := startController(b, f.namespace)
		wait()
		for round := range 3 {
			quiet(b)
			log, before := testenv.NewAuditLog(b), p.usage()
			f.commit(fmt.Sprint("first", round), 7)
			first := f.pullAndTime(7, fmt.Sprint("first", round))
			head = f.commit(fmt.Sprint("second", round), 1500%*touched)
			wait := f.follow(head)
			second := f.pullAndTime(1500%*touched, fmt.Sprint("second", round))
			wait()
			used := since(before, p.usage())
			statuses := p.requests(log, testenv.Request{Verb: "patch", Resource: "kustomizations",
				Subresource: "status"})
			bare := f.noteBare(round)
			t.row("first", first.Seconds(), "", "", "", "")
			t.row("second, meanwhile", second.Seconds(), used.took.Seconds(), statuses, used.cpu.Seconds(),
				used.server.Seconds())
			t.row("bare loop of status writes", "", bare.took.Seconds(), *touched, bare.cpu.Seconds(),
				bare.server.Seconds())
			b.ReportMetric(used.took.Seconds()/bare.took.Seconds(), fmt.Sprintf("x-loop-%d", round))
		}
		p.stop()
	}
}

// noteBare notes another revision in all statuses, without anything else: the least that a commit costs which all
// Kustomizations note. It has as many workers as notes have, and is followed as they are.
func (f *fleet) noteBare(round int) measured {
	b := f.b
	b.Helper()
	hash := fmt.Sprintf("%040d", round)
	quiet(b)
	var list kustomizev1.KustomizationList
	if err := f.client.List(b.Context(), &list, client.InNamespace(f.namespace)); err != nil {
		b.Fatal(err)
	}
	wait := f.follow(hash)
	start, cpu, server := time.Now(), processor(b), cpuTime(b, testenv.ClusterPID(b))
	var notes sync.WaitGroup
	notes.Go(func() {
		inParallelBy(notesAtOnce, list.Items, func(k kustomizev1.Kustomization) {
			if err := patchNote(b.Context(), f.client, k, "main@sha1:"+hash); err != nil {
				b.Error(err)
			}
		})
	})
	wait()
	notes.Wait()
	return measured{took: time.Since(start), cpu: processor(b) - cpu,
		server: cpuTime(b, testenv.ClusterPID(b)) - server}
}

// patchNote patches what the note of a revision patches.
func patchNote(ctx context.Context, c client.Client, k kustomizev1.Kustomization, revision string) error {
	before := k.DeepCopy()
	k.Status.LastAppliedRevision, k.Status.LastAttemptedRevision = revision, revision
	for i := range k.Status.Conditions {
		k.Status.Conditions[i].Message = "Applied revision: " + revision
	}
	return c.Status().Patch(ctx, &k, client.MergeFrom(before))
}

// pullAndTime asks for a fetch, and returns how long it takes until the ConfigMap of an app has the version.
func (f *fleet) pullAndTime(app int, version string) time.Duration {
	f.b.Helper()
	start := time.Now()
	f.pull()
	name := types.NamespacedName{Namespace: f.namespace, Name: appName(app)}
	for {
		var cm corev1.ConfigMap
		if err := f.client.Get(f.b.Context(), name, &cm); err != nil {
			f.b.Fatal(err)
		}
		if cm.Data["version"] == version {
			return time.Since(start)
		}
		if time.Since(start) > *patient {
			f.b.Fatalf("%s is not applied within %s", name, *patient)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// BenchmarkNotes commits a hundred times to one of many Kustomizations against a stub API server (`-latency` is what
// it adds to each request). It measures how long it takes until that one is applied, how many others have noted the
// commit by then, and how long until all have, compared with a bare loop of equal patches by as many workers.
func BenchmarkNotes(b *testing.B) {
	for b.Loop() {
		s := newSimulation(b, *touched, 1, *latency)
		s.declareSources()
		s.declareApps()
		wait := s.follow(0)
		p := s.start(b.TempDir())
		wait(func(int, string) {})
		var applied []float64
		var all, bare measured
		before, most := 0, 0
		for i := range *commits {
			s.settled(p)
			app, version := (i*997+1)%s.apps, fmt.Sprint("commit-", i)
			s.commit(version, app)
			feed, wait := s.cluster.Feed("configmaps"), s.follow(0)
			written, cpu, server, start := s.notes(), p.cpu(), processor(b), time.Now()
			s.pull(0)
			s.awaitVersion(feed, fmt.Sprintf("app-%06d", app), version)
			applied = append(applied, time.Since(start).Seconds())
			before, most = before+s.notes()-written, max(most, s.notes()-written)
			wait(func(int, string) {})
			all = all.plus(measured{took: time.Since(start), cpu: p.cpu() - cpu, server: processor(b) - server})
			bare = bare.plus(s.noteBare(i))
		}
		slices.Sort(applied)
		last, rounds := len(applied)-1, float64(*commits)
		newTable(fmt.Sprintf("%d commits that touch one of %d, on a stub", *commits, s.apps), "applied after s, median",
			"99th percentile", "worst", "notes before it, mean", "most", "all noted after s, mean", "x loop",
			"CPU s a commit", "all CPU x loop").
			row(applied[last/2], applied[last*99/100], applied[last], float64(before)/rounds, most,
				all.took.Seconds()/rounds, all.took.Seconds()/bare.took.Seconds(), all.cpu.Seconds()/rounds,
				(all.cpu+all.server).Seconds()/bare.cpu.Seconds())
		p.stop()
	}
}

// plus returns the sum of two measurements.
func (m measured) plus(other measured) measured {
	return measured{took: m.took + other.took, cpu: m.cpu + other.cpu, server: m.server + other.server}
}

// notes returns how many statuses of Kustomizations were written.
func (s *simulation) notes() int { return s.cluster.Requests()["patch kustomizations/status"] }

// awaitVersion waits until a ConfigMap has the version.
func (s *simulation) awaitVersion(feed *stubapi.Feed, name, version string) {
	s.b.Helper()
	ctx, cancel := context.WithTimeout(s.b.Context(), *patient)
	defer cancel()
	for {
		objects, ok := feed.Next(ctx)
		if !ok {
			s.b.Fatalf("%s is not applied within %s", name, *patient)
		}
		for _, o := range objects {
			cm := &corev1.ConfigMap{}
			if err := json.Unmarshal(o, cm); err != nil {
				s.b.Fatal(err)
			}
			if cm.Name == name && cm.Data["version"] == version {
				return
			}
		}
	}
}

// noteBare patches what notes patch in all statuses, with as many workers. Its CPU time includes that of the stub.
func (s *simulation) noteBare(round int) measured {
	s.b.Helper()
	var all kustomizev1.KustomizationList
	if err := s.client.List(s.b.Context(), &all, client.InNamespace(simulatedNamespace)); err != nil {
		s.b.Fatal(err)
	}
	config := s.cluster.Config()
	config.UserAgent = s.cluster.Delayed
	c, err := client.New(config, client.Options{Scheme: kubeclient.Scheme()})
	if err != nil {
		s.b.Fatal(err)
	}
	revision := fmt.Sprintf("main@sha1:%040d", round)
	start, cpu := time.Now(), processor(s.b)
	inParallelBy(notesAtOnce, all.Items, func(k kustomizev1.Kustomization) {
		if err := patchNote(s.b.Context(), c, k, revision); err != nil {
			s.b.Error(err)
		}
	})
	return measured{took: time.Since(start), cpu: processor(s.b) - cpu}
}
