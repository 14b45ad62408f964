package apply

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const one = `apiVersion: v1
kind: ConfigMap
metadata: {name: one}
data: {a: "1"}
`

func TestApplyCreatesAndChangesObjects(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	text := strings.ReplaceAll(one, "{name: one}", "{name: one, namespace: %s}")
	assertLines(t, "first apply", f.apply(text), []string{"ConfigMap/one created"})
	assertLines(t, "requests", f.verbs(), []string{"PATCH"}) // a ConfigMap is inert: it is created without a dry-run
	f.waitSynced()

	assertLines(t, "second apply", f.apply(text), []string{"ConfigMap/one unchanged"})
	assertLines(t, "requests", f.verbs(), nil)

	assertLines(t, "changed", f.apply(strings.ReplaceAll(text, `"1"`, `"2"`)), []string{"ConfigMap/one configured"})
	assertLines(t, "requests", f.verbs(), []string{"DRY PATCH", "PATCH"})
	if got := f.get(configMaps, "one").Object["data"].(map[string]any)["a"]; got != "2" {
		t.Errorf("data is %v", got)
	}
	f.waitObserved(configMaps, "one")
	f.requests.take()
	assertLines(t, "second apply", f.apply(strings.ReplaceAll(text, `"1"`, `"2"`)), []string{"ConfigMap/one unchanged"})
	assertLines(t, "requests", f.verbs(), nil)
	assertLines(t, "removed field", f.apply(strings.ReplaceAll(text, `{a: "1"}`, `{}`)),
		[]string{"ConfigMap/one configured"})
	if got := f.get(configMaps, "one").Object["data"]; got != nil {
		t.Errorf("data is %v", got)
	}
	labels := f.get(configMaps, "one").GetLabels()
	if labels[group+"/name"] != "app" || labels[group+"/namespace"] != f.ns {
		t.Errorf("labels are %v", labels)
	}
}

// verbs returns the verbs of the requests for namespaced objects since the last call.
func (f *fixture) verbs() []string {
	var out []string
	for _, l := range f.requests.take() {
		if strings.Contains(l, "/namespaces/") {
			verb, _, _ := strings.Cut(l, " /")
			out = append(out, verb)
		}
	}
	return out
}

func TestInventoryIsSavedBeforeObjectsAreCreated(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.apply(f.cm("a") + "---\n" + f.cm("b"))
	if len(f.saved) != 1 || len(f.saved[0]) != 2 {
		t.Fatalf("saved %v", f.saved)
	}
	f.apply(f.cm("a"))
	if len(f.saved) != 1 {
		t.Errorf("saved %v although no object is new", f.saved)
	}
	f.apply(f.cm("c"))
	if len(f.saved) != 2 || !f.saved[1].Has(Ref{Kind: "ConfigMap", Namespace: f.ns, Name: "a"}.Entry()) ||
		len(f.saved[1]) != 2 {
		t.Errorf("saved %v, want a and c", f.saved)
	}
	req := f.request(f.cm("d"))
	req.SaveInventory = func(Inventory) error { return fmt.Errorf("the status cannot be written") }
	if _, err := f.try(req); err == nil || f.has(configMaps, f.ns, "d") {
		t.Errorf("created although the inventory was not saved: %v", err)
	}
}

func (f *fixture) cm(name string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: %s}\ndata: {a: \"1\"}\n",
		name, f.ns)
}

func TestUnchangedObjectsNeedNoRequests(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var docs []string
	for n := range 500 {
		docs = append(docs, f.cm(fmt.Sprintf("c%03d", n)))
	}
	text := strings.Join(docs, "---\n")
	if got := f.apply(text); len(got) != 500 {
		t.Fatalf("%d changes", len(got))
	}
	f.waitSynced()
	f.waitObserved(configMaps, "c499")
	f.requests.take()
	before := f.requests.total.Load()
	for range 10 {
		for _, change := range f.apply(text) {
			if !strings.HasSuffix(change, " unchanged") {
				t.Fatal(change)
			}
		}
	}
	if n := f.requests.total.Load() - before; n != 0 {
		t.Errorf("%d requests: %v", n, f.requests.take())
	}

	// After a restart all objects are compared with one list. A full comparison dry-runs each.
	restarted := f.restart()
	restarted.apply(text)
	if count := restarted.requests.count(); count["DRY PATCH"] != 0 || count["PATCH"] != 0 || count["GET"] > 5 {
		t.Errorf("requests after a restart: %v", count)
	}
	full := f.restart()
	req := full.request(text)
	req.Resync = true
	full.do(req)
	if count := full.requests.count(); count["DRY PATCH"] != 500 || count["PATCH"] != 0 || count["GET"] > 5 {
		t.Errorf("requests of a full comparison: %v", count)
	}
}

