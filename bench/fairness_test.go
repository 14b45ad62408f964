package bench

import (
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

const (
	fairRounds = 25 // commits of each tenant, without and with the hostile tenant
	fairApps   = 3  // Kustomizations of a tenant

	failingSources, slowSources, failingApps = 200, 50, 250 // objects of the hostile tenant
)

// BenchmarkFairness has three tenants. Two of them commit and wait until the commit is applied, first alone, and then
// while the third has 500 objects that fail or are slow.
func BenchmarkFairness(b *testing.B) {
	t := newTable("Two tenants, and a hostile third with 500 objects that fail or are slow",
		"tenants", "commits", "median ms", "p99 ms", "x alone")
	for b.Loop() {
		app := func(app int, version string) []string { return []string{configMap(appName(app), version)} }
		first, second, hostile := newFleet(b, fairApps, app), newFleet(b, fairApps, app), newFleet(b, 1, app)
		for _, f := range []*fleet{first, second, hostile} {
			f.commit("0", f.all()...)
		}
		p := startController(b, first.namespace, "--watch-all-namespaces=true", "--concurrent", "4")
		for _, f := range []*fleet{first, second, hostile} {
			commit := f.commit("1", f.all()...)
			f.declare()
			f.follow(commit)()
		}
		alone := slices.Concat(first.commits("a"), second.commits("a"))
		hostile.attack()
		together := slices.Concat(first.commits("b"), second.commits("b"))
		p.stop()
		ratio := percentile(together, 99) / percentile(alone, 99)
		t.row("two, alone", len(alone), percentile(alone, 50), percentile(alone, 99), 1.0)
		t.row("two, with the hostile one", len(together), percentile(together, 50), percentile(together, 99), ratio)
		b.ReportMetric(ratio, "x-p99-alone")
	}
}

// commits makes commits one after the other, and returns how long each took until all Kustomizations were Ready at it,
// in milliseconds.
func (f *fleet) commits(prefix string) (took []float64) {
	f.b.Helper()
	for round := range fairRounds {
		commit := f.commit(fmt.Sprint(prefix, round), f.all()...)
		wait, start := f.follow(commit), time.Now()
		f.pull()
		wait()
		took = append(took, float64(time.Since(start).Microseconds())/1000)
	}
	return took
}

// percentile returns a percentile of values.
func percentile(values []float64, percent int) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[(len(sorted)-1)*percent/100]
}

// attack creates objects that fail or are slow: sources of a repository that does not exist, sources of a server that
// never answers, and Kustomizations of a path that does not exist. All retry as often as they can.
func (f *fleet) attack() {
	f.b.Helper()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.b.Fatal(err)
	}
	f.b.Cleanup(func() { _ = silent.Close() })
	second := meta.Duration{Duration: time.Second}
	var objects []client.Object
	source := func(name, url string) {
		objects = append(objects, &sourcev1.GitRepository{
			ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name},
			Spec:       sourcev1.GitRepositorySpec{URL: url, Interval: second},
		})
	}
	for i := range failingSources {
		source(fmt.Sprintf("failing-%d", i), fmt.Sprintf("%s/missing-%d", f.git.URL, i))
	}
	for i := range slowSources {
		source(fmt.Sprintf("slow-%d", i), fmt.Sprintf("http://%s/%d", silent.Addr(), i))
	}
	for i := range failingApps {
		objects = append(objects, &kustomizev1.Kustomization{
			ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: fmt.Sprintf("failing-%d", i)},
			Spec: kustomizev1.KustomizationSpec{Interval: second, RetryInterval: &second, Path: "./missing",
				SourceRef: kustomizev1.SourceReference{Kind: sourcev1.GitRepositoryKind,
					NamespacedName: meta.NamespacedName{Name: "fleet"}}},
		})
	}
	inParallel(objects, func(o client.Object) {
		if err := f.client.Create(f.b.Context(), o); err != nil {
			f.b.Error(err)
		}
	})
	testenv.Eventually(f.b, "the hostile objects fail", func() error {
		var list kustomizev1.KustomizationList
		if err := f.client.List(f.b.Context(), &list, client.InNamespace(f.namespace)); err != nil {
			return err
		}
		failed := 0
		for _, k := range list.Items {
			if len(k.Status.Conditions) > 0 {
				failed++
			}
		}
		if failed < failingApps {
			return fmt.Errorf("%d of %d have a status", failed, failingApps)
		}
		return nil
	})
}
