package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

const (
	applied     = 500 // objects of one owner
	atOnce      = 8   // requests under way, in both loops
	ownersGroup = "kustomize.toolkit.fluxcd.io"
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// counting counts the requests that a client makes; a watch counts once, when it is opened.
func counting(cfg *rest.Config, n *atomic.Int64) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			n.Add(1)
			return next.RoundTrip(r)
		})
	})
	return cfg
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func objectsIn(namespace, value string) []*unstructured.Unstructured {
	out := make([]*unstructured.Unstructured, applied)
	for n := range out {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
			"data": map[string]any{"value": value, "n": fmt.Sprint(n)}}}
		o.SetNamespace(namespace)
		o.SetName(fmt.Sprintf("c%03d", n))
		out[n] = o
	}
	return out
}

// resources of the kinds that are applied here.
var resources = map[string]schema.GroupVersionResource{
	"ConfigMap":      configMaps,
	"ServiceAccount": {Version: "v1", Resource: "serviceaccounts"},
	"Service":        {Version: "v1", Resource: "services"},
	"Deployment":     {Group: "apps", Version: "v1", Resource: "deployments"},
	"Ingress":        {Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"},
}

// bareLoop is the minimum of work: one server-side apply per object, without other requests.
func bareLoop(b *testing.B, client dynamic.Interface, objects []*unstructured.Unstructured) time.Duration {
	b.Helper()
	start := time.Now()
	inParallel(objects, func(o *unstructured.Unstructured) {
		body, err := json.Marshal(o.Object)
		if err == nil {
			_, err = client.Resource(resources[o.GetKind()]).Namespace(o.GetNamespace()).
				Patch(context.Background(), o.GetName(), types.ApplyPatchType, body,
					metav1.PatchOptions{FieldManager: "bare"})
		}
		if err != nil {
			b.Error(err)
		}
	})
	if b.Failed() {
		b.FailNow()
	}
	return time.Since(start)
}

// BenchmarkApply measures creating and changing 500 objects, as a ratio to a bare loop of server-side applies, and the
// requests of a pass without changes.
func BenchmarkApply(b *testing.B) {
	cfg, bare := clusterClient(b)
	for b.Loop() {
		var requests atomic.Int64
		drift := make(chan apply.Owner, 1)
		cluster, err := apply.NewCluster(counting(cfg, &requests),
			apply.ClusterOptions{Concurrency: atOnce, OnDrift: func(o apply.Owner) { drift <- o }})
		if err != nil {
			b.Fatal(err)
		}
		ours, theirs := testenv.Namespace(b), testenv.Namespace(b)
		owner := apply.Owner{Group: ownersGroup, Namespace: ours, Name: "bench"}
		var inventory apply.Inventory
		run := func(value string) (time.Duration, *apply.Result) {
			objects, start := objectsIn(ours, value), time.Now()
			result, err := cluster.Apply(context.Background(),
				apply.Request{Owner: owner, Objects: objects, Previous: inventory})
			if err != nil {
				b.Fatal(err)
			}
			inventory = result.Inventory
			return time.Since(start), result
		}

		creating, _ := run("1")
		b.ReportMetric(creating.Seconds()/bareLoop(b, bare, objectsIn(theirs, "1")).Seconds(), "create/bare")
		changing, _ := run("2")
		b.ReportMetric(changing.Seconds()/bareLoop(b, bare, objectsIn(theirs, "2")).Seconds(), "change/bare")

		testenv.Eventually(b, "a pass that asks nothing", func() error {
			before := requests.Load()
			if run("2"); requests.Load() != before {
				return fmt.Errorf("the watch is not complete yet")
			}
			return nil
		})
		before, start := requests.Load(), time.Now()
		for range 10 {
			run("2")
		}
		b.ReportMetric(float64(time.Since(start).Milliseconds())/10, "ms/unchanged")
		b.ReportMetric(float64(requests.Load()-before), "requests/unchanged")

		start = time.Now()
		if err := bare.Resource(configMaps).Namespace(ours).
			Delete(context.Background(), "c250", metav1.DeleteOptions{}); err != nil {
			b.Fatal(err)
		}
		<-drift
		before = requests.Load()
		_, result := run("2")
		b.ReportMetric(float64(time.Since(start).Milliseconds()), "ms/healed")
		b.ReportMetric(float64(requests.Load()-before), "requests/healed")
		checkHealed(b, result)
		cluster.Close()
	}
}

// checkHealed makes sure that only the deleted object was created.
func checkHealed(b *testing.B, result *apply.Result) {
	for _, c := range result.Changes {
		if (c.Action == apply.Created) != strings.HasSuffix(c.Ref.Name, "250") {
			b.Fatalf("%s %s", c.Ref, c.Action)
		}
	}
}

// clusterClient returns the configuration of the test cluster and a client for it.
func clusterClient(b *testing.B) (*rest.Config, *dynamic.DynamicClient) {
	cfg := testenv.Cluster(b)
	bare, err := dynamic.NewForConfig(cfg)
	if err != nil {
		b.Fatal(err)
	}
	return cfg, bare
}
