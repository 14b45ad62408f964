package bench

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

var (
	idleFor   = flag.Duration("idle", time.Minute, "how long BenchmarkIdle watches")
	fleetSize = flag.Int("fleet", 1000, "how many Kustomizations BenchmarkFleet and BenchmarkPreview have")
	patient   = flag.Duration("patience", 10*time.Minute, "how long a change may take before a benchmark gives up")
)

// fleet is a repository of apps, and the Kustomizations that apply them: one an app.
type fleet struct {
	b         *testing.B
	client    client.WithWatch
	git       *testenv.Git
	namespace string
	apps      int
	manifest  func(app int, version string) []string // the objects of an app, as YAML
	interval  time.Duration
	change    func(app int, k *kustomizev1.Kustomization) // of what is declared; may be nil
}

func newFleet(b *testing.B, apps int, manifest func(int, string) []string) *fleet {
	b.Helper()
	define(b)
	c, err := client.NewWithWatch(testenv.Cluster(b), client.Options{Scheme: kubeclient.Scheme()})
	if err != nil {
		b.Fatal(err)
	}
	f := &fleet{b: b, client: c, git: testenv.NewGit(b), namespace: testenv.Namespace(b), apps: apps,
		manifest: manifest, interval: time.Hour}
	return f
}

func appName(app int) string { return fmt.Sprintf("app-%04d", app) }

// commit sets apps to a version, and returns the commit's hash.
func (f *fleet) commit(version string, apps ...int) string {
	f.b.Helper()
	files := map[string]string{}
	for _, app := range apps {
		files["apps/"+appName(app)+"/app.yaml"] = strings.Join(f.manifest(app, version), "\n---\n")
		files["apps/"+appName(app)+"/kustomization.yaml"] = "resources: [app.yaml]\n"
	}
	return f.git.Commit("fleet", files)
}

func (f *fleet) all() []int {
	all := make([]int, f.apps)
	for i := range all {
		all[i] = i
	}
	return all
}

// declare creates the source and the Kustomizations.
func (f *fleet) declare() {
	f.b.Helper()
	create := func(o client.Object) {
		if err := f.client.Create(f.b.Context(), o); err != nil {
			f.b.Error(err)
		}
	}
	create(&sourcev1.GitRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "fleet"},
		Spec: sourcev1.GitRepositorySpec{
			URL: f.git.URL + "/fleet", Interval: meta.Duration{Duration: time.Hour},
			Reference: &sourcev1.GitRepositoryRef{Branch: "main"},
		},
	})
	inParallel(f.all(), func(app int) {
		k := f.kustomization(app)
		if f.change != nil {
			f.change(app, k)
		}
		create(k)
	})
	if f.b.Failed() {
		f.b.FailNow()
	}
}

// kustomization returns that of an app.
func (f *fleet) kustomization(app int) *kustomizev1.Kustomization {
	return &kustomizev1.Kustomization{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: appName(app)},
		Spec: kustomizev1.KustomizationSpec{
			Interval: meta.Duration{Duration: f.interval}, Prune: true, TargetNamespace: f.namespace,
			Path: "./apps/" + appName(app),
			SourceRef: kustomizev1.SourceReference{Kind: sourcev1.GitRepositoryKind,
				NamespacedName: meta.NamespacedName{Name: "fleet"}},
		},
	}
}

// pull asks for a fetch at once.
func (f *fleet) pull() {
	f.b.Helper()
	o := &sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "fleet"}}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, meta.ReconcileRequestAnnotation, time.Now().
		Format(time.RFC3339Nano))
	if err := f.client.Patch(f.b.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		f.b.Fatal(err)
	}
}

// follow begins to watch; what it returns waits until all Kustomizations are Ready at a commit.
func (f *fleet) follow(commit string) (wait func()) {
	f.b.Helper()
	return f.followEach(commit, func(int) {})
}

