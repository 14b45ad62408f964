package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// definition of a kind that no other test has.
const definition = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.%s.example.com}
spec:
  group: %s.example.com
  scope: Namespaced
  names: {plural: gadgets, singular: gadget, kind: Gadget}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer, maximum: 10}}}}}}
`

const gadget = `apiVersion: %s.example.com/v1
kind: Gadget
metadata: {name: g, namespace: %s}
spec: {size: 3}
`

func (f *fixture) gadgets() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: f.ns + ".example.com", Version: "v1", Resource: "gadgets"}
}

// prune removes all that was applied.
func (f *fixture) pruneAll() {
	f.t.Helper()
	if _, err := f.Prune(context.Background(), f.owner, f.inventory); err != nil {
		f.t.Error(err)
	}
}

func TestADefinitionAndItsObjectsInOneSet(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	t.Cleanup(f.pruneAll)
	same(t, "first", f.apply(gadget+"---\n"+definition),
		[]string{"CustomResourceDefinition/gadgets." + f.ns + ".example.com created", "Gadget/g created"})
	f.watched()
	same(t, "again", f.apply(gadget+"---\n"+definition),
		[]string{"CustomResourceDefinition/gadgets." + f.ns + ".example.com unchanged", "Gadget/g unchanged"})
	same(t, "requests", f.requests.take(), nil)

	// The definition and an object that needs what is new in it change together.
	wider := strings.ReplaceAll(definition, "{size: {", "{colour: {type: string}, size: {")
	red := strings.ReplaceAll(gadget, "{size: 3}", "{size: 3, colour: red}")
	same(t, "a new field", f.apply(wider+"---\n"+red),
		[]string{"CustomResourceDefinition/gadgets." + f.ns + ".example.com configured", "Gadget/g configured"})
	if got := f.get(f.gadgets(), "g").Object["spec"].(map[string]any)["colour"]; got != "red" {
		t.Errorf("colour is %v", got)
	}
	// An object that the definition does not allow leaves everything as it was.
	_, err := f.try(f.request(definition + "---\n" + f.cm("other") + "---\n" +
		strings.ReplaceAll(gadget, "size: 3", "size: 11")))
	if err == nil || !strings.Contains(err.Error(), "spec.size") {
		t.Errorf("%v does not name the field", err)
	}
}

func TestADefinitionThatIsRefusedByName(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	t.Cleanup(f.pruneAll)
	f.apply(definition)
	other := strings.NewReplacer("gadgets.%s", "others.%s", "plural: gadgets", "plural: others").Replace(definition)
	if _, err := f.client(crds, "").Create(t.Context(), f.objects(other)[0], metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the name to be refused", func() error {
		live, err := f.client(crds, "").Get(t.Context(), "others."+f.ns+".example.com", metav1.GetOptions{})
		if _, why := isEstablished(live); !strings.Contains(why, "already in use") {
			return errors.Join(errors.New(why), err)
		}
		return nil
	})
	f.options.WaitTimeout = brief
	tries := 0
	testenv.Eventually(t, "what keeps it to be told", func() error {
		tries++ // what does not change is not waited for
		_, err := f.try(f.request(definition + "---\n" +
			strings.Replace(other, "metadata: {",
				fmt.Sprintf("metadata: {annotations: {try: %q}, ", fmt.Sprint(tries)), 1)))
		if err == nil || !strings.Contains(err.Error(), "is not established") ||
			!strings.Contains(err.Error(), "already in use") {
			return fmt.Errorf("%w does not say that the kind is taken", err)
		}
		return nil
	})
	f.inventory = f.intended[len(f.intended)-1]
}

func TestANamespaceAndItsObjectsInOneSet(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	t.Cleanup(f.pruneAll)
	text := `apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: b, namespace: %s-new}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: r}
