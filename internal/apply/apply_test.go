package apply

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/fault"
)

const one = `apiVersion: v1
kind: ConfigMap
metadata: {name: one}
data: {a: "1"}
`

func TestApplyFollowsTheDeclarations(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	text := strings.ReplaceAll(one, "{name: one}", "{name: one, namespace: %s}")
	same(t, "first", f.apply(text), []string{"ConfigMap/one created"})
	same(t, "requests", f.verbs(), []string{"PATCH"}) // nothing comes of a ConfigMap by itself: it needs no dry-run
	f.watched()

	same(t, "again", f.apply(text), []string{"ConfigMap/one unchanged"})
	same(t, "requests", f.verbs(), nil)

	same(t, "changed", f.apply(strings.ReplaceAll(text, `"1"`, `"2"`)), []string{"ConfigMap/one configured"})
	// the only one that changes stays as it is when it is refused
	same(t, "requests", f.verbs(), []string{"GET", "PATCH"})
	if got := f.get(configMaps, "one").Object["data"].(map[string]any)["a"]; got != "2" {
		t.Errorf("data is %v", got)
	}
	f.seen(configMaps, "one")
	f.requests.take()
	same(t, "again", f.apply(strings.ReplaceAll(text, `"1"`, `"2"`)), []string{"ConfigMap/one unchanged"})
	same(t, "requests", f.verbs(), nil)
	same(t, "a field is no longer declared", f.apply(strings.ReplaceAll(text, `{a: "1"}`, `{}`)),
		[]string{"ConfigMap/one configured"})
	if got := f.get(configMaps, "one").Object["data"]; got != nil {
		t.Errorf("data is %v", got)
	}
	labels := f.get(configMaps, "one").GetLabels()
	if labels[group+"/name"] != "app" || labels[group+"/namespace"] != f.ns {
		t.Errorf("labels are %v", labels)
	}
}

// verbs returns the verbs asked since the last time.
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

func TestIntentIsNotedBeforeCreating(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.apply(f.cm("a") + "---\n" + f.cm("b"))
	if len(f.intended) != 1 || len(f.intended[0]) != 2 {
		t.Fatalf("intended %v", f.intended)
	}
	f.apply(f.cm("a"))
	if len(f.intended) != 1 {
		t.Errorf("intended %v although nothing is new", f.intended)
	}
	f.apply(f.cm("c"))
	if len(f.intended) != 2 || !f.intended[1].Has(Ref{Kind: "ConfigMap", Namespace: f.ns, Name: "a"}.Entry()) ||
		len(f.intended[1]) != 2 {
		t.Errorf("intended %v, want a and c", f.intended)
	}
	req := f.request(f.cm("d"))
	req.SaveInventory = func(Inventory) error { return fmt.Errorf("the status cannot be written") }
	if _, err := f.try(req); err == nil || f.has(configMaps, f.ns, "d") {
		t.Errorf("created although the intent was not noted: %v", err)
	}
}

func (f *fixture) cm(name string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: %s}\ndata: {a: \"1\"}\n",
		name, f.ns)
}

func TestManyUnchangedObjectsCostNothing(t *testing.T) {
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
	f.watched()
	f.seen(configMaps, "c499")
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

	// After a start nothing is known: each is dry-run, and one list tells that there is nothing to write.
	restarted := f.restart()
	restarted.apply(text)
	count := map[string]int{}
	for _, l := range restarted.requests.take() {
		verb, _, _ := strings.Cut(l, " /")
		count[verb]++
	}
	if count["DRY PATCH"] != 500 || count["PATCH"] != 0 || count["GET"] > 5 {
		t.Errorf("requests after a start: %v", count)
	}
}

// restart returns the same owner in a new process.
func (f *fixture) restart() *fixture {
	f.t.Helper()
	next := newFixture(f.t)
	next.ns, next.owner, next.inventory = f.ns, f.owner, f.inventory
	return next
}

func TestResyncComparesWhatDidNotMove(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.apply(drifting)
	f.watched()
	req := f.request(drifting)
	req.Resync = true
	for _, change := range f.do(req) {
		if !strings.HasSuffix(change, " unchanged") {
			t.Error(change)
		}
	}
	for _, l := range f.requests.take() {
		if strings.HasPrefix(l, "PATCH") {
			t.Errorf("written: %s", l)
		}
	}
}

