package bench

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

var (
	scaleApps     = flag.Int("kustomizations", 300, "how many Kustomizations of five objects BenchmarkScale has")
	scaleSources  = flag.Int("sources", 30, "how many GitRepositories they share")
	scaleReleases = flag.Int("helmreleases", 20, "how many HelmReleases of four objects it has")
	scaleReplicas = flag.Int("replicas", 1, "how many processes share all of them, with a bucket if there are several")
	scaleLimit    = flag.Duration("limit", 25*time.Minute, "after this time BenchmarkScale reports how far it came")
)

// scale is a process, or several, that has all kinds of work at once, on a real API server.
type scale struct {
	*releases
	apps, sources int
	heads         []string
	table         *table
	storage       []string        // the directory of each process
	flags         [][]string      // of each process, the same after a restart
	end           context.Context // when the limit is reached
	reporting     sync.Mutex
}

// scaleTargets is how many namespaces get the objects: controllers of Kubernetes list all ReplicaSets and
// EndpointSlices of a namespace for each Deployment and Service in it.
const scaleTargets = 100

// firstApp is the number of the first app: names of objects differ from those of releases.
const firstApp = 100_000

// fiveObjects is an app with a ConfigMap.
func fiveObjects(app int, version string) []string {
	return append(fourObjects(app, version), configMap(appName(app), version))
}

func newScale(b *testing.B) *scale {
	b.Helper()
	end, cancel := context.WithTimeout(b.Context(), *scaleLimit)
	b.Cleanup(cancel)
	s := &scale{releases: newReleases(b, *scaleReleases), apps: *scaleApps, sources: min(*scaleSources, *scaleApps),
		end: end}
	var shared []string
	if *scaleReplicas > 1 {
		shared = append(sharedBucket(b), "--auto-shards")
	}
	for range *scaleReplicas {
		address := testenv.FreeAddress(b)
		s.storage = append(s.storage, b.TempDir())
		s.flags = append(s.flags, append([]string{"--storage-addr", address, "--storage-adv-addr", address}, shared...))
	}
	for range scaleTargets {
		s.targets = append(s.targets, testenv.Namespace(b))
	}
	title := fmt.Sprintf("%d Kustomizations of five objects, %d sources, %d HelmReleases of four objects, %d processes",
		s.apps, s.sources, s.count, *scaleReplicas)
	s.table = newTable(title, "", "Ready", "s", "CPU s", "API server CPU s", "requests", "memory, MB",
		"most memory, MB")
	s.heads = make([]string, s.sources)
	for source := range s.sources {
		var all []int
		for app := source; app < s.apps; app += s.sources {
			all = append(all, app)
		}
		s.commitTo(source, "1", all...)
	}
	return s
}

// processes run at once. CPU time is that of all, memory that of the one which has most.
type processes []*process

// start runs bin/sluice.
func (s *scale) start() (all processes) {
	s.b.Helper()
	for n, flags := range s.flags {
		all = append(all, startProcess(s.b, testenv.Kubeconfig(s.b), s.namespace, s.storage[n], flags...))
	}
	return all
}

func (all processes) cpu() (sum time.Duration) {
	for _, p := range all {
		sum += p.cpu()
	}
	return sum
}

// most returns the highest value of a process.
func (all processes) most(value func(*process) float64) (most float64) {
	for _, p := range all {
		most = max(most, value(p))
	}
	return most
}

func (all processes) memory(line string) float64 {
	return all.most(func(p *process) float64 { return p.memory(line) })
}

func (all processes) stop() {
	for _, p := range all {
		p.stop()
	}
}

// commitTo sets apps of a source to a version.
func (s *scale) commitTo(source int, version string, apps ...int) {
	s.b.Helper()
	files := map[string]string{}
	for _, app := range apps {
		name := appName(firstApp + app)
		files[name+"/app.yaml"] = strings.Join(fiveObjects(firstApp+app, version), "\n---\n")
		files[name+"/kustomization.yaml"] = "resources: [app.yaml]\n"
	}
	s.heads[source] = s.git.Commit(sourceName(source), files)
}

