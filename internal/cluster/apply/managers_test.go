package apply

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// twoVersions is a definition whose second version has an additional field.
const twoVersions = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.%s.example.com}
spec:
  group: %s.example.com
  scope: Namespaced
  names: {plural: gadgets, singular: gadget, kind: Gadget}
  versions:
  - name: v1beta1
    served: true
    storage: false
    schema: {openAPIV3Schema: {type: object, properties: {
      spec: {type: object, properties: {size: {type: integer}, note: {type: string}}},
      status: {type: object, properties: {ready: {type: boolean}}}}}}
    subresources: {status: {}}
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {
      spec: {type: object, properties: {
        size: {type: integer}, note: {type: string}, access: {type: string, default: deny}}},
      status: {type: object, properties: {ready: {type: boolean}}}}}}
    subresources: {status: {}}
`

func TestManagedFieldsOfRemovedVersion(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	t.Cleanup(f.pruneAll)
	old := strings.Replace(gadget, "/v1", "/v1beta1", 1)
	f.apply(twoVersions + "---\n" + old)
	v1beta1 := f.gadgets()
	v1beta1.Version = "v1beta1"
	if err := patched(types.MergePatchType, "controller", `{"status":{"ready":true}}`, "status")(t.Context(),
		f.client(v1beta1, f.ns), "g"); err != nil {
		t.Fatal(err)
	}
	if err := patched(types.MergePatchType, "kubectl-edit", `{"spec":{"note":"x"}}`)(t.Context(),
		f.client(v1beta1, f.ns), "g"); err != nil {
		t.Fatal(err)
	}
	f.requests.take()

	newer := strings.ReplaceAll(gadget, "size: 3", "size: 3, access: allow")
	crd := "CustomResourceDefinition/gadgets." + f.ns + ".example.com "
	assertLines(t, "plan", f.preview(f.request(twoVersions+"---\n"+newer)),
		[]string{crd + "unchanged", "Gadget/g configured", "~ spec.access: deny → allow", "- spec.note: x"})
	f.assertNoWrites()
	assertLines(t, "field that the old version lacks", f.apply(twoVersions+"---\n"+newer),
		[]string{crd + "unchanged", "Gadget/g configured"})
	if spec := fmt.Sprint(f.get(f.gadgets(), "g").Object["spec"]); spec != "map[access:allow size:3]" {
		t.Errorf("spec is %s", spec)
	}

	f.apply(twoVersions + "---\n" + old)
	if err := patched(types.MergePatchType, "controller", `{"status":{"ready":false}}`, "status")(t.Context(),
		f.client(v1beta1, f.ns), "g"); err != nil {
		t.Fatal(err)
	}
	only := twoVersions[:strings.Index(twoVersions, "  - name: v1beta1")] + twoVersions[strings.Index(twoVersions,
		"  - name: v1\n"):]
	assertLines(t, "removed version", f.apply(only+"---\n"+newer), []string{crd + "configured", "Gadget/g configured"})
	f.waitSynced()
	assertLines(t, "again", f.apply(only+"---\n"+newer), []string{crd + "unchanged", "Gadget/g unchanged"})
	live := f.get(f.gadgets(), "g")
	if ready := fmt.Sprint(live.Object["status"]); ready != "map[ready:false]" {
		t.Errorf("status is %s", ready)
	}
	for _, e := range live.GetManagedFields() {
		if e.APIVersion != f.ns+".example.com/v1" {
			t.Errorf("fields of %s have version %s", e.Manager, e.APIVersion)
		}
	}

	_, err := f.try(f.request(only + "---\n" + strings.ReplaceAll(gadget, "size: 3", "nothing: 3")))
	if err == nil || !strings.Contains(err.Error(), "spec.nothing") {
		t.Errorf("error %v does not name the unknown field", err)
	}
}

var otherManagers = map[string]struct {
	manager string
	kind    types.PatchType
	kept    bool // undeclared fields of the manager are kept
}{
	"kubectl apply": {
		manager: "kubectl-client-side-apply", kind: types.MergePatchType,
	},
	"kubectl apply --server-side": {manager: "kubectl", kind: types.ApplyPatchType},
	"kubectl edit":                {manager: "kubectl-edit", kind: types.MergePatchType},
	"kubectl patch":               {manager: "kubectl-patch", kind: types.MergePatchType},
	"overridden manager, update":  {manager: "lens", kind: types.MergePatchType},
	"overridden manager, apply":   {manager: "lens", kind: types.ApplyPatchType},
	"other manager":               {manager: "other", kind: types.MergePatchType, kept: true},
}

func TestFieldsOfOtherManagersAreTakenOver(t *testing.T) {
	t.Parallel()
	const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
	const clientSide = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","annotations":{"` + lastApplied +
		`":"{}"}},"data":{"a":"0","old":"x"}}`
	for name, c := range otherManagers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.managers.overridden = []string{"lens"}
			client := f.client(configMaps, f.ns)
			if c.kind != types.ApplyPatchType {
				if _, err := client.Create(t.Context(), f.objects(clientSide)[0],
					metav1.CreateOptions{FieldManager: c.manager}); err != nil {
					t.Fatal(err)
				}
			} else if err := patched(c.kind, c.manager, clientSide)(t.Context(), client, "c"); err != nil {
				t.Fatal(err)
			}
			for round := range 2 { // the other manager changes the object again after the takeover
				f.apply(f.cm("c"))
				live := f.get(configMaps, "c")
				data := live.Object["data"].(map[string]any)
				_, old := data["old"]
				_, annotation := live.GetAnnotations()[lastApplied]
				if data["a"] != "1" || old != c.kept || annotation != c.kept {
					t.Errorf("round %d: %v, %v", round, data, live.GetAnnotations())
				}
				if err := patched(c.kind, c.manager, clientSide)(t.Context(), client, "c"); err != nil {
					t.Fatal(err)
				}
				f.waitObserved(configMaps, "c")
			}
		})
	}
	t.Run("object without managed fields", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		client := f.client(configMaps, f.ns)
		o := f.objects(clientSide)[0]
		if _, err := client.Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := updated("x", func(o *unstructured.Unstructured) {
			o.SetManagedFields([]metav1.ManagedFieldsEntry{{}})
		})(t.Context(), client, "c"); err != nil {
			t.Fatal(err)
		}
		f.apply(f.cm("c"))
		if data := fmt.Sprint(f.get(configMaps, "c").Object["data"]); data != "map[a:1]" {
			t.Errorf("data is %s", data)
		}
	})
}

