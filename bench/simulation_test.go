package bench

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/stubapi"
)

var (
	simulated        = flag.Int("simulated", 10_000, "how many Kustomizations BenchmarkSimulation has")
	simulatedSources = flag.Int("simulated-sources", 20, "how many GitRepositories they share")
	simulatedObjects = flag.Int("simulated-objects", 0, "how many ConfigMaps each applies; 0 for one or two, in turn")
	simulatedEvery   = flag.Duration("simulated-interval", time.Hour, "the interval of the Kustomizations")
	latency          = flag.Duration("latency", 0, "what the stub API server adds to each request")
)

const simulatedNamespace = "flux-system"

// simulation is many Kustomizations of a few sources, and a stub API server.
type simulation struct {
	b       *testing.B
	cluster *stubapi.Cluster
	client  client.Client
	git     *testenv.Git
	apps    int
	sources int
	heads   []string  // of the sources
	address string    // of artifacts; the same after a restart
	began   time.Time // when the process was started last
}

func newSimulation(b *testing.B, apps, sources int, delay time.Duration) *simulation {
	b.Helper()
	s := &simulation{b: b, cluster: stubapi.Start(b, 0), git: testenv.NewGit(b), apps: apps,
		sources: min(sources, apps), address: testenv.FreeAddress(b)}
	s.heads = make([]string, s.sources)
	var err error
	if s.client, err = client.New(s.cluster.Config(), client.Options{Scheme: kubeclient.Scheme()}); err != nil {
		b.Fatal(err)
	}
	for source := range s.sources {
		var all []int
		for app := source; app < apps; app += s.sources {
			all = append(all, app)
		}
		s.commit("1", all...)
	}
	s.cluster.Latency, s.cluster.Delayed = delay, "sluice"
	return s
}

func sourceName(source int) string { return fmt.Sprintf("source-%03d", source) }

// commit sets apps of one source to a version. Unless -simulated-objects says how many objects an app has, those of
// even numbers have one object, others two.
func (s *simulation) commit(version string, apps ...int) {
	s.b.Helper()
	files := map[string]string{}
	for _, app := range apps {
		name := fmt.Sprintf("%s-%06d", "app", app)
		text, objects := configMap(name, version), *simulatedObjects
		if objects == 0 {
			objects = 1 + app%2
		}
		for n := 1; n < objects; n++ {
			text += "---\n" + configMap(fmt.Sprintf("%s-%d", name, n), version)
		}
		files[name+"/app.yaml"] = text
		files[name+"/kustomization.yaml"] = "resources: [app.yaml]\n"
	}
	source := apps[0] % s.sources
	s.heads[source] = s.git.Commit(sourceName(source), files)
}

// shardLabel divides the objects among shards by label.
const shardLabel = "sharding.fluxcd.io/key"

func (s *simulation) named(name string, number int) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: simulatedNamespace, Name: name,
		Labels: map[string]string{shardLabel: fmt.Sprint(number % replicaCount)}}
}

// declareSources creates the sources.
func (s *simulation) declareSources() {
	s.b.Helper()
	var all []client.Object
	for source := range s.sources {
		all = append(all, &sourcev1.GitRepository{
			ObjectMeta: s.named(sourceName(source), source),
			Spec: sourcev1.GitRepositorySpec{
				URL: s.git.URL + "/" + sourceName(source), Interval: meta.Duration{Duration: time.Hour},
				Reference: &sourcev1.GitRepositoryRef{Branch: "main"},
			}})
	}
	s.createObjects(all)
}

// declareApps creates the Kustomizations.
func (s *simulation) declareApps() {
	s.b.Helper()
	var all []client.Object
	for app := range s.apps {
		all = append(all, &kustomizev1.Kustomization{
			ObjectMeta: s.named(fmt.Sprintf("app-%06d", app), app),
			Spec: kustomizev1.KustomizationSpec{
				Interval: meta.Duration{Duration: *simulatedEvery}, Prune: true, TargetNamespace: simulatedNamespace,
				Path: fmt.Sprintf("./app-%06d", app),
				SourceRef: kustomizev1.SourceReference{Kind: sourcev1.GitRepositoryKind,
					NamespacedName: meta.NamespacedName{Name: sourceName(app % s.sources)}},
			},
		})
	}
	s.createObjects(all)
}

