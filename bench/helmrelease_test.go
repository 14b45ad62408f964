package bench

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/kube"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

var releaseCount = flag.Int("releases", 1000, "how many HelmReleases BenchmarkReleases creates")

// releases are HelmReleases of one chart of four objects, which a HelmChart packages from a repository.
type releases struct {
	*fleet
	count   int
	targets []string // namespaces that are deployed to in turn; empty: that of the HelmReleases
}

func newReleases(b *testing.B, count int) *releases {
	b.Helper()
	r := &releases{fleet: newFleet(b, count, nil), count: count}
	r.publish("1.0.0")
	for _, o := range []client.Object{
		r.values("one"),
		&sourcev1.GitRepository{ObjectMeta: r.named("fleet"), Spec: sourcev1.GitRepositorySpec{
			URL: r.git.URL + "/fleet", Interval: meta.Duration{Duration: time.Hour},
			Reference: &sourcev1.GitRepositoryRef{Branch: "main"}}},
		&sourcev1.HelmChart{ObjectMeta: r.named("app"), Spec: sourcev1.HelmChartSpec{Chart: "app",
			Interval:  meta.Duration{Duration: time.Hour},
			SourceRef: sourcev1.LocalHelmChartSourceReference{Kind: sourcev1.GitRepositoryKind, Name: "fleet"}}},
	} {
		if err := r.client.Create(b.Context(), o); err != nil {
			b.Fatal(err)
		}
	}
	return r
}

func (r *releases) named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: r.namespace, Name: name}
}

// values is the ConfigMap that all HelmReleases take their values from.
func (r *releases) values(tier string) *corev1.ConfigMap {
	o := &corev1.ConfigMap{ObjectMeta: r.named("values"),
		Data: map[string]string{"values.yaml": "tier: " + tier + "\n"}}
	o.Labels = map[string]string{"reconcile.fluxcd.io/watch": "Enabled"}
	return o
}

// target is the namespace that an app is deployed to.
func (r *releases) target(app int) string {
	if len(r.targets) == 0 {
		return r.namespace
	}
	return r.targets[app%len(r.targets)]
}

// chartFiles are the files of the chart: four objects whose labels have the version, and a value.
func chartFiles(version string) map[string]string {
	label := fmt.Sprintf("version: %q", version)
	text := strings.NewReplacer(appName(0), "{{ .Release.Name }}", label, label+", tier: {{ .Values.tier }}").
		Replace(strings.Join(fourObjects(0, version), "\n---\n"))
	return map[string]string{
		"Chart.yaml":         "apiVersion: v2\nname: app\nversion: " + version + "\n",
		"values.yaml":        "tier: none\n",
		"templates/all.yaml": text,
	}
}

func (r *releases) publish(version string) {
	r.b.Helper()
	files := map[string]string{}
	for name, text := range chartFiles(version) {
		files["app/"+name] = text
	}
	r.git.Commit("fleet", files)
}

// create creates the HelmReleases.
func (r *releases) create() {
	r.b.Helper()
	inParallel(r.all(), func(app int) {
		err := r.client.Create(r.b.Context(), &helmv2.HelmRelease{ObjectMeta: r.named(appName(app)),
			Spec: helmv2.HelmReleaseSpec{Interval: meta.Duration{Duration: time.Hour},
				TargetNamespace: r.target(app),
				ValuesFrom:      []meta.ValuesReference{{Kind: "ConfigMap", Name: "values"}},
				ChartRef:        &helmv2.ChartReference{Kind: sourcev1.HelmChartKind, Name: "app"}}})
		if err != nil {
			r.b.Error(err)
		}
	})
	if r.b.Failed() {
		r.b.FailNow()
	}
}

// follow begins to watch; what it returns waits until all HelmReleases are Ready with a version of the chart.
func (r *releases) follow(version string) (wait func()) {
	r.b.Helper()
	return r.followUntil(version, func(s *helmv2.Snapshot) bool { return s.ChartVersion == version })
}

// followUntil is follow with a condition of the last release. What says what is waited for.
func (r *releases) followUntil(what string, isDone func(*helmv2.Snapshot) bool) (wait func()) {
	b := r.b
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), *patient)
	var list helmv2.HelmReleaseList
	if err := r.client.List(ctx, &list, client.InNamespace(r.namespace)); err != nil {
		b.Fatal(err)
	}
	w, err := r.client.Watch(ctx, &helmv2.HelmReleaseList{}, client.InNamespace(r.namespace),
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})
	if err != nil {
		b.Fatal(err)
	}
	return func() {
		b.Helper()
		defer cancel()
		defer w.Stop()
		done, last := map[string]bool{}, ""
		for len(done) < r.count {
			e, ok := <-w.ResultChan()
			if !ok {
				b.Fatalf("%d of %d are Ready with %s within %s; the last said: %s", len(done), r.count, what,
					*patient, last)
			}
			hr, ok := e.Object.(*helmv2.HelmRelease)
			if !ok {
				b.Fatalf("watch: %v", e)
			}
			if h := hr.Status.History; reconcile.IsReady(hr) && len(h) > 0 && isDone(&h[0]) {
				done[hr.Name] = true
			} else if c := apimeta.FindStatusCondition(hr.Status.Conditions, reconcile.TypeReady); c != nil {
				last = hr.Name + ": " + c.Message
			}
		}
	}
}