subjects: [{kind: ServiceAccount, name: a, namespace: %s-new}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: r, namespace: %s-new}
rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: a, namespace: %s-new}
---
apiVersion: v1
kind: Namespace
metadata: {name: %s-new}
`
	invalid := text + "---\napiVersion: v1\nkind: Service\nmetadata: {name: s, namespace: %s-new}\n" +
		"spec: {ports: [{port: 99999}]}"
	if _, err := f.try(f.request(invalid)); err == nil || !strings.Contains(err.Error(), "spec.ports[0].port") ||
		f.has(namespaces, "", f.ns+"-new") {
		t.Fatalf("an invalid object in a namespace to come was not refused before it came: %v", err)
	}
	same(t, "first", f.apply(text), []string{
		"Namespace/" + f.ns + "-new created", "ServiceAccount/a created", "Role/r created", "RoleBinding/b created",
	})
}

func TestKindsAreInOrder(t *testing.T) {
	t.Parallel()
	kinds := []string{
		"admissionregistration.k8s.io/ValidatingWebhookConfiguration", "apps/Deployment", "example.com/Secret",
		"Service", "Secret", "rbac.authorization.k8s.io/RoleBinding",
		"rbac.authorization.k8s.io/Role", "ServiceAccount", "Namespace", "storage.k8s.io/StorageClass",
		"apiextensions.k8s.io/CustomResourceDefinition", "example.com/Gadget",
	}
	for name, c := range map[string]struct{ custom, want []string }{
		"by default": {nil, []string{
			"Namespace CustomResourceDefinition StorageClass", "Secret ServiceAccount Role", "RoleBinding", "Service",
			"Deployment Gadget Secret", "ValidatingWebhookConfiguration",
		}},
		"with a custom stage": {[]string{"example.com/Gadget", "Service"}, []string{
			"Namespace CustomResourceDefinition StorageClass", "Service Gadget", "Secret ServiceAccount Role",
			"RoleBinding", "Deployment Secret", "ValidatingWebhookConfiguration",
		}},
		"with one that names definitions": {[]string{"apiextensions.k8s.io/CustomResourceDefinition"}, []string{
			"Namespace CustomResourceDefinition StorageClass", "Secret ServiceAccount Role", "RoleBinding", "Service",
			"Deployment Gadget Secret", "ValidatingWebhookConfiguration",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all, err := ParseKinds(kinds)
			if err != nil {
				t.Fatal(err)
			}
			var options ClusterOptions
			if options.CustomStage, err = ParseKinds(c.custom); err != nil {
				t.Fatal(err)
			}
			var items []*item
			for _, gk := range all {
				items = append(items, &item{ref: Ref{Group: gk.Group, Kind: gk.Kind, Name: "x"}})
			}
			slices.SortFunc(items, options.byRank)
			var got []string
			for _, stage := range options.stages(items) {
				var kinds []string
				for _, i := range stage {
					kinds = append(kinds, i.ref.Kind)
				}
				got = append(got, strings.Join(kinds, " "))
			}
			same(t, "stages", got, c.want)
		})
	}
	for _, text := range []string{"", "apps/", "apps/v1/Deployment", "deployments"} {
		if _, err := ParseKinds([]string{text}); err == nil || !strings.Contains(err.Error(), "<group>/<Kind>") {
			t.Errorf("%q is read as a kind: %v", text, err)
		}
	}
}

func TestWhatIsOnItsWayOut(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := context.Background()
	f.apply(f.cm("held"))
	hold := func(finalizers string) {
		if err := patched(types.MergePatchType, "holder", `{"metadata":{"finalizers":`+finalizers+`}}`)(ctx,
			f.client(configMaps, f.ns), "held"); err != nil {
			t.Fatal(err)
		}
	}
	hold(`["example.com/hold"]`)
	if err := deleted(ctx, f.client(configMaps, f.ns), "held"); err != nil {
		t.Fatal(err)
	}
	f.options.WaitTimeout = brief
	req := f.request(f.cm("held"))
	req.Resync = true
	testenv.Eventually(t, "what holds it to be told", func() error {
		_, err := f.try(req)
		for _, s := range []string{"ConfigMap/" + f.ns + "/held is being deleted", "example.com/hold"} {
			if err == nil || !strings.Contains(err.Error(), s) {
				return fmt.Errorf("%w does not say %q", err, s)
			}
		}
		return nil
	})
	f.options.WaitTimeout = patient
	done := make(chan []string)
	go func() {
		r, err := f.try(req)
		if err != nil {
			done <- []string{err.Error()}
			return
		}
		done <- said(r.Changes)
	}()
	hold("null")
	same(t, "once it is gone", <-done, []string{"ConfigMap/held created"})
}

func TestScopeAndDefaultNamespace(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	t.Cleanup(f.pruneAll)
	name := "apply-" + f.ns
	f.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name +
		"}\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: \"" + name +
		":x\", namespace: wrong}\nrules: []")
	if !f.has(configMaps, metav1.NamespaceDefault, name) || !f.has(clusterRoles, "", name+":x") {
		t.Error("not where they belong")
	}
	same(t, "inventory", []string{f.inventory[0].ID, f.inventory[1].ID}, []string{
		"default_" + name + "__ConfigMap", "_" + name + "__x_rbac.authorization.k8s.io_ClusterRole",
	})
}

func TestPruning(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := context.Background()
	keep := strings.ReplaceAll(f.cm("kept"), "name: kept", "name: kept, annotations: {"+group+"/prune: disabled}")
	f.apply(strings.Join([]string{f.cm("a"), f.cm("b"), f.cm("gone"), f.cm("taken"), f.cm("live-kept"), keep}, "---\n"))
	all := f.inventory
	f.watched()
	for name, body := range map[string]string{
		"taken":     `{"metadata":{"labels":{"` + group + `/name":"another"}}}`,
		"live-kept": `{"metadata":{"annotations":{"` + group + `/prune":"Disabled"}}}`,
	} {
		if err := patched(types.MergePatchType, "other", body)(ctx, f.client(configMaps, f.ns), name); err != nil {
			t.Fatal(err)
		}
	}
	if err := deleted(ctx, f.client(configMaps, f.ns), "gone"); err != nil {
		t.Fatal(err)
	}
	f.apply(f.cm("a"))
	changes, err := f.Prune(ctx, f.owner, append(all.Without(f.inventory),
		Ref{Group: "example.com", Version: "v1", Kind: "Never", Namespace: f.ns, Name: "n"}.Entry()))
	if err != nil {
		t.Fatal(err)
	}
	same(t, "changes", said(changes), []string{"ConfigMap/live-kept skipped", "ConfigMap/kept skipped",
		"ConfigMap/b deleted"})
	for name, want := range map[string]bool{"a": true, "b": false, "gone": false, "taken": true, "live-kept": true,
		"kept": true} {
		if f.has(configMaps, f.ns, name) != want {
			t.Errorf("%s is there: %v, want %v", name, !want, want)
		}
	}
	if changes, err := f.Prune(ctx, f.owner, all); err != nil || len(changes) != 3 {
		t.Errorf("again: %v, %v", changes, err)
	}
	if _, err := f.Prune(ctx, f.owner, Inventory{{ID: "nonsense", Version: "v1"}}); err == nil ||
		!strings.Contains(err.Error(), "nonsense") {
		t.Errorf("an entry that cannot be read is passed over: %v", err)
	}
}

func TestPruningIsNoDrift(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.apply(f.cm("a") + "---\n" + f.cm("b"))
	f.watched()
	all := f.inventory
	f.apply(f.cm("a"))
	if _, err := f.Prune(context.Background(), f.owner, all.Without(f.inventory)); err != nil {
		t.Fatal(err)
	}
	if err := f.WaitUntilDeleted(context.Background(), f.owner, all.Without(f.inventory)); err != nil {
		t.Fatal(err)
	}
	f.seen(configMaps, "a")
	if f.Drifted(f.owner) || len(f.woken) > 0 {
		t.Error("what we pruned is taken for a move")
	}
}

func TestAwaitGoneNamesWhatHolds(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := context.Background()
	f.apply(f.cm("held"))
	f.options.WaitTimeout = brief
	if err := patched(types.MergePatchType, "holder", `{"metadata":{"finalizers":["example.com/hold"]}}`)(ctx,
		f.client(configMaps, f.ns), "held"); err != nil {
		t.Fatal(err)
	}
	f.pruneAll()
	testenv.Eventually(t, "what holds it to be told", func() error {
		if err := f.WaitUntilDeleted(ctx, f.owner, f.inventory); err == nil ||
			!strings.Contains(err.Error(), "example.com/hold") {
			return fmt.Errorf("%w does not name the finalizer", err)
		}
		return nil
	})
	if err := patched(types.MergePatchType, "holder", `{"metadata":{"finalizers":null}}`)(ctx,
		f.client(configMaps, f.ns), "held"); err != nil {
		t.Fatal(err)
	}
	f.options.WaitTimeout = patient
	if err := f.WaitUntilDeleted(ctx, f.owner, f.inventory); err != nil {
		t.Error(err)
	}
}

func TestDefinitionsArePrunedAfterTheirObjects(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.apply(definition + "---\n" + gadget)
	changes, err := f.Prune(context.Background(), f.owner, f.inventory)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "changes", said(changes), []string{"Gadget/g deleted", "CustomResourceDefinition/gadgets." + f.ns +
		".example.com deleted"})
	testenv.Eventually(t, "kind to go", func() error {
		_, err := f.dynamic.Resource(f.gadgets()).Namespace(f.ns).List(context.Background(), metav1.ListOptions{})
		if err == nil {
			return fmt.Errorf("still served")
		}
		return nil
	})
	if changes, err := f.Prune(context.Background(), f.owner, f.inventory); err != nil || len(changes) != 0 {
		t.Errorf("objects whose kind is gone are gone: %v, %v", changes, err)
	}
	// The kind was known a moment ago. It comes back with its definition, in one set.
	same(t, "applied again", f.apply(definition+"---\n"+gadget),
		[]string{"CustomResourceDefinition/gadgets." + f.ns + ".example.com created", "Gadget/g created"})
	f.pruneAll()
}

func TestADefinitionThatIsDeletedIsAMove(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	t.Cleanup(f.pruneAll)
	f.apply(definition + "---\n" + gadget)
	f.watched()
	if err := deleted(context.Background(), f.client(crds, ""), "gadgets."+f.ns+".example.com"); err != nil {
		t.Fatal(err)
	}
	f.waitWoken(f.owner)
	testenv.Eventually(t, "kind to come back", func() error {
		_, err := f.try(f.request(definition + "---\n" + gadget))
		if err == nil && !f.has(f.gadgets(), f.ns, "g") {
			err = fmt.Errorf("no gadget")
		}
		return err
	})
}

func TestExportsOfAClusterAreApplied(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.apply(f.cm("a"))
	export := f.get(configMaps, "a")
	_ = unstructured.SetNestedField(export.Object, "2", "data", "a")
	export.SetResourceVersion("1")
	req := f.request(f.cm("a"))
	req.Objects = []*unstructured.Unstructured{export}
	same(t, "changes", f.do(req), []string{"ConfigMap/a configured"})
}