// followEach is follow with a function that is called for each one that becomes Ready, with their number so far.
func (f *fleet) followEach(commit string, each func(done int)) (wait func()) {
	f.b.Helper()
	ctx, cancel := context.WithTimeout(f.b.Context(), *patient)
	var list kustomizev1.KustomizationList
	if err := f.client.List(ctx, &list, client.InNamespace(f.namespace)); err != nil {
		f.b.Fatal(err)
	}
	w, err := f.client.Watch(ctx, &kustomizev1.KustomizationList{}, client.InNamespace(f.namespace),
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})
	if err != nil {
		f.b.Fatal(err)
	}
	return func() {
		f.b.Helper()
		defer cancel()
		defer w.Stop()
		done, last := map[string]bool{}, ""
		for len(done) < f.apps {
			e, ok := <-w.ResultChan()
			if !ok {
				f.b.Fatalf("%d of %d are Ready at %s within %s; the last said: %s", len(done), f.apps, commit,
					*patient, last)
			}
			k, ok := e.Object.(*kustomizev1.Kustomization)
			if !ok {
				f.b.Fatalf("watch: %v", e)
			}
			if reconcile.IsReady(k) && strings.HasSuffix(k.Status.LastAppliedRevision, commit) {
				if !done[k.Name] {
					done[k.Name] = true
					each(len(done))
				}
			} else if c := apimeta.FindStatusCondition(k.Status.Conditions, reconcile.TypeReady); c != nil {
				last = k.Name + ": " + c.Message
			}
		}
	}
}

// appsEach is how many apps share a namespace of [fleet.namespaces].
const appsEach = 500

// namespaces creates namespaces that share the apps, and returns a function that returns the one of an app. Kubernetes'
// own controllers of Deployments and EndpointSlices read all of a namespace for each of its objects: with all apps of a
// large fleet in one, most of the time would be theirs.
func (f *fleet) namespaces() func(app int) string {
	f.b.Helper()
	var all []string
	for range (f.apps + appsEach - 1) / appsEach {
		all = append(all, testenv.Namespace(f.b))
	}
	return func(app int) string { return all[app/appsEach] }
}

// objects are those of all apps, each in a namespace.
func (f *fleet) objects(namespace func(app int) string, version string) []*unstructured.Unstructured {
	f.b.Helper()
	var all []*unstructured.Unstructured
	for app := range f.apps {
		for _, text := range f.manifest(app, version) {
			o := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
				f.b.Fatal(err)
			}
			o.SetNamespace(namespace(app))
			all = append(all, o)
		}
	}
	return all
}

// quiet waits until the cluster does nothing, such as following up on what was applied before.
func quiet(b *testing.B) {
	b.Helper()
	const almostNothing = 0.15 // of a core
	for range 120 {
		before := cpuTime(b, testenv.ClusterPID(b))
		<-time.After(time.Second)
		if (cpuTime(b, testenv.ClusterPID(b)) - before).Seconds() < almostNothing {
			return
		}
	}
	b.Log("the cluster does not become idle: the following measurements include its work")
}

// measured is what one side of a comparison took.
type measured struct {
	took, cpu, server time.Duration
	bytes             int64
	mallocs, allocate float64
}

func since(a, z usage) measured {
	return measured{took: z.at.Sub(a.at), cpu: z.cpu - a.cpu, server: z.server - a.server, bytes: z.bytes - a.bytes,
		mallocs:  z.mallocs - a.mallocs,
		allocate: z.allocate - a.allocate}
}

// loop is the bare loop over objects, measured.
func loop(b *testing.B, c dynamic.Interface, objects []*unstructured.Unstructured) measured {
	b.Helper()
	quiet(b)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu, server := processor(b), cpuTime(b, testenv.ClusterPID(b))
	took := bareLoop(b, c, objects)
	runtime.ReadMemStats(&after)
	return measured{
		took: took, cpu: processor(b) - cpu, server: cpuTime(b, testenv.ClusterPID(b)) - server,
		mallocs: float64(after.Mallocs - before.Mallocs), allocate: float64(after.TotalAlloc - before.TotalAlloc),
	}
}

// mean of two runs of the loop, one before and one after what it is compared to: the machine may do other
// things meanwhile.
func mean(a, z measured) measured {
	return measured{
		took: (a.took + z.took) / 2, cpu: (a.cpu + z.cpu) / 2, server: (a.server + z.server) / 2,
		bytes:   (a.bytes + z.bytes) / 2,
		mallocs: (a.mallocs + z.mallocs) / 2, allocate: (a.allocate + z.allocate) / 2,
	}
}

var head = []string{"", "time s", "x loop", "CPU s", "API server CPU s", "all CPU x loop", "requests", "MB on the wire",
	"objects allocated, million", "MB allocated", "most memory, MB"}