func (s *simulation) createObjects(all []client.Object) {
	s.b.Helper()
	inParallel(all, func(o client.Object) {
		if err := s.client.Create(s.b.Context(), o); err != nil {
			s.b.Error(err)
		}
	})
	if s.b.Failed() {
		s.b.FailNow()
	}
}

// start runs bin/sluice.
func (s *simulation) start(storage string, flags ...string) *process {
	s.b.Helper()
	s.began = time.Now()
	flags = slices.Concat([]string{"--storage-addr", s.address}, flags)
	return startProcess(s.b, s.cluster.Kubeconfig, simulatedNamespace, storage, flags...)
}

// pull asks for a fetch of a source at once.
func (s *simulation) pull(source int) {
	s.b.Helper()
	o := &sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Namespace: simulatedNamespace,
		Name: sourceName(source)}}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, meta.ReconcileRequestAnnotation,
		time.Now().Format(time.RFC3339Nano))
	if err := s.client.Patch(s.b.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		s.b.Fatal(err)
	}
}

// follow begins to follow Kustomizations of some sources; what it returns waits until all of them are Ready at the
// newest commit of their source. Each is called with the number and name of those that are.
func (s *simulation) follow(sources ...int) (wait func(each func(done int, name string))) {
	s.b.Helper()
	feed, want := s.cluster.Feed("kustomizations"), 0
	heads := map[string]string{}
	for _, source := range sources {
		heads[sourceName(source)] = s.heads[source]
		want += (s.apps - source + s.sources - 1) / s.sources
	}
	return func(each func(int, string)) {
		s.b.Helper()
		ctx, cancel := context.WithTimeout(s.b.Context(), *patient)
		defer cancel()
		done := map[string]bool{}
		for len(done) < want {
			objects, ok := feed.Next(ctx)
			if !ok {
				s.b.Fatalf("%d of %d are Ready within %s", len(done), want, *patient)
			}
			for _, o := range objects {
				k := &kustomizev1.Kustomization{}
				if err := json.Unmarshal(o, k); err != nil {
					s.b.Fatal(err)
				}
				head := heads[k.Spec.SourceRef.Name]
				if head != "" && !done[k.Name] && reconcile.IsReady(k) &&
					strings.HasSuffix(k.Status.LastAppliedRevision, head) {
					done[k.Name] = true
					each(len(done), k.Name)
				}
			}
		}
	}
}

// settled waits until the process does nothing, or for `-patience`.
func (s *simulation) settled(p *process) {
	s.b.Helper()
	const almostNothing, times = 0.05, 3 // of a core
	for still, start := 0, time.Now(); still < times && time.Since(start) < *patient; {
		before := p.cpu()
		<-time.After(time.Second)
		if still++; (p.cpu() - before).Seconds() > almostNothing {
			still = 0
		}
	}
}

// cpu is what the process took of the processors.
func (p *process) cpu() time.Duration {
	p.tb.Helper()
	return cpuTime(p.tb, p.command.Process.Pid)
}

// requestsSince returns the number of requests since counts, and logs them by kind.
func (s *simulation) requestsSince(before map[string]int) (n int) {
	s.b.Helper()
	now := s.cluster.Requests()
	for _, what := range slices.SortedFunc(maps.Keys(now), func(x, y string) int {
		return (now[y] - before[y]) - (now[x] - before[x])
	}) {
		if more := now[what] - before[what]; more > 0 {
			n += more
			s.b.Logf("%8d %s", more, what)
		}
	}
	return n
}

// BenchmarkSimulation reconciles many small Kustomizations against a stub API server: all new, idle, one changed by
// a commit, and after a restart. `-simulated 100000` sets how many.
func BenchmarkSimulation(b *testing.B) {
	for b.Loop() {
		s := newSimulation(b, *simulated, *simulatedSources, *latency)
		s.declareSources()
		s.declareApps()
		storage := b.TempDir()
		p := s.start(storage)
		s.create(p)
		s.settled(p)
		s.rest(p)
		s.touchOne(p)
		s.scrapeOnce(p)
		p.stop()
		s.restart(storage)
	}
}

