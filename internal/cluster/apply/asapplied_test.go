package apply

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

const usualKinds = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: %s, labels: {app: web}, annotations: {note: one}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      volumes: [{name: tmp, emptyDir: {}}, {name: settings, configMap: {name: settings}}]
      containers:
      - name: main
        image: example/web:1
        args: [--one, --two]
        env: [{name: A, value: a}, {name: B, value: b}]
        ports: [{containerPort: 8080}, {containerPort: 9090, protocol: UDP}]
        resources: {requests: {cpu: 100m, memory: 64Mi}}
        volumeMounts: [{name: tmp, mountPath: /tmp}]
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: %s}
spec:
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: 8080}, {name: dns, port: 53, protocol: UDP}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: %s}
data: {a: "1", b: "2"}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: web, namespace: %s}
rules: [{apiGroups: [""], resources: [pods], verbs: [get, list]}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: web, namespace: %s, finalizers: [example.com/a, example.com/b]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, namespace: %s}
spec:
  rules:
  - host: web.example.com
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {name: http}}}}]}`

// TestUsualKindsNeedNoDryRunAfterARestart also shows that it is seen what changed while no process ran.
func TestUsualKindsNeedNoDryRunAfterARestart(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	t.Cleanup(func() { removeFinalizer(t, f) })
	f.apply(usualKinds)
	next := f.restart()
	for _, change := range next.apply(usualKinds) {
		if !strings.HasSuffix(change, " unchanged") {
			t.Errorf("after a restart: %s", change)
		}
	}
	if count := next.requests.count(); count["DRY PATCH"]+count["PATCH"] != 0 || count["GET"] != 6 {
		t.Errorf("requests after a restart: %v", count)
	}

	_, err := f.client(configMaps, f.ns).Patch(t.Context(), "settings", types.MergePatchType,
		[]byte(`{"data":{"a":"drifted"}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	next = f.restart()
	got := next.apply(strings.Replace(usualKinds, "replicas: 2", "replicas: 3", 1))
	slices.Sort(got)
	assertLines(t, "after changes of an object and of a manifest", got, []string{"ConfigMap/settings configured",
		"Deployment/web configured", "Ingress/web unchanged", "Role/web unchanged", "Service/web unchanged",
		"ServiceAccount/web unchanged"})
}

var serviceAccounts = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}

func removeFinalizer(t *testing.T, f *fixture) {
	_, err := f.client(serviceAccounts, f.ns).Patch(context.Background(), "web", types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	if err != nil {
		t.Error(err)
	}
}

// TestAsAppliedMeansThatAnApplyChangesNothing edits manifests and live objects at random. The real API server says
// whether an apply changes something.
func TestAsAppliedMeansThatAnApplyChangesNothing(t *testing.T) {
	t.Parallel()
	const rounds = 60
	f := newFixture(t)
	t.Cleanup(func() { removeFinalizer(t, f) })
	f.apply(usualKinds)
	random := rand.New(rand.NewPCG(19, 1)) //nolint:gosec // it must repeat
	proven, refuted := 0, 0
	for round := range rounds {
		for _, manifest := range f.objects(usualKinds) {
			mapping, err := f.mapper.RESTMapping(manifest.GroupVersionKind().GroupKind(), "v1")
			if err != nil {
				t.Fatal(err)
			}
			client := f.client(mapping.Resource, f.ns)
			if round%2 == 1 {
				mutate(random, manifest.Object)
			}
			if round%3 == 2 { // another manager writes
				other := manifest.DeepCopy()
				mutate(random, other.Object)
				_, _ = client.Apply(t.Context(), other.GetName(), other, // it may be invalid
					metav1.ApplyOptions{FieldManager: fmt.Sprint("other-", round%2), Force: true})
			}
			live, err := client.Get(t.Context(), manifest.GetName(), metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			claimed := f.managers.isAsApplied(live, manifest)
			after, err := client.Apply(t.Context(), manifest.GetName(), manifest,
				metav1.ApplyOptions{FieldManager: f.managers.own, Force: true})
			if claimed && err != nil {
				t.Errorf("round %d: %s is said to be applied, but: %v", round, manifest.GetKind(), err)
			}
			if err != nil {
				continue
			}
			changed := f.managers.digest(after) != f.managers.digest(live)
			if claimed && changed {
				t.Errorf("round %d: %s is said to be applied, but an apply changes it:\n%v\n%v", round,
					manifest.GetKind(), live.Object, after.Object)
			}
			if claimed {
				proven++
			} else if changed {
				refuted++
			}
		}
	}
	if proven < rounds/2 || refuted < rounds {
		t.Errorf("%d applies were known to change nothing and %d changed something: too few to prove anything", proven,
			refuted)
	}
}

// mutate changes a value at random: a field is removed, or gets another value of its type; items of a list are removed
// or change places.
func mutate(random *rand.Rand, object map[string]any) {
	var edits []func()
	var walk func(v any, set func(any))
	walk = func(v any, set func(any)) {
		switch v := v.(type) {
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(v)) {
				edits = append(edits, func() { delete(v, name) })
				walk(v[name], func(next any) { v[name] = next })
			}
		case []any:
			if len(v) > 1 {
				edits = append(edits, func() { slices.Reverse(v) }, func() { set(v[1:]) })
			}
			for n := range v {
				walk(v[n], func(next any) { v[n] = next })
			}
		case string:
			edits = append(edits, func() { set(v + "x") })
		case int64:
			edits = append(edits, func() { set(v + 1) })
		case float64:
			edits = append(edits, func() { set(v + 1) })
		}
	}
	for _, part := range []string{"spec", "data", "rules"} {
		if v, ok := object[part]; ok {
			walk(v, func(next any) { object[part] = next })
		}
	}
	metadata, _ := object["metadata"].(map[string]any)
	for _, part := range []string{"labels", "annotations", "finalizers"} {
		if v, ok := metadata[part]; ok {
			edits = append(edits, func() { delete(metadata, part) })
			walk(v, func(next any) { metadata[part] = next })
		}
	}
	if len(edits) > 0 {
		edits[random.IntN(len(edits))]()
	}
}
