package apply

import (
	"context"
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

const drifting = `apiVersion: v1
kind: ConfigMap
metadata: {name: config, namespace: %s, labels: {tier: front}}
data: {a: "1", b: "2"}
---
apiVersion: v1
kind: Service
metadata: {name: service, namespace: %s}
spec: {selector: {app: x}, ports: [{port: 80}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: app, namespace: %s}
spec:
  replicas: 2
  selector: {matchLabels: {app: x}}
  template:
    metadata: {labels: {app: x}}
    spec: {containers: [{name: main, image: app:1, env: [{name: A, value: "1"}]}]}
`

// edit is a change by somebody else.
type edit func(ctx context.Context, r dynamic.ResourceInterface, name string) error

func patched(kind types.PatchType, manager, body string, subresources ...string) edit {
	return func(ctx context.Context, r dynamic.ResourceInterface, name string) error {
		options := metav1.PatchOptions{FieldManager: manager}
		if kind == types.ApplyPatchType {
			force := true
			options.Force = &force
		}
		_, err := r.Patch(ctx, name, kind, []byte(body), options, subresources...)
		return err
	}
}

func updated(manager string, change func(*unstructured.Unstructured)) edit {
	return func(ctx context.Context, r dynamic.ResourceInterface, name string) error {
		o, err := r.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(o)
		_, err = r.Update(ctx, o, metav1.UpdateOptions{FieldManager: manager})
		return err
	}
}

func deleted(ctx context.Context, r dynamic.ResourceInterface, name string) error {
	return r.Delete(ctx, name, metav1.DeleteOptions{})
}

func set(value any, path ...string) func(*unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) { _ = unstructured.SetNestedField(o.Object, value, path...) }
}

// applied returns an edit by server-side apply under our own name.
func reapplied(change func(*unstructured.Unstructured)) edit {
	return func(ctx context.Context, r dynamic.ResourceInterface, name string) error {
		o, err := r.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		o.SetManagedFields(nil)
		o.SetResourceVersion("")
		change(o)
		b, err := json.Marshal(o.Object)
		if err != nil {
			return err
		}
		return patched(types.ApplyPatchType, DefaultFieldManager, string(b))(ctx, r, name)
	}
}

func TestMoves(t *testing.T) {
	for name, c := range map[string]struct {
		resource schema.GroupVersionResource
		object   string
		edit     edit
	}{
		"a value is updated": {configMaps, "config",
			updated("kubectl-edit", set("9", "data", "a"))},
		"a value is updated by a controller": {configMaps, "config",
			updated("other", set("9", "data", "a"))},
		"a value is changed by a JSON patch": {configMaps, "config",
			patched(types.JSONPatchType, "other", `[{"op":"replace","path":"/data/a","value":"9"}]`)},
		"a value is changed by a merge patch": {configMaps, "config",
			patched(types.MergePatchType, "kubectl-patch", `{"data":{"a":"9"}}`)},
		"a value is removed": {configMaps, "config",
			patched(types.MergePatchType, "other", `{"data":{"b":null}}`)},
		"a key is added with kubectl": {configMaps, "config",
			patched(types.MergePatchType, "kubectl-edit", `{"data":{"c":"3"}}`)},
		"a label is changed": {configMaps, "config",
			patched(types.MergePatchType, "other", `{"metadata":{"labels":{"tier":"back"}}}`)},
		"a label of ours is removed": {configMaps, "config",
			patched(types.MergePatchType, "other", `{"metadata":{"labels":{"tier":null}}}`)},
		"the owner's label is changed": {configMaps, "config",
			patched(types.MergePatchType, "other", `{"metadata":{"labels":{"`+group+`/name":"nobody"}}}`)},
		"the owner's label is removed": {configMaps, "config",
			patched(types.MergePatchType, "other", `{"metadata":{"labels":{"`+group+`/name":null}}}`)},
		"another applies a value with force": {configMaps, "config",
			patched(types.ApplyPatchType, "other",
				`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"config"},"data":{"a":"9"}}`)},
		"somebody applies other values in our name": {configMaps, "config",
			reapplied(set("9", "data", "a"))},
		"somebody applies other values in our name, of a spec": {deployments, "app",
			reapplied(set(int64(7), "spec", "replicas"))},
		"somebody applies fewer fields in our name": {configMaps, "config",
			patched(types.ApplyPatchType, DefaultFieldManager,
				`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"config"},"data":{"a":"1"}}`)},
		"somebody updates in our name": {configMaps, "config",
			updated(DefaultFieldManager, set("9", "data", "a"))},
		"somebody takes away the managed fields": {configMaps, "config",
			updated("other", func(o *unstructured.Unstructured) {
				o.SetManagedFields([]metav1.ManagedFieldsEntry{{}})
			})},
		"the object is deleted": {configMaps, "config", deleted},
		"a Deployment's image is changed": {deployments, "app",
			patched(types.StrategicMergePatchType, "other",
				`{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"app:2"}]}}}}`)},
		"a variable is changed": {deployments, "app",
			patched(types.StrategicMergePatchType, "other",
				`{"spec":{"template":{"spec":{"containers":[{"name":"main","env":[{"name":"A","value":"2"}]}]}}}}`)},
		"replicas are scaled by the subresource": {deployments, "app",
			patched(types.MergePatchType, "kubectl", `{"spec":{"replicas":5}}`, "scale")},
		"a Deployment is deleted": {deployments, "app", deleted},
		"a Service's selector is changed": {services, "service",
			patched(types.MergePatchType, "other", `{"spec":{"selector":{"app":"y"}}}`)},
		"a Service's port is replaced with kubectl": {services, "service",
			patched(types.JSONPatchType, "kubectl-edit", `[{"op":"replace","path":"/spec/ports/0/port","value":81}]`)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.apply(drifting)
			f.watched()
			ctx := context.Background()
			for round := range 2 { // the second edit meets an object that was put right
				if err := c.edit(ctx, f.client(c.resource, f.ns), c.object); err != nil {
					t.Fatal(err)
				}
				f.waitWoken(f.owner)
				if !f.Drifted(f.owner) {
					t.Fatal("not known to have moved")
				}
				changes := f.apply(drifting)
				count := 0
				for _, change := range changes {
					if change == "ConfigMap/config unchanged" || change == "Service/service unchanged" ||
						change == "Deployment/app unchanged" {
						count++
					}
				}
				if count != len(changes)-1 {
					t.Errorf("round %d: %q, want one put right", round, changes)
				}
				if f.Drifted(f.owner) {
					t.Error("moved still")
				}
				live := f.get(c.resource, c.object)
				for _, o := range f.objects(drifting) {
					if o.GetName() != c.object {
						continue
					}
					if c.resource == configMaps && len(live.Object["data"].(map[string]any)) != 2 {
						t.Errorf("data %v", live.Object["data"])
					}
					assertHolds(t, live.Object, o.Object, "")
				}
			}
			f.seen(c.resource, c.object)
			if f.Drifted(f.owner) {
				t.Error("our own apply is taken for a move")
			}
		})
	}
}

