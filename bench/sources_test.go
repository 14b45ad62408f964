package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/config"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/manager"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

const manySources = 1000

// BenchmarkSources runs the controllers with 1,000 GitRepositories of one host, each of a repository of its
// own, at an interval of a minute, and measures a minute in which nothing moves: the share of a core, the
// memory, and the requests of a pass.
func BenchmarkSources(b *testing.B) {
	g := testenv.NewGit(b)
	g.Commit("one", map[string]string{"a.yaml": "kind: ConfigMap"})
	for i := range manySources { // to a fetch, each is a repository
		if err := os.Symlink(filepath.Join(g.Root, "one.git"),
			filepath.Join(g.Root, fmt.Sprintf("r%04d.git", i))); err != nil {
			b.Fatal(err)
		}
	}
	cfg := testenv.Cluster(b)
	c, err := client.New(cfg, client.Options{Scheme: kubeclient.Scheme()})
	if err != nil {
		b.Fatal(err)
	}
	define(b)
	namespace := testenv.Namespace(b)
	for i := range manySources {
		if err := c.Create(b.Context(), gitRepository(namespace, fmt.Sprintf("r%04d", i), g.URL)); err != nil {
			b.Fatal(err)
		}
	}
	var asked atomic.Int64
	measure := watchMemory(b)
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- manager.Run(ctx, counting(cfg, &asked), options.Options{
			Controllers: []string{options.SourceController}, StoragePath: b.TempDir(), StorageAddr: "127.0.0.1:0",
			RetentionTTL: time.Minute, RetentionCount: 2,
			MetricsAddr: "0", HealthAddr: "0", RuntimeNamespace: namespace, Concurrent: 4, KubeAPIQPS: 1000,
			KubeAPIBurst: 1000,
			Retry:        reconcile.Retry{Min: time.Second, Max: time.Minute}, LogLevel: "error",
			LogEncoding: "console",
		})
	}()
	ready(b, c, namespace)
	for b.Loop() {
		requests, polls, began, cpu := asked.Load(), g.Stats()["advertisements"], time.Now(), processor(b)
		for tick := time.NewTicker(100 * time.Millisecond); g.Stats()["advertisements"] < polls+manySources; <-tick.C {
			if time.Since(began) > 5*time.Minute {
				b.Fatal("the sources are not due every minute")
			}
		}
		spent := processor(b) - cpu
		b.ReportMetric(100*spent.Seconds()/time.Minute.Seconds(), "%-of-a-core")
		b.ReportMetric(float64(spent.Microseconds())/manySources, "cpu-us/source")
		b.ReportMetric(time.Since(began).Seconds(), "s-for-a-round")
		b.ReportMetric(float64(asked.Load()-requests)/manySources, "api-requests/source")
	}
	b.ReportMetric(measure(), "peak-MB")
	cancel()
	if err := <-ended; err != nil {
		b.Error(err)
	}
}

func gitRepository(namespace, name, url string) *sourcev1.GitRepository {
	return &sourcev1.GitRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: sourcev1.GitRepositorySpec{
			URL: url + "/" + name, Interval: meta.Duration{Duration: time.Minute},
			Timeout:   &meta.Duration{Duration: 5 * time.Minute},
			Reference: &sourcev1.GitRepositoryRef{Branch: "main"},
		},
	}
}

// ready waits until all GitRepositories are.
func ready(b *testing.B, c client.Client, namespace string) {
	b.Helper()
	for tick := time.NewTicker(time.Second); ; <-tick.C {
		var all sourcev1.GitRepositoryList
		if err := c.List(b.Context(), &all, client.InNamespace(namespace)); err != nil {
			b.Fatal(err)
		}
		left := len(all.Items)
		for i := range all.Items {
			if reconcile.IsReady(&all.Items[i]) {
				left--
			}
		}
		if left == 0 {
			return
		}
	}
}

// processor is how much of a core this process took so far.
func processor(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func define(b *testing.B) {
	b.Helper()
	objects, err := config.Definitions()
	if err != nil {
		b.Fatal(err)
	}
	cluster, err := apply.NewCluster(testenv.Cluster(b), apply.ClusterOptions{WaitTimeout: 3 * time.Minute})
	if err != nil {
		b.Fatal(err)
	}
	defer cluster.Close()
	if _, err := cluster.Apply(b.Context(), apply.Request{Owner: apply.Owner{Group: "test.io", Namespace: "x",
		Name: "x"}, Objects: objects}); err != nil {
		b.Fatal(err)
	}
}
