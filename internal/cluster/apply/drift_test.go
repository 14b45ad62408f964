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

// edit changes an object outside of Apply.
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

// reapplied returns an edit by server-side apply under our field manager.
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

var driftCases = map[string]struct {
	resource schema.GroupVersionResource
	object   string
	edit     edit
}{
	"update of a value with kubectl": {resource: configMaps, object: "config",
		edit: updated("kubectl-edit", set("9", "data", "a"))},
	"update of a value by a controller": {resource: configMaps, object: "config",
		edit: updated("other", set("9", "data", "a"))},
	"JSON patch of a value": {resource: configMaps, object: "config",
		edit: patched(types.JSONPatchType, "other", `[{"op":"replace","path":"/data/a","value":"9"}]`)},
	"merge patch of a value": {resource: configMaps, object: "config",
		edit: patched(types.MergePatchType, "kubectl-patch", `{"data":{"a":"9"}}`)},
	"removal of a value": {resource: configMaps, object: "config",
		edit: patched(types.MergePatchType, "other", `{"data":{"b":null}}`)},
	"key added with kubectl": {resource: configMaps, object: "config",
		edit: patched(types.MergePatchType, "kubectl-edit", `{"data":{"c":"3"}}`)},
	"change of a label": {resource: configMaps, object: "config",
		edit: patched(types.MergePatchType, "other", `{"metadata":{"labels":{"tier":"back"}}}`)},
	"removal of a declared label": {resource: configMaps, object: "config",
		edit: patched(types.MergePatchType, "other", `{"metadata":{"labels":{"tier":null}}}`)},
	"change of the owner label": {resource: configMaps, object: "config",
		edit: patched(types.MergePatchType, "other", `{"metadata":{"labels":{"`+group+`/name":"unknown"}}}`)},
	"removal of the owner label": {resource: configMaps, object: "config",
		edit: patched(types.MergePatchType, "other", `{"metadata":{"labels":{"`+group+`/name":null}}}`)},
	"forced apply by another manager": {resource: configMaps, object: "config",
		edit: patched(types.ApplyPatchType, "other",
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"config"},"data":{"a":"9"}}`)},
	"apply of another value under our name": {resource: configMaps, object: "config",
		edit: reapplied(set("9", "data", "a"))},
	"apply of another spec under our name": {resource: deployments, object: "app",
		edit: reapplied(set(int64(7), "spec", "replicas"))},
	"apply of fewer fields under our name": {resource: configMaps, object: "config",
		edit: patched(types.ApplyPatchType, DefaultFieldManager,
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"config"},"data":{"a":"1"}}`)},
	"update under our name": {resource: configMaps, object: "config",
		edit: updated(DefaultFieldManager, set("9", "data", "a"))},
	"removal of the managed fields": {resource: configMaps, object: "config",
		edit: updated("other", func(o *unstructured.Unstructured) {
			o.SetManagedFields([]metav1.ManagedFieldsEntry{{}})
		})},
	"deletion": {resource: configMaps, object: "config", edit: deleted},
	"change of an image": {resource: deployments, object: "app",
		edit: patched(types.StrategicMergePatchType, "other",
			`{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"app:2"}]}}}}`)},
	"change of an environment variable": {resource: deployments, object: "app",
		edit: patched(types.StrategicMergePatchType, "other",
			`{"spec":{"template":{"spec":{"containers":[{"name":"main","env":[{"name":"A","value":"2"}]}]}}}}`)},
	"change of replicas by the scale subresource": {resource: deployments, object: "app",
		edit: patched(types.MergePatchType, "kubectl", `{"spec":{"replicas":5}}`, "scale")},
	"deletion of a Deployment": {resource: deployments, object: "app", edit: deleted},
	"change of a selector": {resource: services, object: "service",
		edit: patched(types.MergePatchType, "other", `{"spec":{"selector":{"app":"y"}}}`)},
	"port replaced with kubectl": {resource: services, object: "service",
		edit: patched(types.JSONPatchType, "kubectl-edit",
			`[{"op":"replace","path":"/spec/ports/0/port","value":81}]`)},
}

func TestDriftIsDetectedAndCorrected(t *testing.T) {
	t.Parallel()
	for name, c := range driftCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.apply(drifting)
			f.waitSynced()
			ctx := context.Background()
			for round := range 2 { // the second edit changes an object that was corrected
				if err := c.edit(ctx, f.client(c.resource, f.ns), c.object); err != nil {
					t.Fatal(err)
				}
				f.waitDrift(f.owner)
				if !f.Drifted(f.owner) {
					t.Fatal("no drift")
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
					t.Errorf("round %d: %q, want one correction", round, changes)
				}
				if f.Drifted(f.owner) {
					t.Error("still drifted")
				}
				live := f.get(c.resource, c.object)
				for _, o := range f.objects(drifting) {
					if o.GetName() != c.object {
						continue
					}
					if c.resource == configMaps && len(live.Object["data"].(map[string]any)) != 2 {
						t.Errorf("data %v", live.Object["data"])
					}
					assertContains(t, live.Object, o.Object, "")
				}
			}
			f.waitObserved(c.resource, c.object)
			if f.Drifted(f.owner) {
				t.Error("our own apply counts as drift")
			}
		})
	}
}

