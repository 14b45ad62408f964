package health

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

const (
	owner   = "team/app"
	timeout = 3 * time.Minute
)

type fixture struct {
	*Watcher
	t        *testing.T
	admin    dynamic.Interface // requests of the test itself, which are not counted
	mapper   *restmapper.DeferredDiscoveryRESTMapper
	ns       string
	changed  chan string
	targets  []Target // of the owner
	checks   []*Check
	requests atomic.Int64 // without watches
	opened   atomic.Int64 // watches that were opened
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func newFixture(t *testing.T, user ...string) *fixture {
	t.Helper()
	f := &fixture{t: t, ns: testenv.Namespace(t), changed: make(chan string, 1000)}
	cfg := testenv.Cluster(t)
	disco, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	f.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco))
	if f.admin, err = dynamic.NewForConfig(cfg); err != nil {
		t.Fatal(err)
	}
	counted := rest.CopyConfig(cfg)
	for _, u := range user {
		counted.Impersonate.UserName = strings.ReplaceAll(u, "%s", f.ns)
	}
	counted.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.URL.Query().Get("watch") != "" {
				f.opened.Add(1)
			} else {
				f.requests.Add(1)
			}
			return next.RoundTrip(r)
		})
	})
	d, err := dynamic.NewForConfig(counted)
	if err != nil {
		t.Fatal(err)
	}
	f.Watcher = NewWatcher(d, f.mapper, func(o string) { f.changed <- o })
	t.Cleanup(f.Close)
	return f
}

// apply applies YAML documents under another field manager. A %s in them is replaced by the namespace of the test.
func (f *fixture) apply(text string) {
	f.t.Helper()
	for doc := range strings.SplitSeq(strings.ReplaceAll(text, "%s", f.ns), "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
			f.t.Fatal(err)
		}
		testenv.Eventually(f.t, "apply "+o.GetName(), func() error { // a new kind is served with a delay
			f.mapper.Reset()
			m, err := f.mapper.RESTMapping(o.GroupVersionKind().GroupKind(), o.GroupVersionKind().Version)
			if err != nil {
				return err
			}
			_, err = f.admin.Resource(m.Resource).Namespace(o.GetNamespace()).
				Apply(context.Background(), o.GetName(), o,
					metav1.ApplyOptions{FieldManager: "test", Force: true})
			return err
		})
	}
}

func (f *fixture) remove(t Target) {
	f.t.Helper()
	m, err := f.mapper.RESTMapping(t.groupKind(), t.Version)
	if err != nil {
		f.t.Fatal(err)
	}
	background := metav1.DeletePropagationBackground
	if err := f.admin.Resource(m.Resource).Namespace(t.Namespace).
		Delete(context.Background(), t.Name, metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
		f.t.Fatal(err)
	}
}

// setStatus patches the status of an object.
func (f *fixture) setStatus(t Target, patch string) {
	f.t.Helper()
	m, err := f.mapper.RESTMapping(t.groupKind(), t.Version)
	if err != nil {
		f.t.Fatal(err)
	}
	if _, err := f.admin.Resource(m.Resource).Namespace(t.Namespace).
		Patch(context.Background(), t.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{},
			"status"); err != nil {
		f.t.Fatal(err)
	}
}

// setTargets sets the targets of the owner.
func (f *fixture) setTargets(targets []Target, checks ...*Check) {
	f.targets, f.checks = targets, checks
	f.SetTargets(owner, targets, checks...)
}

// await waits until a target of the owner has a status. It reads the results only after a notification, and sets the
// targets again, as owners do.
func (f *fixture) await(t Target, status string) Result {
	f.t.Helper()
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	for {
		results, synced := f.Results(owner)
		for _, r := range results {
			if synced && r.Target == t && r.Status == status {
				return r
			}
		}
		select {
		case <-f.changed:
			f.SetTargets(owner, f.targets, f.checks...)
		case <-deadline.C:
			f.t.Fatalf("%s is not %s: %+v, synced %v", t, status, results, synced)
		}
	}
}

func (f *fixture) target(group, version, kind, name string) Target {
	return Target{Group: group, Version: version, Kind: kind, Namespace: f.ns, Name: name}
}

func (f *fixture) waitChanged() {
	f.t.Helper()
	select {
	case <-f.changed:
	case <-time.After(timeout):
		f.t.Fatal("no notification of a change")
	}
}

func drain(c chan string) {
	for len(c) > 0 {
		<-c
	}
}

func (f *fixture) waitChangedTo(t Target, message string) {
	f.t.Helper()
	testenv.Eventually(f.t, message, func() error {
		results, synced := f.Results(owner)
		if synced && results[0].Target == t && strings.Contains(results[0].Message, message) {
			return nil
		}
		return fmt.Errorf("%+v", results)
	})
}

// watches returns the number of watches. The caller holds the lock.
func (f *fixture) watches() int {
	n := 0
	for range f.store.All() {
		n++
	}
	return n
}
