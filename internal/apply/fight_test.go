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

// fought is a fixture whose clock stands still, with two ConfigMaps applied.
func fought(t *testing.T) (*fixture, *clocktesting.FakePassiveClock) {
	t.Helper()
	f := newFixture(t)
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_800_000_000, 0))
	f.options.Clock = clock
	f.apply(drifting)
	f.watched()
	return f, clock
}

// provoke has another manager change an object, and waits until that is known.
func (f *fixture) provoke(change edit, resource schema.GroupVersionResource, name string) {
	f.t.Helper()
	if err := change(context.Background(), f.client(resource, f.ns), name); err != nil {
		f.t.Fatal(err)
	}
	testenv.Eventually(f.t, "move of "+name, func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, a := range f.states[f.owner] {
			if a.resource == resource && a.ref.Name == name && a.moved {
				return nil
			}
		}
		return errors.New("not seen yet")
	})
}

func TestAFightIsNamedSlowedDownAndEnds(t *testing.T) {
	t.Parallel()
	f, clock := fought(t)
	rival := updated("autotuner", set("9", "data", "a"))
	after := f.options.Contention.Threshold
	for range after {
		if fights := f.Contentions(f.owner); len(fights) > 0 {
			t.Fatalf("too soon: %+v", fights)
		}
		f.provoke(rival, configMaps, "config")
		same(t, "corrected", f.apply(drifting),
			[]string{"ConfigMap/config configured", "Service/service unchanged", "Deployment/app unchanged"})
	}
	fights := f.Contentions(f.owner)
	if len(fights) != 1 || fights[0].Ref.Name != "config" || fights[0].Corrections != after {
		t.Fatalf("%+v", fights)
	}
	same(t, "fields", fights[0].Fields, []string{".data.a"})
	same(t, "managers", fights[0].Managers, []string{"autotuner"})

	t.Log("it is left alone for a while, twice as long each time; other objects are not")
	delay := f.options.Contention.MinDelay
	for n := range 8 {
		f.provoke(rival, configMaps, "config")
		f.requests.take()
		if f.Drifted(f.owner) {
			t.Fatalf("round %d: counts as moved", n)
		}
		same(t, "held", f.apply(drifting), []string{"ConfigMap/config unchanged", "Service/service unchanged",
			"Deployment/app unchanged"})
		same(t, "requests", f.requests.take(), nil)
		if n == 0 {
			if err := patched(types.MergePatchType, "other", `{"spec":{"replicas":3}}`)(context.Background(),
				f.client(deployments, f.ns), "app"); err != nil {
				t.Fatal(err)
			}
			f.seen(deployments, "app")
			same(t, "another", f.apply(drifting),
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
		same(t, "in time", f.apply(drifting),
			[]string{"ConfigMap/config configured", "Service/service unchanged", "Deployment/app unchanged"})
		delay = min(2*delay, f.options.Contention.MaxDelay)
	}
	if fights := f.Contentions(f.owner); len(fights) != 1 || fights[0].Corrections != after+8 ||
		delay != f.options.Contention.MaxDelay {
		t.Fatalf("%+v, delay %s", fights, delay)
	}

	t.Log("a full comparison, as when a person asks, does not wait")
	f.provoke(rival, configMaps, "config")
	req := f.request(drifting)
	req.Resync = true
	same(t, "asked", f.do(req), []string{"ConfigMap/config configured", "Service/service unchanged",
		"Deployment/app unchanged"})

	t.Log("it is over when it rests")
	clock.SetTime(clock.Now().Add(f.options.Contention.Window))
	if len(f.Contentions(f.owner)) != 1 {
		t.Error("over too soon")
	}
	clock.SetTime(clock.Now().Add(time.Second))
	if fights := f.Contentions(f.owner); len(fights) != 0 || len(f.contests) != 0 {
		t.Errorf("%+v", fights)
	}
}

func TestANewDeclarationEndsTheWait(t *testing.T) {
	t.Parallel()
	f, _ := fought(t)
	f.options.Contention.Threshold = 1
	f.provoke(patched(types.MergePatchType, "autotuner", `{"data":{"a":"9"}}`), configMaps, "config")
	f.apply(drifting)
	f.provoke(patched(types.MergePatchType, "autotuner", `{"data":{"a":"9"}}`), configMaps, "config")
	if f.Drifted(f.owner) {
		t.Fatal("not held")
	}
	changed := f.objects(drifting)
	if err := unstructured.SetNestedField(changed[0].Object, "5", "data", "a"); err != nil {
		t.Fatal(err)
	}
	req := f.request(drifting)
	req.Objects = changed
	f.do(req)
	if got := f.get(configMaps, "config").Object["data"].(map[string]any)["a"]; got != "5" {
		t.Errorf("it holds %v", got)
	}
	if fights := f.Contentions(f.owner); len(fights) != 0 {
		t.Errorf("%+v", fights)
	}
}

func TestWhatAFightIsAbout(t *testing.T) {
	for name, c := range map[string]struct {
		change           edit
		fields, managers []string
	}{
		"a value": {patched(types.MergePatchType, "autotuner", `{"data":{"a":"9"}}`),
			[]string{".data.a"}, []string{"autotuner"}},
		"a value that is removed": {patched(types.MergePatchType, "cleaner", `{"data":{"b":null}}`),
			[]string{".data.b"}, nil},
		"a value set by kubectl": {patched(types.MergePatchType, "kubectl-patch", `{"data":{"a":"9"}}`),
			[]string{".data.a"}, []string{"kubectl-patch"}},
		"the subresource scale": {patched(types.MergePatchType, "autoscaler", `{"spec":{"replicas":5}}`, "scale"),
			[]string{".spec.replicas"}, []string{"autoscaler"}},
		"two fields": {patched(types.MergePatchType, "autotuner",
			`{"data":{"a":"9"},"metadata":{"labels":{"tier":"x"}}}`), []string{".data.a", ".metadata.labels.tier"},
			[]string{"autotuner"}},
		"applied with force": {patched(types.ApplyPatchType, "argocd",
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"config"},"data":{"a":"9"}}`),
			[]string{".data.a"}, []string{"argocd"}},
		"applied in our own name": {reapplied(set("9", "data", "a")), nil, []string{DefaultFieldManager}},
		"the whole object":        {deleted, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, _ := fought(t)
			f.options.Contention.Threshold = 2
			resource, object := configMaps, "config"
			if name == "the subresource scale" {
				resource, object = deployments, "app"
			}
			for range f.options.Contention.Threshold {
				f.provoke(c.change, resource, object)
				f.apply(drifting)
			}
			fights := f.Contentions(f.owner)
			if len(fights) != 1 {
				t.Fatalf("%+v", fights)
			}
			same(t, "fields", fights[0].Fields, c.fields)
			same(t, "managers", fights[0].Managers, c.managers)
		})
	}
}

func TestWhatIsChangedNowAndThenIsNoFight(t *testing.T) {
	t.Parallel()
	f, clock := fought(t)
	for n := range 2 * f.options.Contention.Threshold {
		value := map[bool]string{true: `{"data":{"a":"9"}}`, false: `{"data":{"b":"9"}}`}[n%2 == 0]
		f.provoke(patched(types.MergePatchType, "person", value), configMaps, "config")
		f.apply(drifting)
		clock.SetTime(clock.Now().Add(f.options.Contention.Window / time.Duration(f.options.Contention.Threshold)))
	}
	if fights := f.Contentions(f.owner); len(fights) != 0 {
		t.Errorf("%+v", fights)
	}
}