// restart returns the same owner on a new cluster, as after a restart of the process.
func (f *fixture) restart() *fixture {
	f.t.Helper()
	next := newFixture(f.t)
	next.ns, next.owner, next.inventory = f.ns, f.owner, f.inventory
	return next
}

func TestResyncComparesAllObjects(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.apply(drifting)
	f.waitSynced()
	req := f.request(drifting)
	req.Resync = true
	for _, change := range f.do(req) {
		if !strings.HasSuffix(change, " unchanged") {
			t.Error(change)
		}
	}
	for _, l := range f.requests.take() {
		if strings.HasPrefix(l, "PATCH") {
			t.Errorf("unexpected write: %s", l)
		}
	}
}

var refusedObjects = map[string]struct {
	object string
	want   []string // in the error
}{
	"invalid value": {
		object: "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: bad, namespace: %s}\n" +
			"spec: {replicas: -1, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: " +
			"{containers: [{name: c, image: i}]}}}",
		want: []string{"Deployment/%s/bad", "spec.replicas: Invalid value: -1: must be greater than or equal to 0"},
	},
	"unknown field": {
		object: "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: bad, namespace: %s}\n" +
			"spec: {replica: 1, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: " +
			"{containers: [{name: c, image: i}]}}}",
		want: []string{"Deployment/%s/bad", ".spec.replica: field not declared in schema"},
	},
	"unknown field of a kind that is created without a dry-run": {
		object: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bad, namespace: %s}\ndat: {k: v}",
		want:   []string{"ConfigMap/%s/bad", ".dat: field not declared in schema"},
	},
	"two variables of a name": {
		object: "apiVersion: v1\nkind: Pod\nmetadata: {name: bad, namespace: %s}\nspec: {containers: [{name: c, " +
			"image: i, env: [{name: A, value: \"1\"}, {name: A, value: \"2\"}]}]}",
		want: []string{"Pod/%s/bad", `duplicate entries for key [name="A"]`,
			"Remove one of the entries of that name: server-side apply needs different names"},
	},
	"kind not served": {
		object: "apiVersion: example.com/v1\nkind: Gadget\nmetadata: {name: bad, namespace: %s}",
		want: []string{"Gadget/%s/bad in file-of-bad.yaml", "does not serve kind Gadget of example.com/v1",
			"dependsOn"},
	},
	"version not served": {
		object: "apiVersion: apps/v1beta1\nkind: Deployment\nmetadata: {name: bad, namespace: %s}",
		want: []string{"Deployment/%s/bad", "does not serve kind Deployment of apps/v1beta1. It serves " +
			"apps/v1: use that version"},
	},
	"same hint for two objects": {
		object: "apiVersion: example.com/v1\nkind: Gadget\nmetadata: {name: bad, namespace: %s}\n---\n" +
			"apiVersion: example.com/v1\nkind: Gadget\nmetadata: {name: worse, namespace: %s}",
		want: []string{"Gadget of example.com/v1; Gadget/%s/worse", "Gadget of example.com/v1. Install"},
	},
	"missing namespace": {
		object: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bad, namespace: nowhere}",
		want:   []string{"ConfigMap/nowhere/bad", `namespaces "nowhere" not found`, "Declare the Namespace"},
	},
	"duplicate object": {
		object: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: good, namespace: %s}",
		want:   []string{"ConfigMap/%s/good is declared twice"},
	},
	"no name": {
		object: "apiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: %s}",
		want:   []string{"ConfigMap/%s/", "metadata.name not specified. Give it a metadata.name"},
	},
}

func TestRefusedObjectLeavesClusterUnchanged(t *testing.T) {
	t.Parallel()
	for name, c := range refusedObjects {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			req := f.request(f.cm("good") + "\n---\n" + c.object)
			req.Origin = func(o *unstructured.Unstructured) string { return "file-of-" + o.GetName() + ".yaml" }
			result, err := f.try(req)
			if err == nil {
				t.Fatal("applied")
			}
			if fault.Reason(err, "") != meta.ReconciliationFailedReason {
				t.Errorf("reason %s", fault.Reason(err, ""))
			}
			for _, s := range c.want {
				if s = strings.ReplaceAll(s, "%s", f.ns); !strings.Contains(err.Error(), s) {
					t.Errorf("%q does not contain %q", err, s)
				}
			}
			if result == nil || len(result.Changes) != 0 ||
				len(f.saved) > 0 && len(f.saved[len(f.saved)-1]) > 0 || f.has(configMaps, f.ns, "good") {
				t.Errorf("the cluster was changed: %v", result)
			}
		})
	}
}

