package apply

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// newContentionFixture returns a fixture with a fake clock, and with applied objects.
func newContentionFixture(t *testing.T) (*fixture, *clocktesting.FakePassiveClock) {
	t.Helper()
	f := newFixture(t)
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_800_000_000, 0))
	f.options.Clock = clock
	f.apply(drifting)
	f.waitSynced()
	return f, clock
}

// drift changes an object and waits until the drift is detected.
func (f *fixture) drift(change edit, resource schema.GroupVersionResource, name string) {
	f.t.Helper()
	if err := change(context.Background(), f.client(resource, f.ns), name); err != nil {
		f.t.Fatal(err)
	}
	testenv.Eventually(f.t, "drift of "+name, func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, a := range f.tracked[f.owner] {
			if a.watch.Key().Resource == resource && a.ref.Name == name && a.drifted {
				return nil
			}
		}
		return errors.New("not detected yet")
	})
}

func TestContentionIsReportedDelayedAndEnds(t *testing.T) {
	t.Parallel()
	f, clock := newContentionFixture(t)
	change := updated("autotuner", set("9", "data", "a"))
	after := f.options.Contention.Threshold
	for range after {
		if found := f.Contentions(f.owner); len(found) > 0 {
			t.Fatalf("too soon: %+v", found)
		}
		f.drift(change, configMaps, "config")
		assertLines(t, "corrected", f.apply(drifting),
			[]string{"ConfigMap/config configured", "Service/service unchanged", "Deployment/app unchanged"})
	}
	found := f.Contentions(f.owner)
	if len(found) != 1 || found[0].Ref.Name != "config" || found[0].Corrections != after {
		t.Fatalf("%+v", found)
	}
	assertLines(t, "fields", found[0].Fields, []string{".data.a"})
	assertLines(t, "managers", found[0].Managers, []string{"autotuner"})

	pausesCorrections(t, f, change, clock, after)

	t.Log("a resync does not wait")
	f.drift(change, configMaps, "config")
	req := f.request(drifting)
	req.Resync = true
	assertLines(t, "resync", f.do(req), []string{"ConfigMap/config configured", "Service/service unchanged",
		"Deployment/app unchanged"})

	t.Log("it ends after a window without drift")
	clock.SetTime(clock.Now().Add(f.options.Contention.Window))
	if len(f.Contentions(f.owner)) != 1 {
		t.Error("ended too soon")
	}
	clock.SetTime(clock.Now().Add(time.Second))
	if found := f.Contentions(f.owner); len(found) != 0 || len(f.corrections) != 0 {
		t.Errorf("%+v", found)
	}
}

// pausesCorrections checks the growing delays between corrections.
func pausesCorrections(t *testing.T, f *fixture, change edit, clock *clocktesting.FakePassiveClock, after int) {
	t.Helper()
	t.Log("the correction is paused, twice as long each time; other objects are corrected")
	delay := f.options.Contention.MinDelay
	for n := range 8 {
		f.drift(change, configMaps, "config")
		f.requests.take()
		if f.Drifted(f.owner) {
			t.Fatalf("round %d: counts as drift", n)
		}
		assertLines(t, "paused", f.apply(drifting), []string{"ConfigMap/config unchanged", "Service/service unchanged",
			"Deployment/app unchanged"})
		assertLines(t, "requests", f.requests.take(), nil)
		if n == 0 {
			if err := patched(types.MergePatchType, "other", `{"spec":{"replicas":3}}`)(context.Background(),
				f.client(deployments, f.ns), "app"); err != nil {
				t.Fatal(err)
			}
			f.waitObserved(deployments, "app")
			assertLines(t, "other object", f.apply(drifting),
				[]string{"ConfigMap/config unchanged", "Service/service unchanged", "Deployment/app configured"})
		}
		clock.SetTime(clock.Now().Add(delay - time.Millisecond))
		if f.Drifted(f.owner) {
			t.Fatalf("round %d: before %s", n, delay)
		}
		clock.SetTime(clock.Now().Add(time.Millisecond))
		if !f.Drifted(f.owner) {
			t.Fatalf("round %d: not after %s", n, delay)
		}
		assertLines(t, "after the pause", f.apply(drifting),
			[]string{"ConfigMap/config configured", "Service/service unchanged", "Deployment/app unchanged"})
		delay = min(2*delay, f.options.Contention.MaxDelay)
	}
	if found := f.Contentions(f.owner); len(found) != 1 || found[0].Corrections != after+8 ||
		delay != f.options.Contention.MaxDelay {
		t.Fatalf("%+v, delay %s", found, delay)
	}
}

