package cli

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/cluster/risk"
	"github.com/sluice-gitops/sluice/internal/review/preview"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

var (
	previewCommits = flag.Int("preview.commits", 12, "commits that TestPreviewIsTrue previews and lands")
	previewSeed    = flag.Uint64("preview.seed", 1, "seed of the commits of TestPreviewIsTrue")
)

// fleetTest is a repository of generated commits, and the cluster that applies it.
type fleetTest struct {
	t         *testing.T
	client    client.Client
	git       *testenv.Git
	namespace string
	random    *rand.Rand
	files     map[string]string
	pending   map[string]string // files of the next commit
	next      int               // number for new names
}

// TestPreviewIsTrue previews generated commits, lands each one, and compares what the preview said with what changed in
// the cluster, and with what the audit log of the API server says was applied.
func TestPreviewIsTrue(t *testing.T) {
	c, namespace := withControllers(t)
	f := newFleet(t, c, namespace)
	defer f.remove()
	edits := f.edits()
	names := slices.Sorted(maps.Keys(edits))
	for n := range *previewCommits {
		name := names[n%len(names)]
		if n >= len(names) {
			name = names[f.random.IntN(len(names))]
		}
		if len(f.apps()) < 2 {
			name = "add an app"
		}
		edits[name]()
		f.land(fmt.Sprintf("commit %d (%s)", n, name))
		if t.Failed() {
			return
		}
	}
}

func (f *fleetTest) config(name, extra, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s%s}\ndata: {a: \"%s\"}\n", name,
		extra, value)
}

func (f *fleetTest) kustomization(name, path, more string) string {
	return fmt.Sprintf("apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: %s}\nspec:\n"+
		"  interval: 1h\n  retryInterval: 1s\n  path: %s\n  prune: true\n  force: true\n  targetNamespace: %s\n"+
		"  sourceRef: {kind: GitRepository, name: fleet}\n%s", name, path, f.namespace, more)
}

const fromVariables = "  postBuild: {substituteFrom: [{kind: ConfigMap, name: vars}], substitute: {own: \"1\"}}\n"

func newFleet(t *testing.T, c client.Client, namespace string) *fleetTest {
	t.Helper()
	f := &fleetTest{t: t, client: c, git: testenv.NewGit(t), namespace: namespace,
		random: rand.New(rand.NewPCG(*previewSeed, 2)), pending: map[string]string{}}
	f.files = map[string]string{
		"clusters/vars.yaml": f.config("vars", ", labels: {reconcile.fluxcd.io/watch: Enabled}", "1"),
		"base/base.yaml":     f.config("base", "", "1"),
		"base/secret.yaml":   "apiVersion: v1\nkind: Secret\nmetadata: {name: login}\nstringData: {a: \"1\"}\n",
		"base/settings.env":  "a: \"1\"\n",
		"base/kustomization.yaml": "resources: [base.yaml, secret.yaml]\n" +
			"configMapGenerator: [{name: settings, files: [settings.env]}]\n",
		"charts/web/Chart.yaml":  "apiVersion: v2\nname: web\nversion: 1.0.0\n",
		"charts/web/values.yaml": "a: \"1\"\n",
		"charts/web/templates/c.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: " +
			"{name: {{ .Values.name | default \"release\" }}}\n" +
			"data: {a: \"{{ .Values.a }}\", b: \"1\"}\n",
		"clusters/release.yaml": "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: web}\n" +
			"spec:\n  interval: 1h\n  chart: {spec: {chart: charts/web, reconcileStrategy: Revision, " +
			"sourceRef: {kind: GitRepository, name: fleet}}}\n  values: {a: \"1\"}\n",
	}
	f.files["clusters/steady.yaml"] = strings.NewReplacer("name: web", "name: steady",
		"reconcileStrategy: Revision, ", "", "values: {",
		"values: {name: steady, ").Replace(f.files["clusters/release.yaml"])
	for range 4 {
		f.addApp()
	}
	maps.Copy(f.files, f.pending)
	f.git.Commit("fleet", f.files)
	f.pending = map[string]string{}
	at(t, "create", "source", "git", "fleet", "--url", f.git.URL+"/fleet.git", "--branch", "main", "-n", namespace).
		wants(t, exitOK)
	at(t, "create", "ks", "root", "--source", "GitRepository/fleet", "--path", "./clusters", "--prune",
		"--target-namespace", namespace, "--interval", "1h", "-n", namespace).wants(t, exitOK)
	testenv.Eventually(t, "the first revision is applied", f.settled)
	return f
}