// compare adds the lines of a comparison.
func (t *table) compare(b *testing.B, name string, ours, theirs measured, objects, requests int, memory float64) {
	const million = 1e6
	all := (ours.cpu + ours.server).Seconds() / (theirs.cpu + theirs.server).Seconds()
	t.row(name+": bare loop", theirs.took.Seconds(), 1.0, theirs.cpu.Seconds(), theirs.server.Seconds(), 1.0, objects,
		"", theirs.mallocs/million, theirs.allocate/million, "")
	t.row(name+": Sluice", ours.took.Seconds(), ours.took.Seconds()/theirs.took.Seconds(), ours.cpu.Seconds(),
		ours.server.Seconds(), all,
		requests, float64(ours.bytes)/million, ours.mallocs/million, ours.allocate/million, memory)
	b.ReportMetric(ours.took.Seconds()/theirs.took.Seconds(), strings.ReplaceAll(name, " ", "-")+"/bare")
	b.ReportMetric(all, strings.ReplaceAll(name, " ", "-")+"-cpu/bare")
}

const manyObjects = 5000

// BenchmarkOne applies one Kustomization of 5,000 ConfigMaps, new and then all changed, beside a bare loop.
func BenchmarkOne(b *testing.B) {
	f := newFleet(b, 1, func(_ int, version string) []string {
		all := make([]string, manyObjects)
		for n := range all {
			all[n] = configMap(fmt.Sprintf("c%04d", n), version)
		}
		return all
	})
	bare, err := dynamic.NewForConfig(testenv.Cluster(b))
	if err != nil {
		b.Fatal(err)
	}
	before, after := f.namespaces(), f.namespaces()
	t := newTable(fmt.Sprintf("One Kustomization of %d ConfigMaps", manyObjects), head...)
	for b.Loop() {
		f.commit("0")
		f.declare()
		p := startController(b, f.namespace)
		for _, version := range []string{"1", "2"} {
			name := map[string]string{"1": "create", "2": "change"}[version]
			theirs := loop(b, bare, f.objects(before, version))
			commit := f.commit(version, 0)
			quiet(b)
			log, wait, start := testenv.NewAuditLog(b), f.follow(commit), p.usage()
			f.pull()
			wait()
			ours := since(start, p.usage())
			asked := p.requests(log, testenv.Request{})
			theirs = mean(theirs, loop(b, bare, f.objects(after, version)))
			t.compare(b, name, ours, theirs, manyObjects, asked, p.memory("VmHWM"))
		}
		p.stop()
	}
}

func configMap(name, version string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\n"+
		"data: {version: %q, text: some text of a few words}\n", name, version)
}

const (
	idleFleet   = 5000
	idleObjects = 10
)

// BenchmarkIdle applies 5,000 Kustomizations of ten objects with an interval of ten minutes, and watches them
// while nothing moves.
func BenchmarkIdle(b *testing.B) {
	f := newFleet(b, idleFleet, func(app int, version string) []string {
		all := make([]string, idleObjects)
		for n := range all {
			all[n] = configMap(fmt.Sprintf("%s-%d", appName(app), n), version)
		}
		return all
	})
	f.interval = 10 * time.Minute
	commit := f.commit("1", f.all()...)
	f.declare()
	t := newTable(fmt.Sprintf("%d Kustomizations of %d objects, interval 10 min, idle for %s", idleFleet, idleObjects,
		*idleFor),
		"passes a minute", "% of a core", "memory, MB", "without the binary", "most memory, MB",
		"requests for objects", "requests in all", "all Ready after s")
	for b.Loop() {
		wait, start := f.follow(commit), time.Now()
		p := startController(b, f.namespace)
		wait()
		took := time.Since(start)
		quiet(b)
		<-time.After(time.Minute) // for the garbage of the beginning to go
		log, before := testenv.NewAuditLog(b), p.usage()
		<-time.After(*idleFor)
		idle := since(before, p.usage())
		objects := p.requests(log, testenv.Request{Resource: "configmaps"})
		share := 100 * idle.cpu.Seconds() / idle.took.Seconds()
		t.row(idleFleet*time.Minute.Seconds()/f.interval.Seconds(), share, p.memory("VmRSS"), p.memory("RssAnon"),
			p.memory("VmHWM"), objects, p.requests(log, testenv.Request{}), took.Seconds())
		b.ReportMetric(share, "%-of-a-core")
		b.ReportMetric(p.memory("VmRSS"), "MB")
		b.ReportMetric(float64(objects), "object-requests")
		p.stop()
	}
}

// inParallel calls do for all, some at once.
func inParallel[T any](all []T, do func(T)) { inParallelBy(atOnce, all, do) }

func inParallelBy[T any](workers int, all []T, do func(T)) {
	var wg sync.WaitGroup
	next := make(chan T)
	for range workers {
		wg.Go(func() {
			for v := range next {
				do(v)
			}
		})
	}
	for _, v := range all {
		next <- v
	}
	close(next)
	wg.Wait()
}