// bareReleases runs Helm's install or upgrade action for as many releases, as a program does that has nothing else.
func (r *releases) bareReleases(namespace, version, tier string, upgrade bool) measured {
	b := r.b
	b.Helper()
	quiet(b)
	archive := testenv.ChartArchive(b, "app", version, chartFiles(version))
	cpu, server, start := processor(b), cpuTime(b, testenv.ClusterPID(b)), time.Now()
	inParallel(r.all(), func(app int) {
		if err := bareRelease(testenv.Kubeconfig(b), namespace, appName(app), archive,
			map[string]any{"tier": tier}, upgrade); err != nil {
			b.Error(err)
		}
	})
	if b.Failed() {
		b.FailNow()
	}
	return measured{took: time.Since(start), cpu: processor(b) - cpu,
		server: cpuTime(b, testenv.ClusterPID(b)) - server}
}

func bareRelease(kubeconfig, namespace, name string, archive []byte, values map[string]any, upgrade bool) error {
	flags := genericclioptions.NewConfigFlags(false)
	flags.KubeConfig, flags.Namespace = &kubeconfig, &namespace
	cfg := action.NewConfiguration(action.ConfigurationSetLogger(slog.DiscardHandler))
	if err := cfg.Init(flags, namespace, "secret"); err != nil {
		return err
	}
	ch, err := loader.LoadArchive(bytes.NewReader(archive))
	if err != nil {
		return err
	}
	if upgrade {
		u := action.NewUpgrade(cfg)
		u.Namespace, u.WaitStrategy, u.Timeout = namespace, kube.StatusWatcherStrategy, *patient
		_, err = u.Run(name, ch, values)
		return err
	}
	i := action.NewInstall(cfg)
	i.ReleaseName, i.Namespace, i.WaitStrategy, i.Timeout = name, namespace, kube.StatusWatcherStrategy, *patient
	_, err = i.Run(ch, values)
	return err
}

// memoryWithChildren returns the most memory of a process and the processes that render for it, in megabytes. Pages of
// the binary, which they share, count once.
func (p *process) memoryWithChildren() float64 {
	p.tb.Helper()
	sum := p.memory("VmHWM")
	pid := p.command.Process.Pid
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		p.tb.Fatal(err)
	}
	for _, task := range tasks {
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, task.Name()))
		if err != nil {
			continue // the thread ended
		}
		for _, child := range strings.Fields(string(children)) {
			var id int
			if _, err := fmt.Sscan(child, &id); err == nil {
				sum += memoryOf(p.tb, id, "VmHWM") - memoryOf(p.tb, id, "RssFile")
			}
		}
	}
	return sum
}

const releaseWorkers = "--concurrent=8" // as many as the bare loop has at once

// BenchmarkReleases installs and upgrades HelmReleases of four objects beside a bare loop of Helm's actions: with a new
// chart, and with other values from the ConfigMap that all share.
func BenchmarkReleases(b *testing.B) {
	r := newReleases(b, *releaseCount)
	before, after := testenv.Namespace(b), testenv.Namespace(b)
	t := newTable(fmt.Sprintf("%d HelmReleases of four objects, one chart", r.count), head...)
	for b.Loop() {
		theirs := r.bareReleases(before, "1.0.0", "one", false)
		r.create()
		quiet(b)
		log, wait := testenv.NewAuditLog(b), r.follow("1.0.0")
		start := usage{at: time.Now(), server: cpuTime(b, testenv.ClusterPID(b))}
		p := startController(b, r.namespace, releaseWorkers)
		wait()
		ours := since(start, p.usage())
		asked := p.requests(log, testenv.Request{})
		theirs = mean(theirs, r.bareReleases(after, "1.0.0", "one", false))
		t.compare(b, "install all", ours, theirs, 4*r.count, asked, p.memoryWithChildren())
		byKind(b, log)

		upgrade := func(name, tier string, isDone func(*helmv2.Snapshot) bool, change func()) {
			theirs := r.bareReleases(before, "1.0.1", tier, true)
			quiet(b)
			log, wait, start := testenv.NewAuditLog(b), r.followUntil(name, isDone), p.usage()
			change()
			wait()
			ours := since(start, p.usage())
			asked := p.requests(log, testenv.Request{})
			theirs = mean(theirs, r.bareReleases(after, "1.0.1", tier, true))
			t.compare(b, name, ours, theirs, 4*r.count, asked, p.memoryWithChildren())
			byKind(b, log)
		}
		r.publish("1.0.1")
		upgrade("upgrade all", "one", func(s *helmv2.Snapshot) bool { return s.ChartVersion == "1.0.1" }, r.pull)
		const third = 3 // release
		upgrade("new values for all", "two", func(s *helmv2.Snapshot) bool { return s.Version == third }, func() {
			if err := r.client.Update(b.Context(), r.values("two")); err != nil {
				b.Fatal(err)
			}
		})
		p.stop()
	}
}