// declareAll creates all objects.
func (s *scale) declareAll() {
	s.b.Helper()
	s.create() // releases
	var all []client.Object
	for source := range s.sources {
		all = append(all, &sourcev1.GitRepository{ObjectMeta: s.named(sourceName(source)),
			Spec: sourcev1.GitRepositorySpec{URL: s.git.URL + "/" + sourceName(source),
				Interval:  meta.Duration{Duration: time.Hour},
				Reference: &sourcev1.GitRepositoryRef{Branch: "main"}}})
	}
	for app := range s.apps {
		all = append(all, &kustomizev1.Kustomization{ObjectMeta: s.named(appName(firstApp + app)),
			Spec: kustomizev1.KustomizationSpec{
				Interval: meta.Duration{Duration: time.Hour}, Prune: true, TargetNamespace: s.target(app),
				Path: "./" + appName(firstApp+app),
				SourceRef: kustomizev1.SourceReference{Kind: sourcev1.GitRepositoryKind,
					NamespacedName: meta.NamespacedName{Name: sourceName(app % s.sources)}}}})
	}
	inParallel(all, func(o client.Object) {
		if err := s.client.Create(s.b.Context(), o); err != nil {
			s.b.Error(err)
		}
	})
	if s.b.Failed() {
		s.b.FailNow()
	}
}

// isDone reports whether an object is Ready at the newest commit of its source.
func (s *scale) isDone(o client.Object) bool {
	switch o := o.(type) {
	case *kustomizev1.Kustomization:
		var source int
		if _, err := fmt.Sscanf(o.Spec.SourceRef.Name, "source-%d", &source); err != nil {
			s.b.Error(err)
		}
		return reconcile.IsReady(o) && strings.HasSuffix(o.Status.LastAppliedRevision, s.heads[source])
	case *helmv2.HelmRelease:
		return reconcile.IsReady(o)
	}
	return false
}

// until waits for as many objects of a kind, or until the limit is reached; it returns how many are done.
func (s *scale) until(list client.ObjectList, want int, each func(done int, name string)) (int, error) {
	w, err := s.client.Watch(s.end, list, client.InNamespace(s.namespace))
	if err != nil {
		return 0, err
	}
	defer w.Stop()
	done := map[string]bool{}
	for len(done) < want {
		e, ok := <-w.ResultChan()
		if !ok {
			return len(done), nil // the limit is reached
		}
		if e.Type == watch.Bookmark {
			continue
		}
		o, ok := e.Object.(client.Object)
		if !ok || e.Type == watch.Error {
			return len(done), fmt.Errorf("watch: %v", e.Object)
		}
		if !done[o.GetName()] && s.isDone(o) {
			done[o.GetName()] = true
			each(len(done), o.GetName())
		}
	}
	return len(done), nil
}

// report adds a row of what the process took since the start.
func (s *scale) report(name, ready string, p processes, log *testenv.AuditLog, start usage) {
	s.b.Helper()
	s.reporting.Lock()
	defer s.reporting.Unlock()
	now := s.now(p)
	took := since(start, now)
	requests := any("")
	if log != nil {
		requests = p[0].requests(log, testenv.Request{}) // of all
	}
	s.table.row(name, ready, took.took.Seconds(), took.cpu.Seconds(), took.server.Seconds(), requests,
		p.memory("VmRSS"), p.most((*process).memoryWithChildren))
}

// now is what was used so far; p may be nil.
func (s *scale) now(p processes) usage {
	return usage{at: time.Now(), cpu: p.cpu(), server: cpuTime(s.b, testenv.ClusterPID(s.b))}
}