// The iterator of the library panics after an early return.
func TestIterationOverManyFields(t *testing.T) {
	path := func(names ...any) fieldpath.Path { return fieldpath.MakePathOrDie(names...) }
	all, kept := fieldpath.NewSet(), fieldpath.NewSet(path("metadata", "annotations", "kept"))
	for n := range 2 * maxFieldChanges {
		all.Insert(path("data", fmt.Sprint(n)))
		all.Insert(path("spec", fmt.Sprint(n), "more"))
	}
	if onlyParents(all, kept) || !onlyParents(fieldpath.NewSet(path("metadata", "annotations")), kept) {
		t.Error("onlyParents is wrong")
	}
	m := managers{own: "us"}
	none := withFields(metav1.ManagedFieldsEntry{Manager: "them"}, fieldpath.NewSet())
	entry := withFields(metav1.ManagedFieldsEntry{Manager: "us", Operation: metav1.ManagedFieldsOperationApply}, all)
	if lost := m.lostFields([]metav1.ManagedFieldsEntry{none},
		[]metav1.ManagedFieldsEntry{entry}); len(lost) != maxFieldChanges {
		t.Errorf("%d fields", len(lost))
	}
}

// The dry-run of the Service fails before its managed fields are normalized. Another object of the set is invalid.
func TestRefusedSetDoesNotNormalizeManagedFields(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	service := "apiVersion: v1\nkind: Service\nmetadata: {name: service, namespace: %s}\n" +
		"spec: {selector: {app: x}, ports: [{port: 80}]}"
	f.apply(service)
	f.waitSynced()
	if err := patched(types.JSONPatchType, "kubectl-edit", `[{"op":"replace","path":"/spec/ports/0/port","value":81}]`)(
		t.Context(), f.client(services, f.ns), "service"); err != nil {
		t.Fatal(err)
	}
	f.waitDrift(f.owner)
	before := f.get(services, "service").GetResourceVersion()
	f.requests.take()
	invalid := "apiVersion: v1\nkind: Service\nmetadata: {name: wrong, namespace: %s}\n" +
		"spec: {type: NodePort, ports: [{port: 0}]}"
	if _, err := f.try(f.request(service + "\n---\n" + invalid)); err == nil ||
		!strings.Contains(err.Error(), "Service/"+f.ns+"/wrong") {
		t.Fatalf("error %v does not name the invalid object", err)
	}
	f.assertNoWrites()
	if after := f.get(services, "service").GetResourceVersion(); after != before {
		t.Errorf("the Service was changed from version %s to %s", before, after)
	}
	assertLines(t, "without the invalid object", f.apply(service), []string{"Service/service configured"})
}

func TestUpdateAfterNormalizationIsValidated(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	service := "apiVersion: v1\nkind: Service\nmetadata: {name: service, namespace: %s}\n" +
		"spec: {selector: {app: x}, ports: [{port: 80}]}"
	f.apply(service)
	f.waitSynced()
	if err := patched(types.JSONPatchType, "kubectl-edit", `[{"op":"replace","path":"/spec/ports/0/port","value":81}]`)(
		t.Context(), f.client(services, f.ns), "service"); err != nil {
		t.Fatal(err)
	}
	f.waitDrift(f.owner)
	f.requests.take()
	immutable := strings.Replace(service, "ports: [", "clusterIP: 10.255.255.254, ports: [", 1)
	if _, err := f.try(f.request(immutable)); err == nil || !strings.Contains(err.Error(), "clusterIP") {
		t.Fatalf("error %v does not name the immutable field", err)
	}
	f.assertNoWrites()
}
