package apply

import (
	"context"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const threeMaps = `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: "%s"}, data: {k: v}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: b, namespace: "%s"}, data: {k: v}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: "%s"}, data: {"KEY": v}}`

func (f *fixture) maps() []string {
	f.t.Helper()
	list, err := f.Dynamic().Resource(configMaps).Namespace(f.ns).
		List(context.Background(), metav1.ListOptions{LabelSelector: group + "/name"})
	if err != nil {
		f.t.Fatal(err)
	}
	var names []string
	for _, o := range list.Items {
		names = append(names, o.GetName())
	}
	return names
}

func TestInertObjectsAreCreatedWithoutDryRun(t *testing.T) {
	f := newFixture(t)
	result, err := f.try(f.request(threeMaps))
	if err != nil || len(result.Changes) != 3 {
		t.Fatal(result, err)
	}
	for _, c := range result.Changes {
		if c.Action != Created || c.ResourceVersion == "" {
			t.Errorf("%+v", c)
		}
	}
	for _, line := range f.requests.take() {
		if strings.HasPrefix(line, "DRY") || strings.HasPrefix(line, "GET") {
			t.Errorf("unnecessary request: %s", line)
		}
	}
	if len(f.saved) != 1 {
		t.Errorf("the inventory was saved %d times", len(f.saved))
	}
}

func TestRefusalRollsBackDirectCreation(t *testing.T) {
	f := newFixture(t)
	text := strings.ReplaceAll(threeMaps, "KEY", "no key") + `
---
{apiVersion: v1, kind: Service, metadata: {name: s, namespace: "%s"}, spec: {ports: [{port: 80}]}}`
	result, err := f.try(f.request(text))
	if err == nil || !strings.Contains(err.Error(), "ConfigMap/"+f.ns+"/c") ||
		!strings.Contains(err.Error(), "no key") {
		t.Fatalf("%v", err)
	}
	if len(result.Changes) > 0 {
		t.Errorf("reported changes: %+v", result.Changes)
	}
	if n := len(f.saved); n != 2 || len(f.saved[1]) > 0 {
		t.Errorf("the saved inventory contains deleted objects: %v", f.saved)
	}
	if left := f.maps(); len(left) > 0 {
		t.Errorf("objects are left: %q", left)
	}
	for _, line := range f.requests.take() {
		if strings.Contains(line, "/services/") && !strings.HasPrefix(line, "DRY") {
			t.Errorf("written although another object was refused: %s", line)
		}
	}
}

func TestRefusalsOfDirectObjectsAreReportedWithOthers(t *testing.T) {
	f := newFixture(t)
	text := strings.ReplaceAll(threeMaps, "KEY", "no key") + `
---
{apiVersion: v1, kind: Service, metadata: {name: s, namespace: "%s"}, spec: {ports: [{port: 0}]}}`
	_, err := f.try(f.request(text))
	if err == nil || !strings.Contains(err.Error(), "ConfigMap/"+f.ns+"/c") ||
		!strings.Contains(err.Error(), "Service/"+f.ns+"/s") {
		t.Fatalf("%v", err)
	}
	for _, line := range f.requests.take() {
		if strings.HasPrefix(line, "PATCH") {
			t.Errorf("written although another object was refused: %s", line)
		}
	}
}

func TestDirectCreationNeedsRightToDelete(t *testing.T) {
	f := asTenant(t)
	f.grant("get, list, watch, create, patch")
	first := `{apiVersion: v1, kind: ConfigMap, metadata: {name: first, namespace: "%s"}}`
	f.applySoon(first)
	_, err := f.try(f.request(first + "\n---\n" + strings.ReplaceAll(threeMaps, "KEY", "no key")))
	if err == nil || !strings.Contains(err.Error(), "no key") {
		t.Fatalf("%v", err)
	}
	assertLines(t, "left", f.maps(), []string{"first"})
}

func TestExistingObjectIsNotCreatedDirectly(t *testing.T) {
	f := newFixture(t)
	force := true
	_, err := f.Dynamic().Resource(configMaps).Namespace(f.ns).Patch(context.Background(), "b", types.ApplyPatchType,
		[]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b","annotations":{"`+group+
			`/ssa":"IfNotPresent"}},"data":{"k":"theirs"}}`),
		metav1.PatchOptions{FieldManager: "them", Force: &force})
	if err != nil {
		t.Fatal(err)
	}
	result, err := f.try(f.request(threeMaps))
	if err != nil {
		t.Fatal(err)
	}
	skipped := slices.IndexFunc(result.Changes, func(c Change) bool { return c.Ref.Name == "b" && c.Action == Skipped })
	if skipped < 0 || len(f.maps()) != 2 {
		t.Errorf("an excluded object was changed: %+v", result.Changes)
	}
	text := strings.ReplaceAll(threeMaps, "KEY", "no key")
	if _, err := f.try(f.request(text)); err == nil {
		t.Fatal("accepted")
	}
	if !f.has(configMaps, f.ns, "b") {
		t.Error("an existing object was deleted")
	}
}

func TestFirstChangedObjectNeedsNoDryRun(t *testing.T) {
	f := newFixture(t)
	f.apply(threeMaps)
	f.waitSynced()
	f.waitObserved(configMaps, "c")
	req := f.request(strings.ReplaceAll(threeMaps, "{k: v}", "{k: w}"))
	req.MaxDiffs = 2
	f.requests.take()
	r, err := f.try(req)
	if err != nil {
		t.Fatal(err)
	}
	assertLines(t, "changes", withDiffs(r.Changes), []string{
		"ConfigMap/a configured", `~ data.k: v → w`, "ConfigMap/b configured", `~ data.k: v → w`,
		"ConfigMap/c unchanged",
	})
	assertLines(t, "requests", f.verbs(), []string{"DRY PATCH", "GET", "GET", "PATCH", "PATCH"})
}

func TestRefusedDirectChangeLeavesClusterUnchanged(t *testing.T) {
	f := newFixture(t)
	f.apply(threeMaps)
	f.waitSynced()
	f.waitObserved(configMaps, "c")
	before := f.get(configMaps, "b").GetResourceVersion()
	bad := strings.Replace(strings.Replace(threeMaps, "{k: v}", `{"no key": v}`, 1), "{k: v}", "{k: w}", 1)
	r, err := f.try(f.request(bad))
	if err == nil || !strings.Contains(err.Error(), "ConfigMap/"+f.ns+"/a") ||
		!strings.Contains(err.Error(), "no key") {
		t.Fatalf("%v", err)
	}
	if f.get(configMaps, "b").GetResourceVersion() != before ||
		slices.ContainsFunc(r.Changes, func(c Change) bool { return c.Action != Unchanged }) {
		t.Errorf("another object was changed: %+v", r.Changes)
	}
	assertLines(t, "after the refusal", f.apply(strings.Replace(threeMaps, "{k: v}", "{k: w}", 1)),
		[]string{"ConfigMap/a configured", "ConfigMap/b unchanged", "ConfigMap/c unchanged"})
}

func TestObjectChangedByOthersIsNotChangedDirectly(t *testing.T) {
	for name, patch := range map[string]string{
		"excluded":      `{"metadata":{"annotations":{"` + group + `/reconcile":"disabled"}},"data":{"k":"theirs"}}`,
		"takeover":      `{"data":{"k":"theirs","more":"theirs"}}`,
		"being deleted": `{"metadata":{"finalizers":["example.com/wait"]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.apply(threeMaps)
			f.waitSynced()
			maps := f.Dynamic().Resource(configMaps).Namespace(f.ns)
			if _, err := maps.Patch(t.Context(), "a", types.MergePatchType, []byte(patch),
				metav1.PatchOptions{FieldManager: "kubectl-edit"}); err != nil {
				t.Fatal(err)
			}
			want := "ConfigMap/a configured"
			switch name {
			case "excluded":
				want = "ConfigMap/a skipped"
			case "being deleted":
				if err := maps.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				go func() { // while Apply waits for the deletion
					_, _ = maps.Patch(context.Background(), "a", types.MergePatchType,
						[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
				}()
				want = "ConfigMap/a created"
			}
			got := f.apply(strings.Replace(threeMaps, "{k: v}", "{k: w}", 1))
			assertLines(t, "changes", got[:1], []string{want})
			data := f.get(configMaps, "a").Object["data"].(map[string]any)
			if value := map[bool]string{true: "theirs", false: "w"}[name == "excluded"]; data["k"] != value ||
				name != "excluded" && data["more"] != nil {
				t.Errorf("data is %v", data)
			}
		})
	}
}
