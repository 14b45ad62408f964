package apply

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// nativeKinds are manifests of built-in kinds. A %s is the namespace of the test.
//
//go:embed testdata/builtin.yaml
var nativeKinds string

// applyAsFlux applies objects as kustomize-controller does: in their typed form, with the labels of the owner.
func (f *fixture) applyAsFlux(objects ...*unstructured.Unstructured) {
	f.t.Helper()
	for _, o := range objects {
		o = testenv.TypedForm(f.t, o.DeepCopy())
		labels := o.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		for key, value := range f.owner.Labels() {
			labels[key] = value
		}
		o.SetLabels(labels)
		unstructured.RemoveNestedField(o.Object, "status")
		unstructured.RemoveNestedField(o.Object, "metadata", "creationTimestamp")
		client := f.clientOf(o)
		if _, err := client.Apply(f.t.Context(), o.GetName(), o,
			metav1.ApplyOptions{FieldManager: DefaultFieldManager, Force: true}); err != nil {
			f.t.Fatalf("%s: %v", show(o), err)
		}
		f.inventory = append(f.inventory, RefOf(o).Entry())
	}
}

// native returns a request as a Kustomization sends it.
func (f *fixture) native(objects []*unstructured.Unstructured) Request {
	req := f.request("{}")
	req.Objects, req.Native = objects, true
	return req
}

// changesNothing checks that a preview, drift detection and an apply of another process report nothing, and that no
// request writes.
func (f *fixture) changesNothing(what string, objects []*unstructured.Unstructured) {
	f.t.Helper()
	check := func(by string, changes []Change, err error) {
		f.t.Helper()
		if err != nil {
			f.t.Errorf("%s: %s: %v", what, by, err)
		}
		for _, c := range changes {
			if c.Action != Unchanged || c.Diff != "" {
				f.t.Errorf("%s: %s: %s %s\n%s", what, by, c.Ref, c.Action, c.Diff)
			}
		}
	}
	next := f.restart()
	planned, err := next.Diff(f.t.Context(), next.native(objects))
	check("diff", planned, err)
	detected := f.restart()
	req := detected.native(objects)
	req.SameDeclaration = true
	planned, err = detected.DetectDrift(f.t.Context(), req)
	check("drift", planned, err)
	next = f.restart()
	result, err := next.try(next.native(objects))
	check("apply", result.Changes, err)
	next.waitSynced()
	again := next.native(objects)
	again.Resync = true
	result, err = next.try(again)
	check("resync", result.Changes, err)
	if next.Drifted(next.owner) {
		f.t.Errorf("%s: drifted", what)
	}
	for _, r := range []*fixture{next, detected} {
		if n := r.requests.count(); n["PATCH"]+n["POST"]+n["PUT"]+n["DELETE"] > 0 {
			f.t.Errorf("%s: requests that write: %v", what, n)
		}
	}
}

func (f *fixture) clientOf(o *unstructured.Unstructured) dynamic.ResourceInterface {
	f.t.Helper()
	gvk := o.GroupVersionKind()
	mapping, err := f.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		f.t.Fatal(err)
	}
	return f.client(mapping.Resource, o.GetNamespace())
}

// TestNativeFormIsThatOfTheTypes compares what is applied with encoding/json by the types of client-go.
func TestNativeFormIsThatOfTheTypes(t *testing.T) {
	f := &fixture{t: t, ns: "apps"}
	for _, o := range f.objects(nativeKinds) {
		want := testenv.TypedForm(t, o.DeepCopy())
		unstructured.RemoveNestedField(want.Object, "status")
		unstructured.RemoveNestedField(want.Object, "metadata", "creationTimestamp")
		got := o.DeepCopy()
		unstructured.RemoveNestedField(got.Object, "status")
		unstructured.RemoveNestedField(got.Object, "metadata", "creationTimestamp")
		if isSecret(got.GroupVersionKind().GroupKind()) {
			encodeStringData(got)
		}
		if native, unknown := nativeForm(got); native != nil {
			got = native
			if len(unknown) > 0 {
				t.Errorf("%s: unknown fields %q", show(o), unknown)
			}
		}
		a, _ := json.Marshal(got.Object)
		b, _ := json.Marshal(want.Object)
		if string(a) != string(b) {
			t.Errorf("%s:\ngot  %s\nwant %s", show(o), a, b)
		}
	}
}

// TestObjectsThatFluxAppliedDoNotChange takes over each built-in kind.
func TestObjectsThatFluxAppliedDoNotChange(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	t.Cleanup(f.pruneAll)
	f.applyAsFlux(f.objects(nativeKinds)...)
	f.changesNothing("all kinds", f.objects(nativeKinds))
}