func TestErrorNamesAllRefusedObjects(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	bad := "apiVersion: v1\nkind: Service\nmetadata: {name: %d, namespace: %s}\nspec: {ports: [{port: 0}]}"
	_, err := f.try(f.request(strings.ReplaceAll(bad, "%d", "s1") + "\n---\n" + strings.ReplaceAll(bad, "%d", "s2")))
	for _, s := range []string{"2 objects refused, nothing was changed", "Service/" + f.ns + "/s1", "Service/" + f.ns +
		"/s2", "spec.ports[0].port"} {
		if err == nil || !strings.Contains(err.Error(), s) {
			t.Errorf("error %v does not contain %q", err, s)
		}
	}
}

const job = `apiVersion: batch/v1
kind: Job
metadata: {name: job, namespace: %s}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: "i:1"}]}}}
`

func TestImmutableFieldsNeedForce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.apply(job)
	before := f.get(jobs, "job").GetUID()
	changed := strings.ReplaceAll(job, "i:1", "i:2")

	_, err := f.try(f.request(changed))
	for _, s := range []string{"Job/" + f.ns + "/job", "spec.template", "immutable", "spec.force", group +
		"/force: enabled"} {
		if err == nil || !strings.Contains(err.Error(), s) {
			t.Errorf("error %v does not contain %q", err, s)
		}
	}
	if err != nil && len(err.Error()) > 600 {
		t.Errorf("error is too long: %s", err)
	}
	if f.get(jobs, "job").GetUID() != before {
		t.Fatal("re-created without force")
	}

	req := f.request(strings.ReplaceAll(changed, `"i:2"`, `""`))
	req.Force = true
	if _, err := f.try(req); err == nil || f.get(jobs, "job").GetUID() != before {
		t.Fatalf("an object that cannot be created was deleted: %v", err)
	}

	req = f.request(changed)
	req.Force = true
	assertLines(t, "with force", f.do(req), []string{"Job/job created"})
	forced := f.get(jobs, "job").GetUID()
	if forced == before {
		t.Error("not re-created")
	}

	annotated := strings.ReplaceAll(strings.ReplaceAll(job, "i:1", "i:3"), "{name: job,", "{name: job, annotations: {"+
		group+"/force: Enabled},")
	assertLines(t, "with the annotation", f.apply(annotated), []string{"Job/job created"})
	if f.get(jobs, "job").GetUID() == forced {
		t.Error("not re-created")
	}
}

func TestErrorsContainNoSecretValues(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for name, body := range map[string]string{
		"wrong type":       "data: {password: 123454321}",
		"invalid base64":   "data: {password: hunter2-hunter2}",
		"number":           "stringData: {password: 123454321}",
		"invalid key":      "stringData: {\"pass word\": hunter2-hunter2}",
		"immutable Secret": "immutable: true\nstringData: {password: hunter2-hunter2}",
	} {
		if strings.HasPrefix(body, "immutable") {
			f.apply("apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: %s}\nimmutable: true\n" +
				"stringData: {password: other}")
		}
		_, err := f.try(f.request("apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: %s}\n" + body))
		if err == nil {
			t.Errorf("%s: applied", name)
			continue
		}
		for _, s := range []string{"hunter2", "123454321", "aHVudGVy"} {
			if strings.Contains(err.Error(), s) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestDriftOfStringDataIsCorrected(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	text := "apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: %s}\nstringData: {password: x}"
	f.apply(text)
	f.waitSynced()
	assertLines(t, "second apply", f.apply(text), []string{"Secret/s unchanged"})
	if err := patched(types.MergePatchType, "other", `{"data":{"password":"eXl5"}}`)(context.Background(),
		f.client(secrets, f.ns), "s"); err != nil {
		t.Fatal(err)
	}
	f.waitDrift(f.owner)
	f.apply(text)
	if got := f.get(secrets, "s").Object["data"].(map[string]any)["password"]; got != "eA==" {
		t.Errorf("password is %v", got)
	}
}

func TestServerWarningsAreReturned(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	result, err := f.try(f.request("apiVersion: v1\nkind: Endpoints\nmetadata: {name: old, namespace: %s}"))
	if err != nil {
		t.Fatal(err)
	}
	if len(result.Warnings) != 1 || !strings.Contains(result.Warnings[0], "deprecated") {
		t.Errorf("warnings %q", result.Warnings)
	}
}