func TestRefusedObjectsLeaveTheClusterAsItWas(t *testing.T) {
	for name, c := range map[string]struct {
		object string
		says   []string
	}{
		"an invalid field": {
			"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: bad, namespace: %s}\n" +
				"spec: {replicas: -1, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: " +
				"{containers: [{name: c, image: i}]}}}",
			[]string{"Deployment/%s/bad", "spec.replicas: Invalid value: -1: must be greater than or equal to 0"},
		},
		"a field that is not known": {
			"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: bad, namespace: %s}\n" +
				"spec: {replica: 1, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: " +
				"{containers: [{name: c, image: i}]}}}",
			[]string{"Deployment/%s/bad", ".spec.replica: field not declared in schema"},
		},
		"a kind that is not served": {
			"apiVersion: example.com/v1\nkind: Gadget\nmetadata: {name: bad, namespace: %s}",
			[]string{"Gadget/%s/bad in file-of-bad.yaml", "does not serve kind Gadget of example.com/v1", "dependsOn"},
		},
		"a version that is not served": {
			"apiVersion: apps/v1beta1\nkind: Deployment\nmetadata: {name: bad, namespace: %s}",
			[]string{"Deployment/%s/bad", "does not serve kind Deployment of apps/v1beta1. It serves apps/v1"},
		},
		"what is to be done is told once": {
			"apiVersion: example.com/v1\nkind: Gadget\nmetadata: {name: bad, namespace: %s}\n---\n" +
				"apiVersion: example.com/v1\nkind: Gadget\nmetadata: {name: worse, namespace: %s}",
			[]string{"Gadget of example.com/v1; Gadget/%s/worse", "Gadget of example.com/v1. Install"},
		},
		"a namespace that is not there": {
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bad, namespace: nowhere}",
			[]string{"ConfigMap/nowhere/bad", `namespaces "nowhere" not found`, "Declare the Namespace"},
		},
		"an object that is declared twice": {
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: good, namespace: %s}",
			[]string{"ConfigMap/%s/good is declared twice"},
		},
		"an object without a name": {
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: %s}",
			[]string{"ConfigMap/%s/", "no metadata.name"},
		},
	} {
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
			for _, s := range c.says {
				if s = strings.ReplaceAll(s, "%s", f.ns); !strings.Contains(err.Error(), s) {
					t.Errorf("%q does not say %q", err, s)
				}
			}
			if result == nil || len(result.Changes) != 0 ||
				len(f.intended) > 0 && len(f.intended[len(f.intended)-1]) > 0 || f.has(configMaps, f.ns, "good") {
				t.Errorf("the cluster was changed: %v", result)
			}
		})
	}
}

func TestAllRefusalsAreToldAtOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	bad := "apiVersion: v1\nkind: Service\nmetadata: {name: %d, namespace: %s}\nspec: {ports: [{port: 0}]}"
	_, err := f.try(f.request(strings.ReplaceAll(bad, "%d", "s1") + "\n---\n" + strings.ReplaceAll(bad, "%d", "s2")))
	for _, s := range []string{"2 objects refused, nothing was changed", "Service/" + f.ns + "/s1", "Service/" + f.ns +
		"/s2", "spec.ports[0].port"} {
		if err == nil || !strings.Contains(err.Error(), s) {
			t.Errorf("%v does not say %q", err, s)
		}
	}
}

const job = `apiVersion: batch/v1
kind: Job
metadata: {name: job, namespace: %s}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: "i:1"}]}}}
`

func TestImmutableFields(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.apply(job)
	before := f.get(jobs, "job").GetUID()
	changed := strings.ReplaceAll(job, "i:1", "i:2")

	_, err := f.try(f.request(changed))
	for _, s := range []string{"Job/" + f.ns + "/job", "spec.template", "immutable", "spec.force", group +
		"/force: enabled"} {
		if err == nil || !strings.Contains(err.Error(), s) {
			t.Errorf("%v does not say %q", err, s)
		}
	}
	if err != nil && len(err.Error()) > 600 {
		t.Errorf("too long to read: %s", err)
	}
	if f.get(jobs, "job").GetUID() != before {
		t.Fatal("re-created without force")
	}

	req := f.request(strings.ReplaceAll(changed, `"i:2"`, `""`))
	req.Force = true
	if _, err := f.try(req); err == nil || f.get(jobs, "job").GetUID() != before {
		t.Fatalf("what cannot be created was deleted: %v", err)
	}

	req = f.request(changed)
	req.Force = true
	same(t, "with force", f.do(req), []string{"Job/job created"})
	forced := f.get(jobs, "job").GetUID()
	if forced == before {
		t.Error("not re-created")
	}

	annotated := strings.ReplaceAll(strings.ReplaceAll(job, "i:1", "i:3"), "{name: job,", "{name: job, annotations: {"+
		group+"/force: Enabled},")
	same(t, "with the annotation", f.apply(annotated), []string{"Job/job created"})
	if f.get(jobs, "job").GetUID() == forced {
		t.Error("not re-created")
	}
}