// create measures until all are Ready, with a row for each tenth: the cost of each must not grow with their number.
func (s *simulation) create(p *process) {
	b := s.b
	t := newTable(fmt.Sprintf("%d Kustomizations of %d sources against a stub API server, new", s.apps, s.sources),
		"Ready", "after s", "CPU s", "ms of CPU each in this tenth", "memory, MB", "KB each", "stub's CPU s")
	all := make([]int, s.sources)
	for source := range all {
		all[source] = source
	}
	wait, start, last, stub := s.follow(all...), time.Now(), p.cpu(), processor(b)
	before, empty := s.cluster.Requests(), p.memory("VmRSS")
	tenth := max(1, s.apps/10)
	wait(func(done int, _ string) {
		if done == 1 {
			b.ReportMetric(time.Since(s.began).Seconds(), "s-from-start-to-first-ready")
		}
		if done%tenth != 0 {
			return
		}
		cpu, memory := p.cpu(), p.memory("VmRSS")
		t.row(done, time.Since(start).Seconds(), cpu.Seconds(), 1000*(cpu-last).Seconds()/float64(tenth), memory,
			1024*(memory-empty)/float64(done), (processor(b) - stub).Seconds())
		last = cpu
	})
	b.ReportMetric(1000*p.cpu().Seconds()/float64(s.apps), "cpu-ms/kustomization")
	b.ReportMetric(p.memory("VmHWM"), "MB")
	b.ReportMetric(float64(s.requestsSince(before))/float64(s.apps), "requests/kustomization")
}

// rest measures what all cost while nothing changes.
func (s *simulation) rest(p *process) {
	before, start, cpu := s.cluster.Requests(), time.Now(), p.cpu()
	<-time.After(*idleFor)
	took := time.Since(start)
	share := 100 * (p.cpu() - cpu).Seconds() / took.Seconds()
	memory := p.memory("VmRSS")
	newTable(fmt.Sprintf("%d Kustomizations idle for %s, interval %s", s.apps, *idleFor, *simulatedEvery),
		"% of a core", "memory, MB", "without the binary", "KB each", "most memory, MB", "requests").
		row(share, memory, p.memory("RssAnon"), 1024*memory/float64(s.apps), p.memory("VmHWM"), s.requestsSince(before))
	s.b.ReportMetric(share, "%-idle")
}

// touchOne measures a commit to one app.
func (s *simulation) touchOne(p *process) {
	const app = 7
	source := app % s.sources
	s.commit("2", app)
	wait, before, start, cpu := s.follow(source), s.cluster.Requests(), time.Now(), p.cpu()
	s.pull(source)
	var that, all time.Duration
	wait(func(_ int, name string) {
		all = time.Since(start)
		if name == fmt.Sprintf("app-%06d", app) {
			that = all
		}
	})
	newTable(fmt.Sprintf("a commit touches one of %d, and %d share its source", s.apps, s.apps/s.sources),
		"s until it is Ready", "s until all statuses name the commit", "CPU s", "requests").
		row(that.Seconds(), all.Seconds(), (p.cpu() - cpu).Seconds(), s.requestsSince(before))
	s.b.ReportMetric(that.Seconds(), "s-to-one")
}

// scrapeOnce measures what Prometheus would cause.
func (s *simulation) scrapeOnce(p *process) {
	start, cpu := time.Now(), p.cpu()
	resp, err := http.Get("http://" + p.metrics + "/metrics")
	if err != nil {
		s.b.Fatal(err)
	}
	n, err := io.Copy(io.Discard, resp.Body)
	if err := resp.Body.Close(); err != nil {
		s.b.Fatal(err)
	}
	if err != nil {
		s.b.Fatal(err)
	}
	const megabyte = 1e6
	newTable(fmt.Sprintf("one scrape of the metrics of %d Kustomizations", s.apps), "s", "CPU s", "MB", "memory, MB").
		row(time.Since(start).Seconds(), (p.cpu() - cpu).Seconds(), float64(n)/megabyte, p.memory("VmRSS"))
}

// restart measures what a new process does until nothing is left to do.
func (s *simulation) restart(storage string) {
	before, start := s.cluster.Requests(), time.Now()
	p := s.start(storage)
	s.settled(p)
	newTable(fmt.Sprintf("a restart with %d Kustomizations", s.apps), "s until it rests", "CPU s", "memory, MB",
		"most memory, MB", "requests").
		row(time.Since(start).Seconds(), p.cpu().Seconds(), p.memory("VmRSS"), p.memory("VmHWM"),
			s.requestsSince(before))
	s.b.ReportMetric(p.cpu().Seconds(), "cpu-s/restart")
	p.stop()
}
