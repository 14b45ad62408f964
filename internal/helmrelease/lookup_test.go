package helmrelease

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	chartcommon "helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/release/common"
	helmrelease "helm.sh/helm/v4/pkg/release/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/rollout"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// TestLookedUpListsAreBounded has more objects than one request asks for, then more bytes than a template may read.
func TestLookedUpListsAreBounded(t *testing.T) {
	cfg := testenv.Cluster(t)
	typed, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	all, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	namespace := testenv.Namespace(t)
	client := all.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(namespace)
	create := func(from, to int, text string) {
		for i := from; i < to; i++ {
			if _, err := typed.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%d", i)}, Data: map[string]string{"x": text},
			}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	create(0, 70, "x")
	list, err := listBounded(t.Context(), client, (*guard.Lease).Release)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]int{}
	for _, o := range list.Items {
		names[o.GetName()]++
	}
	for i := range 70 {
		if names[fmt.Sprintf("c%d", i)] != 1 {
			t.Errorf("c%d occurs %d times in %v", i, names[fmt.Sprintf("c%d", i)], names)
		}
	}
	if content := list.UnstructuredContent(); list.GetContinue() != "" || content["kind"] != "ConfigMapList" {
		t.Errorf("a list of kind %v", content["kind"])
	}
	create(100, 137, strings.Repeat("x", 1_000_000))
	_, err = listBounded(t.Context(), client, (*guard.Lease).Release)
	if err == nil || !strings.Contains(err.Error(), "more than 32 MiB") {
		t.Errorf("the error is %v", err)
	}
}

// TestMemoryOfLookups looks up objects of many short values, which need far more memory than their size.
func TestMemoryOfLookups(t *testing.T) {
	cfg := testenv.Cluster(t)
	typed, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := apply.NewCluster(cfg, apply.ClusterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	namespace, data := testenv.Namespace(t), map[string]string{}
	for i := range 20_000 {
		data[fmt.Sprint(i)] = ""
	}
	for i := range 3 {
		if _, err := typed.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%d", i)}, Data: data,
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		object string
		budget int64
		fails  func(error) bool
	}{
		"a list":                      {budget: 32 << 20, fails: guard.IsAnswerTooLarge},
		"one object":                  {object: "c0", budget: 8 << 20, fails: guard.IsAnswerTooLarge},
		"one object that fits":        {object: "c0", budget: 256 << 20},
		"a list of objects that fits": {budget: 256 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			budget := guard.NewBudget(c.budget)
			ctx := guard.WithBudget(t.Context(), budget)
			var kept []*guard.Lease
			lookup := lookupIn(&rollout.Target{Cluster: cluster}, func(l *guard.Lease) { kept = append(kept, l) })
			_, err := lookup(ctx, "v1", "ConfigMap", namespace, c.object)
			switch {
			case c.fails == nil && (err != nil || len(kept) == 0):
				t.Errorf("%d leases, error %v", len(kept), err)
			case c.fails != nil && !c.fails(err):
				t.Errorf("the error is %v", err)
			}
		})
	}
}

// TestMemoryOfStoredReleases takes the memory of what anybody may have stored in a Secret.
func TestMemoryOfStoredReleases(t *testing.T) {
	dense := "a: [" + strings.Repeat("{a},", 200_000) + "]\n"
	ctx := guard.WithBudget(t.Context(), guard.NewBudget(64<<20))
	r := &run{}
	for name, rel := range map[string]*helmrelease.Release{
		"manifest": {Manifest: dense},
		"hook":     {Hooks: []*helmrelease.Hook{{Manifest: dense}}},
	} {
		if err := r.takeReleases(ctx, rel); !guard.IsMemory(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := takeCRDs(ctx, []chart.CRD{{File: &chartcommon.File{Data: []byte(dense)}}}); !guard.IsMemory(err) {
		t.Errorf("definitions: %v", err)
	}
	o := &observed{}
	for version, status := range map[int]string{4: "failed", 3: "failed", 2: "deployed", 1: "superseded"} {
		rel := &helmrelease.Release{Version: version, Info: &helmrelease.Info{}}
		rel.SetStatus(common.Status(status), "")
		o.history = append(o.history, rel)
	}
	slices.SortFunc(o.history, func(a, b *helmrelease.Release) int { return b.Version - a.Version })
	if got := o.compared(); len(got) != 2 || got[0].Version != 3 || got[1].Version != 2 {
		t.Errorf("an upgrade compares with %v", got)
	}
	if o.history = o.history[2:]; len(o.compared()) != 0 {
		t.Errorf("an upgrade of a deployed release compares with %v", o.compared())
	}
}