func TestNewDeclarationEndsPause(t *testing.T) {
	t.Parallel()
	f, _ := newContentionFixture(t)
	f.options.Contention.Threshold = 1
	f.drift(patched(types.MergePatchType, "autotuner", `{"data":{"a":"9"}}`), configMaps, "config")
	f.apply(drifting)
	f.drift(patched(types.MergePatchType, "autotuner", `{"data":{"a":"9"}}`), configMaps, "config")
	if f.Drifted(f.owner) {
		t.Fatal("not paused")
	}
	changed := f.objects(drifting)
	if err := unstructured.SetNestedField(changed[0].Object, "5", "data", "a"); err != nil {
		t.Fatal(err)
	}
	req := f.request(drifting)
	req.Objects = changed
	f.do(req)
	if got := f.get(configMaps, "config").Object["data"].(map[string]any)["a"]; got != "5" {
		t.Errorf("data is %v", got)
	}
	if found := f.Contentions(f.owner); len(found) != 0 {
		t.Errorf("%+v", found)
	}
}

func TestContentionNamesFieldsAndManagers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change           edit
		fields, managers []string
	}{
		"changed value": {change: patched(types.MergePatchType, "autotuner", `{"data":{"a":"9"}}`),
			fields: []string{".data.a"}, managers: []string{"autotuner"}},
		"removed value": {change: patched(types.MergePatchType, "cleaner", `{"data":{"b":null}}`),
			fields: []string{".data.b"}},
		"value set by kubectl": {change: patched(types.MergePatchType, "kubectl-patch", `{"data":{"a":"9"}}`),
			fields: []string{".data.a"}, managers: []string{"kubectl-patch"}},
		"scale subresource": {change: patched(types.MergePatchType, "autoscaler", `{"spec":{"replicas":5}}`, "scale"),
			fields: []string{".spec.replicas"}, managers: []string{"autoscaler"}},
		"two fields": {change: patched(types.MergePatchType, "autotuner",
			`{"data":{"a":"9"},"metadata":{"labels":{"tier":"x"}}}`),
			fields:   []string{".data.a", ".metadata.labels.tier"},
			managers: []string{"autotuner"}},
		"forced apply": {change: patched(types.ApplyPatchType, "argocd",
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"config"},"data":{"a":"9"}}`),
			fields: []string{".data.a"}, managers: []string{"argocd"}},
		"apply under our name": {change: reapplied(set("9", "data", "a")), managers: []string{DefaultFieldManager}},
		"deletion":             {change: deleted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, _ := newContentionFixture(t)
			f.options.Contention.Threshold = 2
			resource, object := configMaps, "config"
			if name == "scale subresource" {
				resource, object = deployments, "app"
			}
			for range f.options.Contention.Threshold {
				f.drift(c.change, resource, object)
				f.apply(drifting)
			}
			found := f.Contentions(f.owner)
			if len(found) != 1 {
				t.Fatalf("%+v", found)
			}
			assertLines(t, "fields", found[0].Fields, c.fields)
			assertLines(t, "managers", found[0].Managers, c.managers)
		})
	}
}

func TestRareChangesAreNoContention(t *testing.T) {
	t.Parallel()
	f, clock := newContentionFixture(t)
	for n := range 2 * f.options.Contention.Threshold {
		value := map[bool]string{true: `{"data":{"a":"9"}}`, false: `{"data":{"b":"9"}}`}[n%2 == 0]
		f.drift(patched(types.MergePatchType, "person", value), configMaps, "config")
		f.apply(drifting)
		clock.SetTime(clock.Now().Add(f.options.Contention.Window / time.Duration(f.options.Contention.Threshold)))
	}
	if found := f.Contentions(f.owner); len(found) != 0 {
		t.Errorf("%+v", found)
	}
}
