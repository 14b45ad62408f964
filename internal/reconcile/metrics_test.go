package reconcile

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
)

// seriesOf collects what was observed of one object.
type seriesOf Ref

func (o seriesOf) Describe(ch chan<- *prometheus.Desc) { observed.Describe(ch) }

func (o seriesOf) Collect(ch chan<- prometheus.Metric) {
	observed.mu.Lock()
	defer observed.mu.Unlock()
	if s := observed.series[Ref(o)]; s != nil {
		s.collect(Ref(o), ch)
	}
}

func TestMetricsOfAnObject(t *testing.T) {
	t.Parallel()
	gk := schema.GroupKind{Kind: "TestMetricsOfAnObject"}
	k := &kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "web"}}
	ref := RefTo(gk, k.Namespace, k.Name)
	expect := func(suspended, info string) {
		t.Helper()
		want := ""
		if suspended != "" {
			want = "# HELP gotk_suspend_status 1 if the object is suspended, 0 otherwise.\n" +
				"# TYPE gotk_suspend_status gauge\ngotk_suspend_status" +
				`{kind="TestMetricsOfAnObject",name="web",namespace="apps"} ` + suspended + "\n"
		}
		if info != "" {
			want += "# HELP gotk_resource_info Readiness and suspension of an object, as labels. " +
				"The value is always 1.\n# TYPE gotk_resource_info gauge\ngotk_resource_info" +
				`{customresource_kind="TestMetricsOfAnObject",exported_namespace="apps",name="web",` + info + "} 1\n"
		}
		if err := testutil.CollectAndCompare(seriesOf(ref), strings.NewReader(want), "gotk_suspend_status",
			"gotk_resource_info"); err != nil {
			t.Error(err)
		}
	}
	suspend := func(suspended, wantNews bool) {
		t.Helper()
		k.Spec.Suspend = suspended
		if isNews := observeSuspended(gk, k); isNews != wantNews {
			t.Errorf("suspended: %t is news: %t, want %t", suspended, isNews, wantNews)
		}
	}
	suspend(true, false) // as after a restart
	expect("1", `ready="Unknown",suspended="true"`)
	suspend(false, false)
	expect("0", `ready="Unknown",suspended="true"`) // until a pass
	Mark(k, TypeReady, metav1.ConditionTrue, "Done", "")
	observePass(gk, k, time.Second)
	expect("0", `ready="True",suspended="false"`)
	suspend(true, true)
	expect("1", `ready="True",suspended="true"`)
	suspend(true, false)
	forgetMetrics(gk, types.NamespacedName{Namespace: k.Namespace, Name: k.Name})
	expect("", "")
}

// TestDurationsAreThoseOfAHistogram compares the series of random durations with those of prometheus' own histogram.
func TestDurationsAreThoseOfAHistogram(t *testing.T) {
	t.Parallel()
	gk := schema.GroupKind{Kind: "TestDurationsAreThoseOfAHistogram"}
	k := &kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "web"}}
	theirs := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "gotk_reconcile_duration_seconds",
		Help: "Duration of the reconciles of an object, in seconds.", Buckets: durationBuckets},
		[]string{"kind", "name", "namespace"})
	t.Cleanup(func() { forgetMetrics(gk, types.NamespacedName{Namespace: k.Namespace, Name: k.Name}) })
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // not for keys
	observe := func(took time.Duration) {
		observePass(gk, k, took)
		theirs.WithLabelValues(gk.Kind, k.Name, k.Namespace).Observe(took.Seconds())
	}
	for _, bound := range durationBuckets {
		observe(time.Duration(bound * float64(time.Second)))
	}
	for range 200 {
		observe(time.Duration(random.Int64N(int64(1) << (20 + random.IntN(20)))))
	}
	got, want := histogramOf(t, seriesOf(RefTo(gk, "apps", "web"))), histogramOf(t, theirs)
	if got.GetSampleCount() != want.GetSampleCount() ||
		math.Abs(got.GetSampleSum()-want.GetSampleSum()) > 1e-6*want.GetSampleSum() {
		t.Errorf("got %d passes in %v s, want %d in %v s", got.GetSampleCount(), got.GetSampleSum(),
			want.GetSampleCount(), want.GetSampleSum())
	}
	if g, w := fmt.Sprint(got.GetBucket()), fmt.Sprint(want.GetBucket()); g != w {
		t.Errorf("got the buckets\n%s\nwant\n%s", g, w)
	}
}

// histogramOf returns the only histogram of a collector.
func histogramOf(t *testing.T, c prometheus.Collector) *dto.Histogram {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetType() == dto.MetricType_HISTOGRAM && len(f.GetMetric()) == 1 {
			return f.GetMetric()[0].GetHistogram()
		}
	}
	t.Fatalf("no histogram in %v", families)
	return nil
}