// BenchmarkScale has Kustomizations, sources and HelmReleases in one process, or shared by several: all new, idle, one
// changed, and after a restart. It ends when the limit is reached, with what it measured until then.
func BenchmarkScale(b *testing.B) {
	for b.Loop() {
		s := newScale(b)
		s.declareAll()
		quiet(b)
		p := s.createAll()
		for _, phase := range []func(processes){s.rest, s.touchOne, s.restart} {
			if s.end.Err() == nil {
				phase(p)
			}
		}
		if s.end.Err() != nil {
			s.table.row(fmt.Sprintf("the limit of %s is reached", *scaleLimit), "", "", "", "", "", "", "")
		}
		p.stop()
	}
}

// createAll starts the process, and waits until all is Ready.
func (s *scale) createAll() processes {
	b := s.b
	log, start := testenv.NewAuditLog(b), s.now(nil)
	p := s.start()
	group, installed := guard.NewGroup("following releases"), 0
	group.Go(func() (err error) {
		installed, err = s.until(&helmv2.HelmReleaseList{}, s.count, func(int, string) {})
		if err == nil && installed == s.count {
			s.report("releases new", fmt.Sprint(installed), p, nil, start)
		}
		return err
	})
	tenth := max(1, s.apps/10)
	applied, err := s.until(&kustomizev1.KustomizationList{}, s.apps, func(done int, _ string) {
		if done%tenth == 0 {
			s.report("Kustomizations new", fmt.Sprint(done), p, nil, start)
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
	s.report("all new", fmt.Sprintf("%d of %d", applied+installed, s.apps+s.count), p, log, start)
	byKind(b, log)
	b.ReportMetric(1000*p.cpu().Seconds()/float64(max(1, applied+installed)), "cpu-ms/object")
	b.ReportMetric(p.memory("VmHWM"), "MB")
	return p
}

func (s *scale) rest(p processes) {
	quiet(s.b)
	log, start := testenv.NewAuditLog(s.b), s.now(p)
	select {
	case <-time.After(*idleFor):
	case <-s.end.Done():
	}
	s.report("idle", "", p, log, start)
}

// touchOne commits to one app.
func (s *scale) touchOne(p processes) {
	app := 7 % s.apps
	source := app % s.sources
	s.commitTo(source, "2", app)
	sharing := (s.apps - source + s.sources - 1) / s.sources
	log, start := testenv.NewAuditLog(s.b), s.now(p)
	o := &sourcev1.GitRepository{ObjectMeta: s.named(sourceName(source))}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, meta.ReconcileRequestAnnotation,
		time.Now().Format(time.RFC3339Nano))
	if err := s.client.Patch(s.b.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		s.b.Fatal(err)
	}
	for k := (&kustomizev1.Kustomization{ObjectMeta: s.named(appName(firstApp + app))}); !s.isDone(k); {
		<-time.After(10 * time.Millisecond)
		if err := s.client.Get(s.b.Context(), client.ObjectKeyFromObject(k), k); err != nil {
			s.b.Fatal(err)
		}
	}
	s.report("a commit to one, that one", "1", p, nil, start)
	if _, err := s.until(&kustomizev1.KustomizationList{}, s.apps, func(int, string) {}); err != nil {
		s.b.Fatal(err)
	}
	s.report("all that share its source", fmt.Sprint(sharing), p, log, start)
}

// restart measures what a new process does until nothing is left to do.
func (s *scale) restart(p processes) {
	p.stop()
	log, start := testenv.NewAuditLog(s.b), s.now(nil)
	next := s.start()
	const almostNothing, times = 0.05, 5 // of a core
	for still := 0; still < times && s.end.Err() == nil; {
		before := next.cpu()
		<-time.After(time.Second)
		if still++; (next.cpu() - before).Seconds() > almostNothing {
			still = 0
		}
	}
	s.report("a restart, until it rests", "", next, log, start)
	byKind(s.b, log)
	next.stop()
}