// assertContains fails unless live contains all values of want.
func assertContains(t *testing.T, live, want any, path string) {
	t.Helper()
	switch w := want.(type) {
	case map[string]any:
		l, ok := live.(map[string]any)
		if !ok {
			t.Errorf("%s: %v", path, live)
			return
		}
		for k, v := range w {
			assertContains(t, l[k], v, path+"."+k)
		}
	case []any:
		l, ok := live.([]any)
		if !ok || len(l) != len(w) {
			t.Errorf("%s: %v, want %v", path, live, want)
			return
		}
		for n := range w {
			assertContains(t, l[n], w[n], path)
		}
	default:
		a, _ := json.Marshal(live)
		b, _ := json.Marshal(want)
		if string(a) != string(b) {
			t.Errorf("%s: %s, want %s", path, a, b)
		}
	}
}

func TestChangesThatAreNoDrift(t *testing.T) {
	for name, c := range map[string]struct {
		resource schema.GroupVersionResource
		object   string
		edit     edit
	}{
		"status": {resource: deployments, object: "app",
			edit: patched(types.MergePatchType, "other",
				`{"status":{"observedGeneration":77,"conditions":[{"type":"Mine","status":"True"}]}}`, "status")},
		"label of another manager": {resource: deployments, object: "app",
			edit: patched(types.MergePatchType, "other", `{"metadata":{"labels":{"x":"y"}}}`)},
		"annotation of another manager": {resource: configMaps, object: "config",
			edit: patched(types.MergePatchType, "other", `{"metadata":{"annotations":{"x":"y"}}}`)},
		"key of another manager": {resource: configMaps, object: "config",
			edit: patched(types.MergePatchType, "other", `{"data":{"c":"3"}}`)},
		"field of the spec of another manager": {resource: deployments, object: "app",
			edit: patched(types.MergePatchType, "other", `{"spec":{"minReadySeconds":1}}`)},
		"injected sidecar": {resource: deployments, object: "app",
			edit: patched(types.StrategicMergePatchType, "injector",
				`{"spec":{"template":{"spec":{"containers":[{"name":"sidecar","image":"s:1"}]}}}}`)},
		"apply of the same value by another manager": {resource: configMaps, object: "config",
			edit: patched(types.ApplyPatchType, "other",
				`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"config"},"data":{"a":"1"}}`)},
		"update without changes": {resource: configMaps, object: "config",
			edit: updated("other", func(*unstructured.Unstructured) {})},
		"apply without fields by another manager": {resource: deployments, object: "app",
			edit: patched(types.ApplyPatchType, "other",
				`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"app"}}`)},
		"status of a Service": {resource: services, object: "service",
			edit: patched(types.MergePatchType, "cloud", `{"status":{"conditions":[{"type":"Mine","status":"True",`+
				`"reason":"R","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`, "status")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.apply(drifting)
			f.waitSynced()
			for range 3 {
				if err := c.edit(context.Background(), f.client(c.resource, f.ns), c.object); err != nil {
					t.Fatal(err)
				}
				f.waitObserved(c.resource, c.object)
				if f.Drifted(f.owner) {
					t.Fatal("counts as drift")
				}
			}
			f.requests.take()
			f.apply(drifting)
			assertLines(t, "requests", f.requests.take(), nil)
		})
	}
}

func TestRolloutRestartIsKept(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.apply(drifting)
	f.waitSynced()
	restart := patched(types.StrategicMergePatchType, "kubectl-rollout",
		`{"spec":{"template":{"metadata":{"annotations":{`+
			`"kubectl.kubernetes.io/restartedAt":"2026-01-01T00:00:00Z"}}}}}`)
	if err := restart(context.Background(), f.client(deployments, f.ns), "app"); err != nil {
		t.Fatal(err)
	}
	f.waitObserved(deployments, "app")
	assertLines(t, "after the restart", f.apply(drifting),
		[]string{"ConfigMap/config unchanged", "Service/service unchanged",
			"Deployment/app unchanged"})
	annotations, _, _ := unstructured.NestedStringMap(f.get(deployments, "app").Object, "spec", "template", "metadata",
		"annotations")
	if annotations["kubectl.kubernetes.io/restartedAt"] == "" {
		t.Error("the annotation was removed")
	}
}