// TestRandomPartsThatFluxAppliedDoNotChange takes over kinds with random fields left out.
func TestRandomPartsThatFluxAppliedDoNotChange(t *testing.T) {
	t.Parallel()
	rounds := 4
	if testenv.IsFull() {
		rounds = 12
	}
	random := rand.New(rand.NewPCG(36, 1)) //nolint:gosec // it must repeat
	f := newFixture(t)
	t.Cleanup(f.pruneAll)
	applied := 0
	for round := range rounds {
		var objects []*unstructured.Unstructured
		f.inventory = nil
		for _, o := range f.objects(nativeKinds) {
			o.SetName(fmt.Sprintf("%s-%d", o.GetName(), round))
			whole := o.DeepCopy()
			leaveOut(random, o.Object, 0.15)
			for _, candidate := range []*unstructured.Unstructured{o, whole} {
				if f.accepts(candidate) {
					objects = append(objects, candidate)
					break
				}
			}
		}
		f.applyAsFlux(objects...)
		f.changesNothing(fmt.Sprint("round ", round), objects)
		applied += len(objects)
		for _, o := range objects {
			_ = f.clientOf(o).Delete(t.Context(), o.GetName(), metav1.DeleteOptions{})
		}
	}
	if applied < rounds*20 {
		t.Errorf("only %d objects were taken over", applied)
	}
}

// leaveOut removes fields and items at random, except those that identify an object.
func leaveOut(random *rand.Rand, v any, share float64) any {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			kept := slices.Contains([]string{"apiVersion", "kind", "name", "metadata", "namespace"}, key)
			if !kept && random.Float64() < share {
				delete(v, key)
				continue
			}
			v[key] = leaveOut(random, v[key], share)
		}
	case []any:
		for n := range v {
			v[n] = leaveOut(random, v[n], share)
		}
		if len(v) > 1 && random.Float64() < share {
			return v[1:]
		}
	}
	return v
}

// accepts reports whether the API server accepts an object as Flux applies it.
func (f *fixture) accepts(o *unstructured.Unstructured) bool {
	_, err := f.clientOf(o).Apply(f.t.Context(), o.GetName(), testenv.TypedForm(f.t, o.DeepCopy()),
		metav1.ApplyOptions{FieldManager: DefaultFieldManager, Force: true, DryRun: []string{metav1.DryRunAll}})
	return err == nil
}

// TestFieldsThatOthersOwnAreLeftAlone takes random fields from our entry of the managed fields, as an older version of
// another implementation leaves them. Nothing is written, and a change of such a field is drift all the same.
func TestFieldsThatOthersOwnAreLeftAlone(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(36, 2)) //nolint:gosec // it must repeat
	f := newFixture(t)
	t.Cleanup(f.pruneAll)
	objects := f.objects(nativeKinds)
	f.applyAsFlux(objects...)
	for range 6 {
		for _, o := range objects {
			f.disown(random, o)
		}
		f.changesNothing("fields of others", objects)
	}
	f.disown(nil, objects[1])
	next := f.restart()
	if _, err := next.try(next.native(objects)); err != nil {
		t.Fatal(err)
	}
	next.waitSynced()
	if err := patched(types.MergePatchType, "someone", `{"data":{"a":"2"}}`)(t.Context(), f.client(configMaps, f.ns),
		"cm"); err != nil {
		t.Fatal(err)
	}
	next.waitDrift(next.owner)
	result, err := next.try(next.native(objects))
	if err != nil || !slices.Contains(describe(result.Changes), "ConfigMap/cm configured") {
		t.Errorf("the drift was not corrected: %q, %v", describe(result.Changes), err)
	}
}

