package apply

import (
	"context"
	"maps"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// preview returns the changes of Diff with their diffs.
func (f *fixture) preview(req Request) []string {
	f.t.Helper()
	changes, err := f.Diff(context.Background(), req)
	if err != nil {
		f.t.Fatal(err)
	}
	return withDiffs(changes)
}

func withDiffs(changes []Change) []string {
	var out []string
	for n, line := range describe(changes) {
		out = append(out, line)
		if changes[n].Diff != "" {
			out = append(out, strings.Split(changes[n].Diff, "\n")...)
		}
	}
	return out
}

// assertNoWrites fails if there were writes that are not dry-runs.
func (f *fixture) assertNoWrites() {
	f.t.Helper()
	for _, l := range f.requests.take() {
		if verb, _, _ := strings.Cut(l, " "); verb != "DRY" && verb != "GET" && verb != "WATCH" {
			f.t.Errorf("unexpected write: %s", l)
		}
	}
}

func TestDiffMatchesApply(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	secret := "apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: %s}\nstringData: {password: one}\n"
	text := drifting + "---\n" + f.cm("stays") + "---\n" + f.cm("kept") + "---\n" + f.cm("goes") + "---\n" + secret
	text = strings.Replace(text, "name: kept,", "name: kept, annotations: {"+group+"/prune: disabled},", 1)
	f.apply(text)
	f.waitSynced()
	known := maps.Clone(f.tracked[f.owner])

	changed := strings.NewReplacer("app:1", "app:2", "replicas: 2", "replicas: 3", "password: one", "password: two",
		`b: "2"`, `c: "3"`).Replace(
		drifting + "---\n" + f.cm("stays") + "---\n" + secret + "---\n" + f.cm("comes"))
	want := []string{
		"ConfigMap/comes created", "+ data:", `+   a: "1"`, "+ metadata.labels:", "+   " + group + "/name: app",
		"+   " + group + "/namespace: " + f.ns,
		"ConfigMap/config configured", `- data.b: "2"`, `+ data.c: "3"`,
		"ConfigMap/stays unchanged",
		"Secret/s configured", "~ data.password: *** (before) → *** (after)",
		"Service/service unchanged",
		"Deployment/app configured", "~ spec.replicas: 2 → 3",
		"~ spec.template.spec.containers[name=main].image: app:1 → app:2",
		"ConfigMap/kept skipped", "ConfigMap/goes deleted",
	}
	assertLines(t, "tracked objects", f.preview(f.request(changed)), want)
	f.assertNoWrites()
	f.mu.Lock()
	if !maps.EqualFunc(known, f.tracked[f.owner], func(a, b *trackedObject) bool { return a == b }) {
		t.Error("the tracked objects changed")
	}
	f.mu.Unlock()

	previewAfterRestart(t, f, changed, want)

	req := f.request(changed)
	req.MaxDiffs = 20
	r, err := f.try(req)
	if err != nil {
		t.Fatal(err)
	}
	want = append(want[:1:1], want[6:len(want)-2]...) // created objects have a diff in a preview only
	assertLines(t, "applied", withDiffs(r.Changes), want)
	if got := Summarize(r.Changes).String(); got != "1 created, 3 configured, 2 unchanged" {
		t.Errorf("summary %s", got)
	}
	assertLines(t, "first change", describe(r.Changes[:1]), []string{"ConfigMap/comes created"})
	f.waitObserved(deployments, "app")
	f.waitObserved(configMaps, "config")
	f.requests.take()
	req = f.request(changed)
	assertLines(t, "again", f.preview(req), []string{
		"ConfigMap/comes unchanged", "ConfigMap/config unchanged", "ConfigMap/stays unchanged", "Secret/s unchanged",
		"Service/service unchanged", "Deployment/app unchanged",
	})
}

// previewAfterRestart previews in a new process, which tracks and watches nothing.
func previewAfterRestart(t *testing.T, f *fixture, changed string, want []string) {
	t.Helper()
	restarted := f.restart()
	assertLines(t, "after a restart", restarted.preview(restarted.request(changed)), want)
	restarted.assertNoWrites()
	for key := range restarted.watches.All() {
		t.Errorf("the diff started watch %v", key)
	}
	if len(restarted.tracked) != 0 {
		t.Error("the diff tracks objects")
	}
}

func TestDiffOfDriftKeepsDrift(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.apply(drifting)
	f.waitSynced()
	if err := patched(types.MergePatchType, "other", `{"data":{"a":"9"}}`)(t.Context(), f.client(configMaps, f.ns),
		"config"); err != nil {
		t.Fatal(err)
	}
	f.waitDrift(f.owner)
	f.requests.take()
	for range 2 { // the drift stays known
		assertLines(t, "plan", f.preview(f.request(drifting)),
			[]string{"ConfigMap/config configured", `~ data.a: "9" → "1"`, "Service/service unchanged",
				"Deployment/app unchanged"})
		if !f.Drifted(f.owner) {
			t.Error("no longer drifted")
		}
	}
	f.assertNoWrites()
}

func TestDiffOfObjectsThatDependOnEachOther(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	t.Cleanup(f.pruneAll)
	text := "apiVersion: v1\nkind: Namespace\nmetadata: {name: %s-new}\n---\n" +
		strings.ReplaceAll(f.cm("a"), f.ns, f.ns+"-new") + "---\n" + definition + "---\n" + gadget
	strip := func(lines []string) []string {
		var out []string
		for _, l := range lines {
			if !strings.HasPrefix(l, "+") {
				out = append(out, l)
			}
		}
		return out
	}
	assertLines(t, "first", strip(f.preview(f.request(text))), []string{
		"Namespace/" + f.ns + "-new created", "CustomResourceDefinition/gadgets." + f.ns + ".example.com created",
		"ConfigMap/a created", "Gadget/g created",
	})
	f.assertNoWrites()
	f.apply(text)
	f.waitSynced()

	wider := strings.ReplaceAll(text, "{size: {", "{colour: {type: string}, size: {")
	red := strings.ReplaceAll(wider, "{size: 3}", "{size: 3, colour: red}")
	assertLines(t, "a new field", f.preview(f.request(red)), []string{
		"Namespace/" + f.ns + "-new unchanged",
		"CustomResourceDefinition/gadgets." + f.ns + ".example.com configured",
		"+ spec.versions[name=v1].schema.openAPIV3Schema.properties.spec.properties.colour:", "+   type: string",
		"ConfigMap/a unchanged", "Gadget/g configured", "+ spec.colour: red",
	})
	f.assertNoWrites()
	_, err := f.Diff(t.Context(), f.request(strings.ReplaceAll(text, "size: 3", "size: 11")+"---\n"+
		"apiVersion: v1\nkind: Service\nmetadata: {name: s, namespace: %s-new}\nspec: {ports: [{port: 0}]}"))
	for _, s := range []string{"2 objects refused", "spec.size", "spec.ports[0].port"} {
		if err == nil || !strings.Contains(err.Error(), s) {
			t.Errorf("error %v does not contain %q", err, s)
		}
	}
}

func TestDiffHonorsPolicies(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := t.Context()
	annotated := func(name, annotation string) string {
		return strings.Replace(f.cm(name), "name: "+name+",", "name: "+name+", annotations: {"+group+"/"+annotation+
			"},", 1)
	}
	for _, name := range []string{"ignored", "present", "disabled", "merged", "overridden"} {
		o := f.objects(f.cm(name))[0]
		if _, err := f.client(configMaps, f.ns).
			Create(ctx, o, metav1.CreateOptions{FieldManager: "kubectl-create"}); err != nil {
			t.Fatal(err)
		}
		if err := patched(types.MergePatchType, "kubectl-edit", `{"data":{"b":"2"}}`)(ctx, f.client(configMaps, f.ns),
			name); err != nil {
			t.Fatal(err)
		}
	}
	f.apply(job)
	f.requests.take()
	req := f.request(strings.Join([]string{
		annotated("ignored", "ssa: Ignore"), annotated("present", "ssa: IfNotPresent"),
		annotated("disabled", "reconcile: disabled"),
		annotated("merged", "ssa: Merge"), f.cm("overridden"), strings.ReplaceAll(job, "i:1", "i:2"),
	}, "---\n"))
	req.Force = true
	labels := []string{"+ metadata.labels:", "+   " + group + "/name: app", "+   " + group + "/namespace: " + f.ns}
	var want []string
	want = append(want, "ConfigMap/disabled skipped", "ConfigMap/ignored skipped", "ConfigMap/merged configured",
		"+ metadata.annotations:", "+   "+group+"/ssa: Merge")
	want = append(want, labels...)
	want = append(want, "ConfigMap/overridden configured", `- data.b: "2"`)
	want = append(want, labels...)
	want = append(want, "ConfigMap/present skipped", "Job/job created",
		"~ spec.template.spec.containers[name=c].image: i:1 → i:2")
	assertLines(t, "plan", f.preview(req), want)
	f.assertNoWrites()
}

func TestDiffTakesOverFieldsThatMakeObjectInvalid(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	service := f.objects(drifting)[1]
	f.apply("apiVersion: v1\nkind: Service\nmetadata: {name: service, namespace: %s}\n" +
		"spec: {selector: {app: x}, ports: [{port: 80}]}")
	if err := patched(types.JSONPatchType, "kubectl-edit", `[{"op":"replace","path":"/spec/ports/0/port","value":81}]`)(
		t.Context(), f.client(services, f.ns), service.GetName()); err != nil {
		t.Fatal(err)
	}
	f.waitDrift(f.owner)
	f.requests.take()
	req := f.request("apiVersion: v1\nkind: Service\nmetadata: {name: service, namespace: %s}\n" +
		"spec: {selector: {app: x}, ports: [{port: 80}]}")
	assertLines(t, "plan", f.preview(req), []string{"Service/service configured", "- spec.ports[port=81]:",
		"-   port: 81",
		"-   protocol: TCP", "-   targetPort: 80", "+ spec.ports[port=80]:", "+   port: 80"})
	f.assertNoWrites()
}