func (f *fleetTest) remove() {
	at(f.t, "delete", "ks", "root", "--silent", "-n", f.namespace)
	at(f.t, "delete", "source", "git", "fleet", "--silent", "-n", f.namespace)
}

func (f *fleetTest) apps() []string {
	var out []string
	for name := range f.files {
		if app, ok := strings.CutPrefix(name, "clusters/app"); ok {
			out = append(out, "app"+strings.TrimSuffix(app, ".yaml"))
		}
	}
	slices.Sort(out)
	return out
}

func (f *fleetTest) anyApp() string {
	apps := f.apps()
	return apps[f.random.IntN(len(apps))]
}

// anyFile returns a file of an app whose name ends like this.
func (f *fleetTest) anyFile(suffix string) string {
	var found []string
	for name := range f.files {
		if strings.HasPrefix(name, "apps/") && strings.HasSuffix(name, suffix) {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found[f.random.IntN(len(found))]
}

// addApp adds a Kustomization: an overlay of the shared base, with a ConfigMap of its own that uses variables.
func (f *fleetTest) addApp() {
	f.next++
	name := fmt.Sprintf("app%d", f.next)
	f.pending["clusters/"+name+".yaml"] = f.kustomization(name, "./apps/"+name, fromVariables)
	f.pending["apps/"+name+"/own.yaml"] = f.config("own", "", "${a}-${own}")
	f.pending["apps/"+name+"/frozen.yaml"] = f.config("frozen", "", "1") + "immutable: true\n"
	f.pending["apps/"+name+"/kustomization.yaml"] = "namePrefix: " + name + "-\n" +
		"resources: [../../base, own.yaml, frozen.yaml]\n"
}

// replace changes the text of a file.
func (f *fleetTest) replace(file, old, now string) {
	f.pending[file] = strings.Replace(f.files[file], old, now, 1)
}

// bump changes the number in a value.
func (f *fleetTest) bump(file string) {
	f.next++
	before, after, _ := strings.Cut(f.files[file], "a: \"")
	_, after, _ = strings.Cut(after, "\"")
	f.pending[file] = before + fmt.Sprintf("a: \"%d\"", f.next) + after
}

func (f *fleetTest) removeApp(name string) {
	for file := range f.files {
		if file == "clusters/"+name+".yaml" || strings.HasPrefix(file, "apps/"+name+"/") {
			f.pending[file] = testenv.Delete
		}
	}
}

// edits are the kinds of commits.
func (f *fleetTest) edits() map[string]func() {
	return map[string]func(){
		"add an app":           f.addApp,
		"change a base":        func() { f.bump("base/base.yaml") },
		"change a file":        func() { f.bump(f.anyFile("own.yaml")) },
		"change a variable":    func() { f.bump("clusters/vars.yaml") },
		"change an immutable":  func() { f.bump(f.anyFile("frozen.yaml")) },
		"change a chart":       func() { f.replace("charts/web/templates/c.yaml", "b: \"", "b: \"1") },
		"change steady values": func() { f.bump("clusters/steady.yaml") },
		"change chart version": func() { f.replace("charts/web/Chart.yaml", "version: 1", "version: 11") },
		"change helm values":   func() { f.bump("clusters/release.yaml") },
		"change nothing":       func() { f.next++; f.pending["README.md"] = fmt.Sprint(f.next) },
		"delete an app":        func() { f.removeApp(f.anyApp()); f.addApp() },
		"rename an object":     f.renameObject,
		"move an object":       f.moveObject,
		"change substitutions": func() { f.replace("clusters/"+f.anyApp()+".yaml", "own: \"", "own: \"1") },
		"change a generator":   func() { f.bump("base/settings.env") },
		"change a secret":      func() { f.bump("base/secret.yaml") },
		"change a patch":       f.patchBase,
	}
}

// patchBase adds a patch of the shared base to an overlay, or removes it.
func (f *fleetTest) patchBase() {
	file := "apps/" + f.anyApp() + "/kustomization.yaml"
	f.next++
	if before, _, ok := strings.Cut(f.files[file], "commonAnnotations"); ok {
		f.pending[file] = before
		return
	}
	f.pending[file] = f.files[file] + fmt.Sprintf("commonAnnotations: {changed: \"%d\"}\n", f.next)
}

func (f *fleetTest) renameObject() {
	f.next++
	file := f.anyFile("own.yaml")
	_, after, _ := strings.Cut(f.files[file], "}")
	f.pending[file] = fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: own%d}%s", f.next, after)
}

// moveObject moves the objects of one app to another one, which keeps their names, and removes the first app.
func (f *fleetTest) moveObject() {
	apps := f.apps()
	from := f.random.IntN(len(apps))
	to := (from + 1) % len(apps)
	f.removeApp(apps[from])
	var resources []string
	for _, app := range []string{apps[from], apps[to]} {
		prefix := ""
		if strings.Contains(f.files["apps/"+app+"/kustomization.yaml"], "namePrefix") {
			prefix = app + "-"
		}
		for file, content := range f.files {
			rest, ok := strings.CutPrefix(file, "apps/"+app+"/")
			if !ok || rest == "kustomization.yaml" {
				continue
			}
			f.pending[file] = testenv.Delete
			resources = append(resources, prefix+rest)
			f.pending["apps/"+apps[to]+"/"+prefix+rest] = strings.Replace(content, "name: ", "name: "+prefix, 1)
		}
	}
	slices.Sort(resources)
	f.pending["apps/"+apps[to]+"/kustomization.yaml"] = "resources: [" + strings.Join(resources, ", ") + "]\n"
}

// land previews the pending files, lands them, and waits until the cluster changed as the preview says.
func (f *fleetTest) land(what string) {
	f.t.Helper()
	f.git.SetRef("fleet", "refs/heads/next", strings.TrimSpace(f.git.Run("fleet", "rev-parse", "refs/heads/main")))
	f.git.CommitTo("fleet", "refs/heads/next", f.pending)
	before, log := f.objects(), testenv.NewAuditLog(f.t)
	r := at(f.t, "preview", "--clone", filepath.Join(f.git.Root, "fleet.git"), "--from", "main", "--to", "next",
		"--source", "GitRepository/"+f.namespace+"/fleet", "-o", "json")
	if r.code == exitUsage {
		f.t.Fatalf("%s: the preview failed: %s%s", what, r.err, r.out)
	}
	var result preview.Result
	if err := json.Unmarshal([]byte(r.out), &result); err != nil {
		f.t.Fatalf("%s: %v: %s", what, err, r.out)
	}
	want := map[string]bool{}
	for _, o := range result.Owners {
		for _, object := range o.Objects {
			want[fmt.Sprintf("%s %s/%s", object.Action, object.Kind, object.Name)] = true
		}
	}
	f.git.SetRef("fleet", "refs/heads/main", strings.TrimSpace(f.git.Run("fleet", "rev-parse", "refs/heads/next")))
	for file, content := range f.pending {
		if f.files[file] = content; content == testenv.Delete {
			delete(f.files, file)
		}
	}
	f.pending = map[string]string{}
	at(f.t, "reconcile", "source", "git", "fleet", "-n", f.namespace).wants(f.t, exitOK)
	testenv.Eventually(f.t, what+": the cluster changes as the preview said", func() error {
		if err := f.settled(); err != nil {
			return err
		}
		if got := changesOf(before, f.objects()); !maps.Equal(got, want) {
			return fmt.Errorf("changed %q, the preview said %q", slices.Sorted(maps.Keys(got)),
				slices.Sorted(maps.Keys(want)))
		}
		if got := applied(f.t, log, f.namespace); !maps.Equal(got, want) {
			return fmt.Errorf("the audit log has %q, the preview said %q", slices.Sorted(maps.Keys(got)),
				slices.Sorted(maps.Keys(want)))
		}
		return nil
	})
}

// settled returns an error until all objects of the repository are Ready at its revision.
func (f *fleetTest) settled() error {
	head := strings.TrimSpace(f.git.Run("fleet", "rev-parse", "refs/heads/main"))
	var list kustomizev1.KustomizationList
	if err := f.client.List(context.Background(), &list, client.InNamespace(f.namespace)); err != nil {
		return err
	}
	if want := len(f.apps()) + 1; len(list.Items) != want {
		return fmt.Errorf("%d Kustomizations, want %d", len(list.Items), want)
	}
	for _, k := range list.Items {
		if !strings.HasSuffix(k.Status.LastAppliedRevision, head) || k.Status.ObservedGeneration != k.Generation {
			return fmt.Errorf("Kustomization %s is at %s: %v", k.Name, k.Status.LastAppliedRevision,
				k.Status.Conditions)
		}
	}
	for _, name := range []string{"release", "steady"} {
		var release corev1.ConfigMap
		if err := f.client.Get(context.Background(), client.ObjectKey{Namespace: f.namespace, Name: name},
			&release); err != nil {
			return err
		}
	}
	return nil
}

// objects returns the objects that the repository declares, by kind and name: UID and content without status.
func (f *fleetTest) objects() map[string][2]string {
	f.t.Helper()
	out := map[string][2]string{}
	for _, kind := range []string{"v1/ConfigMap", "v1/Secret", "kustomize.toolkit.fluxcd.io/v1/Kustomization",
		"helm.toolkit.fluxcd.io/v2/HelmRelease"} {
		at := strings.LastIndexByte(kind, '/')
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(kind[:at])
		list.SetKind(kind[at+1:] + "List")
		if err := f.client.List(f.t.Context(), list, client.InNamespace(f.namespace)); err != nil {
			f.t.Fatal(err)
		}
		for _, o := range list.Items {
			if o.GetName() == "kube-root-ca.crt" || o.GetName() == "root" ||
				strings.HasPrefix(o.GetName(), "sh.helm.release.") {
				continue
			}
			uid := string(o.GetUID())
			delete(o.Object, "status")
			name, labels, annotations := o.GetName(), o.GetLabels(), o.GetAnnotations()["changed"]
			o.Object["metadata"] = nil
			content, err := json.Marshal([]any{o.Object, labels, annotations})
			if err != nil {
				f.t.Fatal(err)
			}
			out[kind[at+1:]+"/"+name] = [2]string{uid, string(content)}
		}
	}
	return out
}

// changesOf returns what differs between two states of the cluster, in the words of a preview.
func changesOf(before, after map[string][2]string) map[string]bool {
	out := map[string]bool{}
	for name, was := range before {
		switch is, exists := after[name]; {
		case !exists:
			out[fmt.Sprintf("%s %s", risk.Deleted, name)] = true
		case is[0] != was[0]:
			out[fmt.Sprintf("%s %s", risk.Recreated, name)] = true
		case is[1] != was[1]:
			out[fmt.Sprintf("%s %s", risk.Configured, name)] = true
		}
	}
	for name := range after {
		if _, existed := before[name]; !existed {
			out[fmt.Sprintf("%s %s", risk.Created, name)] = true
		}
	}
	return out
}