// disown gives some fields of our entry to another manager; all if random is nil.
func (f *fixture) disown(random *rand.Rand, o *unstructured.Unstructured) {
	f.t.Helper()
	client := f.clientOf(o)
	live, err := client.Get(f.t.Context(), o.GetName(), metav1.GetOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	fields := live.GetManagedFields()
	for n, e := range fields {
		if !f.managers.isOurs(e) {
			continue
		}
		keep, give := fieldpath.NewSet(), fieldpath.NewSet()
		for p := range fieldsOf(fields[n:n+1], nil).All() {
			isLabel := strings.HasPrefix(p.String(), ".metadata")
			if isLabel || random != nil && random.Float64() < 0.7 {
				keep.Insert(p.Copy())
			} else {
				give.Insert(p.Copy())
			}
		}
		other := withFields(e, give)
		other.Manager = "other"
		fields[n] = withFields(e, keep)
		if !give.Empty() {
			fields = append(fields, other)
		}
		break
	}
	patch, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/metadata/managedFields", "value": fields}})
	if err == nil {
		_, err = client.Patch(f.t.Context(), o.GetName(), types.JSONPatchType, patch,
			metav1.PatchOptions{FieldManager: "other"})
	}
	if err != nil {
		f.t.Fatalf("%s: %v", show(o), err)
	}
}

// TestPodInANamespaceWithALimitRange is about a Pod whose requests and limits the API server sets.
func TestPodInANamespaceWithALimitRange(t *testing.T) {
	t.Parallel()
	const pod = `{apiVersion: v1, kind: Pod, metadata: {name: pod, namespace: %s},
		spec: {containers: [{name: a, image: x}]}}`
	for _, owner := range []string{"Flux", "us"} {
		t.Run("applied by "+owner, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.apply(`{apiVersion: v1, kind: LimitRange, metadata: {name: lr, namespace: %s},
				spec: {limits: [{type: Container, default: {cpu: 500m}, defaultRequest: {cpu: "0.1"}}]}}`)
			f.inventory = nil
			objects := f.objects(pod)
			testenv.Eventually(t, "the limits are set", func() error { // the API server caches LimitRanges
				probe := objects[0].DeepCopy()
				got, err := f.client(pods, f.ns).Create(t.Context(), probe,
					metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				if err == nil && len(got.GetAnnotations()) == 0 {
					err = errors.New("no limits yet")
				}
				return err
			})
			if owner == "Flux" {
				f.applyAsFlux(objects...)
			} else {
				f.do(f.native(objects))
			}
			f.changesNothing("a Pod", objects)
		})
	}
}

var pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// TestUnknownFields are left out of built-in kinds and named, or refused before anything is written.
func TestUnknownFields(t *testing.T) {
	t.Parallel()
	text := `apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: %s, lables: {a: b}}
spec:
  replica: 3
  selector: {matchLabels: {app: a}}
  template:
    metadata: {labels: {app: a}}
    spec: {containers: [{name: a, image: x}, {name: b, image: x, resource: {limits: {cpu: 1}}}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: cm, namespace: %s}
unknown: x
---
apiVersion: v1
kind: Secret
metadata: {name: plain, namespace: %s}`
	want := []string{"metadata.lables", "spec.replica", "spec.template.spec.containers[1].resource", "unknown"}
	f := newFixture(t)
	strict := f.native(f.objects(text))
	strict.StrictFields = true
	strict.Locate = func(o *unstructured.Unstructured, _ string) string { return o.GetKind() + ".yaml, line 1" }
	result, err := f.try(strict)
	for _, s := range append(want, "Deployment/"+f.ns+"/web sets unknown fields: ", "Deployment.yaml, line 1",
		"2 objects refused, nothing was changed", "Correct or remove them. Deployment does not have them in apps/v1") {
		if err == nil || !strings.Contains(err.Error(), s) {
			t.Errorf("error %v does not contain %q", err, s)
		}
	}
	if len(result.Changes) > 0 || f.has(secrets, f.ns, "plain") {
		t.Error("objects were applied")
	}
	fields := func(changes []Change) (found []string) {
		for _, c := range changes {
			for _, u := range c.Unknown {
				found = append(found, u.Path)
			}
		}
		slices.Sort(found)
		return found
	}
	req := f.native(f.objects(text))
	planned, err := f.Diff(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	assertLines(t, "diff", fields(planned), want)
	for pass := range 3 { // the last ones compare nothing
		req.Previous = f.inventory
		if result, err = f.try(req); err != nil {
			t.Fatal(err)
		}
		assertLines(t, fmt.Sprint("pass ", pass), fields(result.Changes), want)
		f.waitSynced()
	}
	f.changesNothing("unknown fields", f.objects(text))
}

// TestUnknownFieldsOfRolesAreRefused is about a field that would limit what a Role allows.
func TestUnknownFieldsOfRolesAreRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, kind := range []string{"Role", "ClusterRole"} {
		_, err := f.try(f.native(f.objects(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ` + kind +
			`, metadata: {name: %s-r, namespace: %s}, rules: [{apiGroups: [""], resources: [secrets], verbs: [get],
			resourceName: [one]}]}`)))
		if err == nil || !strings.Contains(err.Error(), "resourceName") {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// TestUnchangedObjectsAreNotConverted checks that a pass without changes converts nothing.
func TestUnchangedObjectsAreNotConverted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	t.Cleanup(f.pruneAll)
	objects := f.objects(nativeKinds)
	f.do(f.native(objects))
	f.waitSynced()
	r, err := f.newRun(f.native(objects))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.makeNative(); err != nil {
		t.Fatal(err)
	}
	for _, s := range r.steps {
		if s.isNative {
			t.Errorf("%s was converted", s.ref)
		}
	}
}

func BenchmarkNativeForm(b *testing.B) {
	f := &fixture{t: b, ns: "apps"}
	for _, o := range f.objects(nativeKinds) {
		switch o.GetName() {
		case "deploy", "cm":
		default:
			continue
		}
		b.Run(o.GetKind(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				nativeForm(o)
			}
		})
	}
}