// BenchmarkReleasesAtRest watches HelmReleases of all namespaces while nothing changes.
func BenchmarkReleasesAtRest(b *testing.B) {
	r := newReleases(b, *releaseCount)
	for b.Loop() {
		r.create()
		wait := r.follow("1.0.0")
		p := startController(b, r.namespace, releaseWorkers, "--watch-all-namespaces")
		wait()
		r.idle(p)
		p.stop()
	}
}

// idle watches the releases while nothing changes.
func (r *releases) idle(p *process) {
	b := r.b
	b.Helper()
	quiet(b)
	t := newTable(fmt.Sprintf("%d HelmReleases, idle for %s", r.count, *idleFor), "% of a core", "memory, MB",
		"without the binary", "most memory, MB", "requests but watches")
	log, before := testenv.NewAuditLog(b), p.usage()
	<-time.After(*idleFor)
	passed := since(before, p.usage())
	requests := 0
	for _, q := range log.Requests(b, testenv.Request{UserAgent: "sluice"}) {
		if q.Verb != "watch" {
			requests++
			b.Logf("while idle: %+v", q)
		}
	}
	t.row(100*passed.cpu.Seconds()/passed.took.Seconds(), p.memory("VmRSS"), p.memory("RssAnon"),
		p.memory("VmHWM"), requests)
	b.ReportMetric(float64(requests), "idle-requests")
}

const manyDefinitions = 300

// BenchmarkReleasesWithDefinitions installs HelmReleases in a cluster with 300 more definitions, without them, and with
// them again, as each installation leaves its objects to the next.
func BenchmarkReleasesWithDefinitions(b *testing.B) {
	t := newTable(fmt.Sprintf("%d HelmReleases, new", *releaseCount), "", "time s", "x few", "CPU s",
		"API server CPU s", "most memory, MB")
	for b.Loop() {
		before, beforeMemory := withDefinitions(b)
		few, fewMemory := newReleases(b, *releaseCount).install()
		after, afterMemory := withDefinitions(b)
		row := func(name string, m measured, memory float64) {
			t.row(name, m.took.Seconds(), m.took.Seconds()/few.took.Seconds(), m.cpu.Seconds(),
				m.server.Seconds(), memory)
		}
		row(fmt.Sprintf("%d more definitions", manyDefinitions), before, beforeMemory)
		row("few definitions", few, fewMemory)
		row("many again", after, afterMemory)
		b.ReportMetric(mean(before, after).took.Seconds()/few.took.Seconds(), "many/few")
		b.ReportMetric(beforeMemory, "MB")
	}
}

// withDefinitions is [releases.install] with more definitions in the cluster.
func withDefinitions(b *testing.B) (took measured, memory float64) {
	b.Helper()
	r := newReleases(b, *releaseCount)
	var definitions []*unstructured.Unstructured
	for n := range manyDefinitions {
		definitions = append(definitions, r.definition(n))
	}
	took, memory = r.install()
	b.Logf("with %d more definitions: %s, %.0f MB at most", manyDefinitions, took.took, memory)
	for _, d := range definitions {
		r.remove(d)
	}
	return took, memory
}

// install returns what it takes until the HelmReleases are Ready, and the most memory.
func (r *releases) install() (took measured, memory float64) {
	r.b.Helper()
	r.create()
	quiet(r.b)
	wait, start := r.follow("1.0.0"), usage{at: time.Now(), server: cpuTime(r.b, testenv.ClusterPID(r.b))}
	p := startController(r.b, r.namespace, releaseWorkers)
	defer p.stop()
	wait()
	return since(start, p.usage()), p.memoryWithChildren()
}

// definition creates a definition.
func (r *releases) definition(n int) *unstructured.Unstructured {
	group, plural := fmt.Sprintf("g%d.bench.example.com", n%50), fmt.Sprintf("things%d", n)
	crd := &unstructured.Unstructured{}
	text := fmt.Sprintf(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[2]s.%[1]s}
spec:
  group: %[1]s
  scope: Namespaced
  names: {kind: Thing%[3]d, listKind: Thing%[3]dList, plural: %[2]s, singular: thing%[3]d}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`, group, plural, n)
	if err := yaml.Unmarshal([]byte(text), &crd.Object); err != nil {
		r.b.Fatal(err)
	}
	if err := r.client.Create(r.b.Context(), crd); err != nil {
		r.b.Fatal(err)
	}
	r.b.Cleanup(func() { _ = r.client.Delete(context.Background(), crd) })
	return crd
}

// remove deletes an object, and waits until it is gone.
func (r *releases) remove(o client.Object) {
	r.b.Helper()
	if err := r.client.Delete(r.b.Context(), o); err != nil {
		r.b.Fatal(err)
	}
	testenv.Eventually(r.b, "the object is deleted", func() error {
		err := r.client.Get(r.b.Context(), client.ObjectKeyFromObject(o), o)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return cmp.Or(err, errors.New("it still exists"))
	})
}
