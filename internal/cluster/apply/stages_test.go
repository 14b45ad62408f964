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

// definition defines a kind in a group of the test.
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
    schema: {openAPIV3Schema: {type: object, properties: {
      spec: {type: object, properties: {size: {type: integer, maximum: 10}}}}}}
`

const gadget = `apiVersion: %s.example.com/v1
kind: Gadget
metadata: {name: g, namespace: %s}
spec: {size: 3}
`

func (f *fixture) gadgets() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: f.ns + ".example.com", Version: "v1", Resource: "gadgets"}
}

// pruneAll deletes all applied objects.
func (f *fixture) pruneAll() {
	f.t.Helper()
	if _, err := f.Prune(context.Background(), f.owner, f.inventory); err != nil {
		f.t.Error(err)
	}
}

func TestDefinitionAndItsObjectsInOneSet(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	t.Cleanup(f.pruneAll)
	assertLines(t, "first", f.apply(gadget+"---\n"+definition),
		[]string{"CustomResourceDefinition/gadgets." + f.ns + ".example.com created", "Gadget/g created"})
	f.waitSynced()
	assertLines(t, "again", f.apply(gadget+"---\n"+definition),
		[]string{"CustomResourceDefinition/gadgets." + f.ns + ".example.com unchanged", "Gadget/g unchanged"})
	assertLines(t, "requests", f.requests.take(), nil)

	// The definition changes together with an object that uses a new field.
	wider := strings.ReplaceAll(definition, "{size: {", "{colour: {type: string}, size: {")
	red := strings.ReplaceAll(gadget, "{size: 3}", "{size: 3, colour: red}")
	assertLines(t, "new field", f.apply(wider+"---\n"+red),
		[]string{"CustomResourceDefinition/gadgets." + f.ns + ".example.com configured", "Gadget/g configured"})
	if got := f.get(f.gadgets(), "g").Object["spec"].(map[string]any)["colour"]; got != "red" {
		t.Errorf("colour is %v", got)
	}
	// An object that the definition does not allow is refused.
	_, err := f.try(f.request(definition + "---\n" + f.cm("other") + "---\n" +
		strings.ReplaceAll(gadget, "size: 3", "size: 11")))
	if err == nil || !strings.Contains(err.Error(), "spec.size") {
		t.Errorf("%v does not name the field", err)
	}
}

func TestDefinitionWithConflictingNameIsNotEstablished(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	t.Cleanup(f.pruneAll)
	f.apply(definition)
	other := strings.NewReplacer("gadgets.%s", "others.%s", "plural: gadgets", "plural: others").Replace(definition)
	if _, err := f.client(crds, "").Create(t.Context(), f.objects(other)[0], metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "name conflict", func() error {
		live, err := f.client(crds, "").Get(t.Context(), "others."+f.ns+".example.com", metav1.GetOptions{})
		if _, reason := isEstablished(live); !strings.Contains(reason, "already in use") {
			return errors.Join(errors.New(reason), err)
		}
		return nil
	})
	f.options.WaitTimeout = shortTimeout
	attempts := 0
	testenv.Eventually(t, "error with the reason", func() error {
		attempts++ // Apply does not wait for a definition that does not change
		_, err := f.try(f.request(definition + "---\n" +
			strings.Replace(other, "metadata: {",
				fmt.Sprintf("metadata: {annotations: {attempt: %q}, ", fmt.Sprint(attempts)), 1)))
		if err == nil || !strings.Contains(err.Error(), "is not established") ||
			!strings.Contains(err.Error(), "already in use") {
			return fmt.Errorf("error %w does not name the conflict", err)
		}
		return nil
	})
	f.inventory = f.saved[len(f.saved)-1]
}

func TestNamespaceAndItsObjectsInOneSet(t *testing.T) {
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
		strings.Contains(err.Error(), "was created") {
		t.Fatalf("the invalid object was not refused, or its namespace was kept: %v", err)
	}
	f.waitWithout(f.ns + "-new")
	assertLines(t, "first", f.applySoon(text), []string{
		"Namespace/" + f.ns + "-new created", "ServiceAccount/a created", "Role/r created", "RoleBinding/b created",
	})
}

func TestStages(t *testing.T) {
	t.Parallel()
	kinds := []string{
		"admissionregistration.k8s.io/ValidatingWebhookConfiguration", "apps/Deployment", "example.com/Secret",
		"Service", "Secret", "rbac.authorization.k8s.io/RoleBinding",
		"rbac.authorization.k8s.io/Role", "ServiceAccount", "Namespace", "storage.k8s.io/StorageClass",
		"apiextensions.k8s.io/CustomResourceDefinition", "example.com/Gadget",
	}
	for name, c := range map[string]struct{ custom, want []string }{
		"default": {want: []string{
			"Namespace CustomResourceDefinition StorageClass", "Secret ServiceAccount Role", "RoleBinding", "Service",
			"Deployment Gadget Secret", "ValidatingWebhookConfiguration",
		}},
		"custom stage": {custom: []string{"example.com/Gadget", "Service"}, want: []string{
			"Namespace CustomResourceDefinition StorageClass", "Service Gadget", "Secret ServiceAccount Role",
			"RoleBinding", "Deployment Secret", "ValidatingWebhookConfiguration",
		}},
		"custom stage with definitions": {custom: []string{"apiextensions.k8s.io/CustomResourceDefinition"},
			want: []string{
				"Namespace CustomResourceDefinition StorageClass", "Secret ServiceAccount Role", "RoleBinding",
				"Service",
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
			var items []*object
			for _, gk := range all {
				items = append(items, &object{ref: Ref{Group: gk.Group, Kind: gk.Kind, Name: "x"}})
			}
			slices.SortFunc(items, byRank[*object](options))
			var got []string
			for _, stage := range stages(options, items) {
				var kinds []string
				for _, i := range stage {
					kinds = append(kinds, i.ref.Kind)
				}
				got = append(got, strings.Join(kinds, " "))
			}
			assertLines(t, "stages", got, c.want)
		})
	}
	for _, text := range []string{"", "apps/", "apps/v1/Deployment", "deployments"} {
		if _, err := ParseKinds([]string{text}); err == nil || !strings.Contains(err.Error(), "GROUP/KIND") {
			t.Errorf("%q was accepted: %v", text, err)
		}
	}
}

func TestObjectBeingDeletedIsCreatedAgain(t *testing.T) {
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
	f.options.WaitTimeout = shortTimeout
	req := f.request(f.cm("held"))
	req.Resync = true
	testenv.Eventually(t, "error with the finalizer", func() error {
		_, err := f.try(req)
		for _, s := range []string{"ConfigMap/" + f.ns + "/held is being deleted",
			"Its finalizers block the deletion: example.com/hold. Check the controllers that set them"} {
			if err == nil || !strings.Contains(err.Error(), s) {
				return fmt.Errorf("error %w does not contain %q", err, s)
			}
		}
		return nil
	})
	f.options.WaitTimeout = longTimeout
	done := make(chan []string)
	go func() {
		r, err := f.try(req)
		if err != nil {
			done <- []string{err.Error()}
			return
		}
		done <- describe(r.Changes)
	}()
	hold("null")
	assertLines(t, "after the deletion", <-done, []string{"ConfigMap/held created"})
}

func TestScopeAndNamespace(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	t.Cleanup(f.pruneAll)
	role := "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: \"apply-" + f.ns +
		":x\", namespace: wrong}\nrules: []\n"
	req := f.request("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\n" + role +
		"---\napiVersion: v1\nkind: Secret\nmetadata: {name: b}")
	req.Origin = func(o *unstructured.Unstructured) string { return o.GetName() + ".yaml" }
	want := "2 objects refused, nothing was changed: ConfigMap/a in a.yaml: namespace not specified; Secret/b in " +
		"b.yaml: namespace not specified. Set metadata.namespace, or spec.targetNamespace of the Kustomization"
	if _, err := f.try(req); err == nil || err.Error() != want {
		t.Errorf("without a namespace: got %v, want %s", err, want)
	}
	if f.has(clusterRoles, "", "apply-"+f.ns+":x") {
		t.Error("other objects of a refused set were applied")
	}
	f.Cluster.options.Namespace = f.ns
	f.do(req)
	if !f.has(configMaps, f.ns, "a") || !f.has(clusterRoles, "", "apply-"+f.ns+":x") {
		t.Error("wrong namespace or scope")
	}
	assertLines(t, "inventory", []string{f.inventory[0].ID, f.inventory[1].ID, f.inventory[2].ID}, []string{
		f.ns + "_a__ConfigMap", f.ns + "_b__Secret", "_apply-" + f.ns + "__x_rbac.authorization.k8s.io_ClusterRole",
	})
}

func TestDeletedDefinitionIsDrift(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	t.Cleanup(f.pruneAll)
	f.apply(definition + "---\n" + gadget)
	f.waitSynced()
	if err := deleted(context.Background(), f.client(crds, ""), "gadgets."+f.ns+".example.com"); err != nil {
		t.Fatal(err)
	}
	f.waitDrift(f.owner)
	testenv.Eventually(t, "recovery", func() error {
		_, err := f.try(f.request(definition + "---\n" + gadget))
		if err == nil && !f.has(f.gadgets(), f.ns, "g") {
			err = fmt.Errorf("no gadget")
		}
		return err
	})
}

func TestExportedManifestsAreApplied(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.apply(f.cm("a"))
	export := f.get(configMaps, "a")
	_ = unstructured.SetNestedField(export.Object, "2", "data", "a")
	export.SetResourceVersion("1")
	req := f.request(f.cm("a"))
	req.Objects = []*unstructured.Unstructured{export}
	assertLines(t, "changes", f.do(req), []string{"ConfigMap/a configured"})
}
