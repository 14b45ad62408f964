package apply

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/cluster/resourceversion"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

const (
	group        = "kustomize.toolkit.fluxcd.io"
	longTimeout  = 3 * time.Minute        // of waits that succeed
	shortTimeout = 500 * time.Millisecond // of waits that time out
)

// fixture is a cluster and an owner that applies to it.
type fixture struct {
	*Cluster
	admin     *Cluster // with all rights, if the owner has only some
	t         testing.TB
	ns        string
	owner     Owner
	requests  *counter
	inventory Inventory
	notified  chan Owner  // calls of OnDrift
	saved     []Inventory // calls of SaveInventory
}

func newFixture(t testing.TB, tune ...func(*rest.Config)) *fixture {
	t.Helper()
	cfg := testenv.Cluster(t)
	f := &fixture{t: t, ns: testenv.Namespace(t), requests: &counter{}, notified: make(chan Owner, 100)}
	cfg.Wrap(f.requests.wrap)
	for _, change := range tune {
		change(cfg)
	}
	f.connect(cfg)
	f.owner = Owner{Group: group, Namespace: f.ns, Name: "app"}
	return f
}

// connect replaces the cluster of the fixture.
func (f *fixture) connect(cfg *rest.Config) {
	f.t.Helper()
	c, err := NewCluster(cfg, ClusterOptions{WaitTimeout: longTimeout, OnDrift: func(o Owner) { f.notified <- o }})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(c.Close)
	f.Cluster = c
}

// counter records requests. Dry-runs have the prefix DRY.
type counter struct {
	mu    sync.Mutex
	lines []string
	total atomic.Int64
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (c *counter) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		kind := r.Method
		switch {
		case r.URL.Query().Get("watch") != "":
			kind = "WATCH"
		case r.URL.Query().Get("dryRun") != "":
			kind = "DRY " + kind
		}
		c.mu.Lock()
		c.lines = append(c.lines, kind+" "+r.URL.Path)
		c.mu.Unlock()
		c.total.Add(1)
		return next.RoundTrip(r)
	})
}

// take returns the requests since the last call, without discovery and access reviews.
func (c *counter) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for _, l := range c.lines {
		_, path, _ := strings.Cut(l, "/")
		if parts := strings.Split(path, "/"); len(parts) > 3 && parts[1] != "authorization.k8s.io" ||
			len(parts) == 3 && parts[0] == "api" {
			out = append(out, l)
		}
	}
	c.lines = nil
	return out
}

// count returns how many requests there were since the last call, by verb.
func (c *counter) count() map[string]int {
	out := map[string]int{}
	for _, l := range c.take() {
		verb, _, _ := strings.Cut(l, " /")
		out[verb]++
	}
	return out
}

// objects parses YAML documents. A %s in them is replaced by the namespace of the test.
func (f *fixture) objects(text string) []*unstructured.Unstructured {
	f.t.Helper()
	var out []*unstructured.Unstructured
	for doc := range strings.SplitSeq(strings.ReplaceAll(text, "%s", f.ns), "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
			f.t.Fatal(err)
		}
		out = append(out, o)
	}
	return out
}

func (f *fixture) request(text string) Request {
	f.t.Helper()
	return Request{Owner: f.owner, Objects: f.objects(text), Previous: f.inventory,
		SaveInventory: func(i Inventory) error {
			f.saved = append(f.saved, i)
			return nil
		}}
}

func (f *fixture) try(req Request) (*Result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), longTimeout)
	defer cancel()
	r, err := f.Apply(ctx, req)
	if err == nil {
		f.inventory = r.Inventory
	}
	return r, err
}

// apply applies objects and returns the changes as "Kind/name action".
func (f *fixture) apply(text string) []string {
	f.t.Helper()
	return f.do(f.request(text))
}

func (f *fixture) do(req Request) []string {
	f.t.Helper()
	r, err := f.try(req)
	if err != nil {
		f.t.Fatal(err)
	}
	return describe(r.Changes)
}

// describe returns changes as "Kind/name action".
func describe(changes []Change) []string {
	var out []string
	for _, c := range changes {
		out = append(out, fmt.Sprintf("%s/%s %s", c.Ref.Kind, c.Ref.Name, c.Action))
	}
	return out
}

func (f *fixture) get(resource schema.GroupVersionResource, name string) *unstructured.Unstructured {
	f.t.Helper()
	o, err := f.client(resource, f.ns).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	return o
}

func (f *fixture) has(resource schema.GroupVersionResource, namespace, name string) bool {
	f.t.Helper()
	_, err := f.client(resource, namespace).Get(context.Background(), name, metav1.GetOptions{})
	return err == nil
}

// waitSynced waits until all watches are complete.
func (f *fixture) waitSynced() {
	f.t.Helper()
	testenv.Eventually(f.t, "watches", func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		for k, w := range f.watches.All() {
			if !w.Live() && w.Refusal() == nil {
				return fmt.Errorf("watch of %v is not complete", k)
			}
		}
		return nil
	})
	f.requests.take()
}

// waitDrift waits until the owner was notified of drift that is not corrected yet.
func (f *fixture) waitDrift(o Owner) {
	f.t.Helper()
	deadline := time.NewTimer(longTimeout)
	defer deadline.Stop()
	for {
		select {
		case got := <-f.notified:
			if got == o && f.Drifted(o) {
				return
			}
		case <-deadline.C:
			f.t.Fatalf("%v was not notified of drift", o)
		}
	}
}

// waitObserved waits until the watch has come to the newest version of an object.
func (f *fixture) waitObserved(resource schema.GroupVersionResource, name string) {
	f.t.Helper()
	version := f.get(resource, name).GetResourceVersion()
	testenv.Eventually(f.t, "event of "+name, func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		for k, w := range f.watches.All() {
			if k.Resource == resource && !resourceversion.Newer(version, w.ResourceVersion()) {
				return nil
			}
		}
		return fmt.Errorf("not at version %s", version)
	})
}

// assertLines compares lists of lines.
func assertLines(t testing.TB, what string, got, want []string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s:\ngot  %s\nwant %s", what, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

var (
	configMaps  = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	secrets     = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	services    = schema.GroupVersionResource{Version: "v1", Resource: "services"}
	namespaces  = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	jobs        = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
	crds        = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
	clusterRoles = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1",
		Resource: "clusterroles"}
)