func TestSecretValuesAreNotTold(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for name, body := range map[string]string{
		"a value of the wrong type": "data: {password: 123454321}",
		"not base64":                "data: {password: hunter2-hunter2}",
		"a plain number":            "stringData: {password: 123454321}",
		"a wrong key":               "stringData: {\"pass word\": hunter2-hunter2}",
		"a change of what is fixed": "immutable: true\nstringData: {password: hunter2-hunter2}",
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

func TestSecretsInPlainTextAreWatchedLikeAnyOther(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	text := "apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: %s}\nstringData: {password: x}"
	f.apply(text)
	f.watched()
	same(t, "again", f.apply(text), []string{"Secret/s unchanged"})
	if err := patched(types.MergePatchType, "other", `{"data":{"password":"eXl5"}}`)(context.Background(),
		f.client(secrets, f.ns), "s"); err != nil {
		t.Fatal(err)
	}
	f.waitWoken(f.owner)
	f.apply(text)
	if got := f.get(secrets, "s").Object["data"].(map[string]any)["password"]; got != "eA==" {
		t.Errorf("password is %v", got)
	}
}

func TestAnnotationsAndLabelsSteer(t *testing.T) {
	for _, where := range []string{"annotations", "labels"} {
		t.Run(where, func(t *testing.T) { steers(t, where) })
	}
}

// steers checks what can be said of an object in its annotations, or in its labels.
func steers(t *testing.T, where string) {
	t.Helper()
	with := func(name, says, data string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: %%s, %s: {%s/%s}}\n"+
			"data: {a: %q}\n", name, where, group, says, data)
	}
	f := newFixture(t)
	ctx := context.Background()
	create := func(name string, says map[string]any) {
		metadata := map[string]any{"name": name, where: says}
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": metadata, "data": map[string]any{"a": "0"}}}
		if _, err := f.client(configMaps, f.ns).
			Create(ctx, o, metav1.CreateOptions{FieldManager: "kubectl-create"}); err != nil {
			t.Fatal(err)
		}
	}
	data := func(name string) any { return f.get(configMaps, name).Object["data"] }
	for _, name := range []string{"ignored", "present", "disabled", "merged", "overridden"} {
		create(name, nil)
	}
	create("live-disabled", map[string]any{group + "/reconcile": "disabled"})
	text := strings.Join([]string{
		with("ignored", "ssa: Ignore", "1"), with("present", "ssa: IfNotPresent", "1"),
		with("absent", "ssa: IfNotPresent", "1"),
		with("disabled", "reconcile: disabled", "1"), with("merged", "ssa: Merge", "1"), f.cm("live-disabled"),
		f.cm("overridden"),
	}, "---\n")
	for _, name := range []string{"merged", "overridden"} {
		if err := patched(types.MergePatchType, "kubectl-edit", `{"data":{"b":"2"}}`)(ctx, f.client(configMaps, f.ns),
			name); err != nil {
			t.Fatal(err)
		}
	}
	same(t, "first", f.apply(text), []string{
		"ConfigMap/absent created", "ConfigMap/disabled skipped", "ConfigMap/ignored skipped",
		"ConfigMap/live-disabled skipped",
		"ConfigMap/merged configured", "ConfigMap/overridden configured", "ConfigMap/present skipped",
	})
	for name, want := range map[string]string{
		"absent": "map[a:1]", "disabled": "map[a:0]", "ignored": "map[a:0]", "live-disabled": "map[a:0]",
		"present": "map[a:0]",
		"merged":  "map[a:1 b:2]", "overridden": "map[a:1]",
	} {
		if got := fmt.Sprint(data(name)); got != want {
			t.Errorf("%s holds %s, want %s", name, got, want)
		}
	}
	f.watched()
	same(t, "again", f.apply(text), []string{
		"ConfigMap/absent unchanged", "ConfigMap/disabled skipped", "ConfigMap/ignored skipped",
		"ConfigMap/live-disabled skipped",
		"ConfigMap/merged unchanged", "ConfigMap/overridden unchanged", "ConfigMap/present skipped",
	})
}

func TestWarningsAreHandedOut(t *testing.T) {
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

func TestAnObjectThatIsLeftAloneForAWhile(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := context.Background()
	text := f.cm("a")
	f.apply(text)
	f.watched()
	annotate := func(value, data string) {
		body := `{"metadata":{"annotations":{"` + group + `/reconcile":` + value + `}},"data":{"a":"` + data + `"}}`
		if err := patched(types.MergePatchType, "person", body)(ctx, f.client(configMaps, f.ns), "a"); err != nil {
			t.Fatal(err)
		}
		f.waitWoken(f.owner)
	}
	annotate(`"disabled"`, "9")
	same(t, "left alone", f.apply(text), []string{"ConfigMap/a skipped"})
	f.seen(configMaps, "a")
	f.requests.take()
	same(t, "again", f.apply(text), []string{"ConfigMap/a skipped"})
	same(t, "requests", f.requests.take(), nil)
	restarted := f.restart()
	same(t, "after a start", restarted.apply(text), []string{"ConfigMap/a skipped"})
	restarted.watched()
	f = restarted
	annotate("null", "9")
	same(t, "no longer", f.apply(text), []string{"ConfigMap/a configured"})
}