// assertHolds fails unless live holds all that want does.
func assertHolds(t *testing.T, live, want any, path string) {
	t.Helper()
	switch w := want.(type) {
	case map[string]any:
		l, ok := live.(map[string]any)
		if !ok {
			t.Errorf("%s: %v", path, live)
			return
		}
		for k, v := range w {
			assertHolds(t, l[k], v, path+"."+k)
		}
	case []any:
		l, ok := live.([]any)
		if !ok || len(l) != len(w) {
			t.Errorf("%s: %v, want %v", path, live, want)
			return
		}
		for n := range w {
			assertHolds(t, l[n], w[n], path)
		}
	default:
		a, _ := json.Marshal(live)
		b, _ := json.Marshal(want)
		if string(a) != string(b) {
			t.Errorf("%s: %s, want %s", path, a, b)
		}
	}
}

func TestNoMoves(t *testing.T) {
	for name, c := range map[string]struct {
		resource schema.GroupVersionResource
		object   string
		edit     edit
	}{
		"a status": {deployments, "app",
			patched(types.MergePatchType, "other",
				`{"status":{"observedGeneration":77,"conditions":[{"type":"Mine","status":"True"}]}}`, "status")},
		"a label that is not ours": {deployments, "app",
			patched(types.MergePatchType, "other", `{"metadata":{"labels":{"x":"y"}}}`)},
		"an annotation that is not ours": {configMaps, "config",
			patched(types.MergePatchType, "other", `{"metadata":{"annotations":{"x":"y"}}}`)},
		"a key that is not ours": {configMaps, "config",
			patched(types.MergePatchType, "other", `{"data":{"c":"3"}}`)},
		"a field of the spec that is not ours": {deployments, "app",
			patched(types.MergePatchType, "other", `{"spec":{"minReadySeconds":1}}`)},
		"a sidecar that is not ours": {deployments, "app",
			patched(types.StrategicMergePatchType, "injector",
				`{"spec":{"template":{"spec":{"containers":[{"name":"sidecar","image":"s:1"}]}}}}`)},
		"another applies the same value": {configMaps, "config",
			patched(types.ApplyPatchType, "other",
				`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"config"},"data":{"a":"1"}}`)},
		"an update that changes nothing": {configMaps, "config",
			updated("other", func(*unstructured.Unstructured) {})},
		"our own apply again": {deployments, "app",
			patched(types.ApplyPatchType, "other",
				`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"app"}}`)},
		"a load balancer's status of a Service": {services, "service",
			patched(types.MergePatchType, "cloud", `{"status":{"conditions":[{"type":"Mine","status":"True","reason":"R","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`, "status")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.apply(drifting)
			f.watched()
			for range 3 {
				if err := c.edit(context.Background(), f.client(c.resource, f.ns), c.object); err != nil {
					t.Fatal(err)
				}
				f.seen(c.resource, c.object)
				if f.Drifted(f.owner) {
					t.Fatal("taken for a move")
				}
			}
			f.requests.take()
			f.apply(drifting)
			same(t, "requests", f.requests.take(), nil)
		})
	}
}

func TestARestartIsNotUndone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.apply(drifting)
	f.watched()
	restart := patched(types.StrategicMergePatchType, "kubectl-rollout",
		`{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"2026-01-01T00:00:00Z"}}}}}`)
	if err := restart(context.Background(), f.client(deployments, f.ns), "app"); err != nil {
		t.Fatal(err)
	}
	f.seen(deployments, "app")
	same(t, "after it", f.apply(drifting), []string{"ConfigMap/config unchanged", "Service/service unchanged",
		"Deployment/app unchanged"})
	annotations, _, _ := unstructured.NestedStringMap(f.get(deployments, "app").Object, "spec", "template", "metadata",
		"annotations")
	if annotations["kubectl.kubernetes.io/restartedAt"] == "" {
		t.Error("undone")
	}
}
