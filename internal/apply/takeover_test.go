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

// twoVersions is a definition whose second version has a field more.
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
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}, note: {type: string}}}, status: {type: object, properties: {ready: {type: boolean}}}}}}
    subresources: {status: {}}
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}, note: {type: string}, access: {type: string, default: deny}}}, status: {type: object, properties: {ready: {type: boolean}}}}}}
    subresources: {status: {}}
`

func TestVersionsOfManagedFieldsThatGo(t *testing.T) {
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
	same(t, "plan", f.plan(f.request(twoVersions+"---\n"+newer)),
		[]string{crd + "unchanged", "Gadget/g configured", "~ spec.access: deny → allow", "- spec.note: x"})
	f.unwritten()
	same(t, "a field that the old version has not got", f.apply(twoVersions+"---\n"+newer),
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
	same(t, "a version goes", f.apply(only+"---\n"+newer), []string{crd + "configured", "Gadget/g configured"})
	f.watched()
	same(t, "again", f.apply(only+"---\n"+newer), []string{crd + "unchanged", "Gadget/g unchanged"})
	live := f.get(f.gadgets(), "g")
	if ready := fmt.Sprint(live.Object["status"]); ready != "map[ready:false]" {
		t.Errorf("status is %s", ready)
	}
	for _, e := range live.GetManagedFields() {
		if e.APIVersion != f.ns+".example.com/v1" {
			t.Errorf("fields of %s are in %s", e.Manager, e.APIVersion)
		}
	}

	_, err := f.try(f.request(only + "---\n" + strings.ReplaceAll(gadget, "size: 3", "nothing: 3")))
	if err == nil || !strings.Contains(err.Error(), "spec.nothing") {
		t.Errorf("%v does not name the field that is not known", err)
	}
}

func TestFieldsOfOtherToolsAreTakenOver(t *testing.T) {
	const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
	const clientSide = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","annotations":{"` + lastApplied +
		`":"{}"}},"data":{"a":"0","old":"x"}}`
	for name, c := range map[string]struct {
		manager string
		kind    types.PatchType
		stays   bool // what the tool set and nobody declares
	}{
		"kubectl apply":               {"kubectl-client-side-apply", types.MergePatchType, false},
		"kubectl apply --server-side": {"kubectl", types.ApplyPatchType, false},
		"kubectl edit":                {"kubectl-edit", types.MergePatchType, false},
		"kubectl patch":               {"kubectl-patch", types.MergePatchType, false},
		"a named tool, by updates":    {"lens", types.MergePatchType, false},
		"a named tool, by applies":    {"lens", types.ApplyPatchType, false},
		"another tool":                {"other", types.MergePatchType, true},
	} {
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
			for round := range 2 { // the tool is used again on what was taken over
				f.apply(f.cm("c"))
				live := f.get(configMaps, "c")
				data := live.Object["data"].(map[string]any)
				_, old := data["old"]
				_, annotation := live.GetAnnotations()[lastApplied]
				if data["a"] != "1" || old != c.stays || annotation != c.stays {
					t.Errorf("round %d: %v, %v", round, data, live.GetAnnotations())
				}
				if err := patched(c.kind, c.manager, clientSide)(t.Context(), client, "c"); err != nil {
					t.Fatal(err)
				}
				f.seen(configMaps, "c")
			}
		})
	}
	t.Run("what was there before there was server-side apply", func(t *testing.T) {
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

// The library's iterator goes on after an early return.
func TestManyFieldsAreWalkedToTheEnd(t *testing.T) {
	path := func(names ...any) fieldpath.Path { return fieldpath.MakePathOrDie(names...) }
	all, kept := fieldpath.NewSet(), fieldpath.NewSet(path("metadata", "annotations", "kept"))
	for n := range 2 * maxRivals {
		all.Insert(path("data", fmt.Sprint(n)))
		all.Insert(path("spec", fmt.Sprint(n), "more"))
	}
	if onlyParents(all, kept) || !onlyParents(fieldpath.NewSet(path("metadata", "annotations")), kept) {
		t.Error("parents are told wrong")
	}
	m := managers{own: "us"}
	none := withFields(metav1.ManagedFieldsEntry{Manager: "them"}, fieldpath.NewSet())
	entry := withFields(metav1.ManagedFieldsEntry{Manager: "us", Operation: metav1.ManagedFieldsOperationApply}, all)
	if lost := m.lost([]metav1.ManagedFieldsEntry{none}, []metav1.ManagedFieldsEntry{entry}); len(lost) != maxRivals {
		t.Errorf("%d fields", len(lost))
	}
}
