package cli

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/cli/term"
	"github.com/sluice-gitops/sluice/internal/model/lineage"
	"github.com/sluice-gitops/sluice/internal/offline/localbuild"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

const web = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: example.com/web}]}
`

// lineageTest is a namespace with the objects of TestLineageCommands.
type lineageTest struct {
	client            client.Client
	namespace, commit string
	parts             *kustomizev1.Kustomization
}

func (x lineageTest) ask(t *testing.T, line string) result {
	t.Helper()
	return at(t, append(strings.Fields(line), "-n", x.namespace)...)
}

// TestLineageCommands runs the commands that explain objects, with real controllers.
func TestLineageCommands(t *testing.T) {
	c, namespace := withControllers(t)
	git := testenv.NewGit(t)
	kustomization := func(name, source string) *kustomizev1.Kustomization {
		ks := &kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		ks.Spec = kustomizev1.KustomizationSpec{Interval: meta.Duration{Duration: 3600e9}, Prune: true,
			TargetNamespace: namespace}
		ks.Spec.SourceRef.Kind, ks.Spec.SourceRef.Name, _ = strings.Cut(source, "/")
		return ks
	}
	commit := git.Commit("app", map[string]string{
		"clusters/apps.yaml": "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\n" +
			"metadata: {name: apps}\nspec:\n  interval: 1h\n  path: ./apps\n" +
			"  prune: true\n  wait: true\n  targetNamespace: " + namespace +
			"\n  sourceRef: {kind: GitRepository, name: app}\n  postBuild: {substitute: {b: it's, a: plain}}\n",
		"apps/web.yaml":   web,
		"parts/part.yaml": strings.Replace(configMap, "name: app", "name: part", 1) + "\"1\"\n",
	})
	top, parts := kustomization("top", "GitRepository/app"), kustomization("parts", "ExternalArtifact/part")
	top.Spec.Path = "./clusters"
	split := &extensionsv1beta1.ArtifactGenerator{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "split"}}
	split.Spec.Sources = []extensionsv1beta1.SourceReference{{Alias: "app", Kind: "GitRepository", Name: "app"}}
	split.Spec.Artifacts = []extensionsv1beta1.OutputArtifact{{Name: "part",
		Copy: []extensionsv1beta1.CopyOperation{{From: "@app/parts/**", To: "@artifact/"}}}}
	at(t, "create", "source", "git", "app", "--url", git.URL+"/app.git", "--branch", "main", "-n", namespace).
		wants(t, exitOK)
	for _, o := range []client.Object{top, split, parts} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	at(t, "reconcile", "ks", "top", "-n", namespace).wants(t, exitOK)
	at(t, "reconcile", "ks", "apps", "-n", namespace).wants(t, exitOK)
	at(t, "reconcile", "artifact", "generator", "split", "-n", namespace).wants(t, exitOK)
	at(t, "reconcile", "ks", "parts", "-n", namespace).wants(t, exitOK)
	x := lineageTest{client: c, namespace: namespace, commit: commit, parts: parts}

	t.Run("tree", x.tree)

	t.Run("trace", x.trace)

	t.Run("events", x.events)

	t.Run("debug", x.debug)

	t.Run("stats", x.stats)

	for _, line := range []string{"ks parts", "ks top", "artifact generator split", "source git app"} {
		x.ask(t, "delete --silent "+line).wants(t, exitOK)
	}
}

func (x lineageTest) tree(t *testing.T) {
	golden(t, "tree.txt", x.ask(t, "tree ks top").wants(t, exitOK).out)
	golden(t, "tree-compact.txt", x.ask(t, "tree ks top --compact").wants(t, exitOK).out)
	golden(t, "tree-generator.txt", x.ask(t, "tree artifact generator split").wants(t, exitOK).out)
	golden(t, "tree.yaml", x.ask(t, "tree ks top -o yaml").wants(t, exitOK).out)
	var n lineage.Node
	if err := json.Unmarshal([]byte(x.ask(t, "tree ks top -o json").wants(t, exitOK).out), &n); err != nil ||
		n.Resources[0].Resources[0].Kind != "Deployment" {
		t.Errorf("got %+v (%v)", n, err)
	}
	x.ask(t, "tree ks none").wants(t, exitFailed, "none' not found")
}

func (x lineageTest) trace(t *testing.T) {
	whole := x.ask(t, "trace deployment web").wants(t, exitOK).out
	for _, want := range []string{
		"Managed by: Kustomization/" + x.namespace + "/apps", "Path:", "./apps", "Kustomization/" + x.namespace +
			"/top", "GitRepository/" + x.namespace + "/app",
		"main@sha1:" + x.commit, "Test <test@example.com>", "Commit message: change", "Branch:", "Ready since",
	} {
		if !strings.Contains(whole, want) {
			t.Errorf("the trace lacks %q:\n%s", want, whole)
		}
	}
	if n := strings.Count(whole, "Commit author"); n != 1 {
		t.Errorf("the source is printed %d times", n)
	}
	var pods corev1.PodList
	if err := x.client.List(t.Context(), &pods, client.InNamespace(x.namespace),
		client.MatchingLabels{"app": "web"}); err != nil || len(pods.Items) != 1 {
		t.Fatal(err, len(pods.Items))
	}
	pod := x.ask(t, "trace "+pods.Items[0].Name+" --kind Pod --api-version v1").wants(t, exitOK).out
	if !strings.Contains(pod, "Deployment/"+x.namespace+"/web") ||
		!strings.HasSuffix(pod, whole[strings.Index(whole, "---"):]) {
		t.Errorf("the Pod's trace is\n%s", pod)
	}
	part := x.ask(t, "trace cm/part").wants(t, exitOK).out
	for _, want := range []string{"ExternalArtifact/" + x.namespace + "/part", "ArtifactGenerator/" + x.namespace +
		"/split", "Test <test@example.com>"} {
		if !strings.Contains(part, want) {
			t.Errorf("the trace lacks %q:\n%s", want, part)
		}
	}
	lone := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: x.namespace, Name: "lone"}}
	if err := x.client.Create(t.Context(), lone); err != nil {
		t.Fatal(err)
	}
	x.ask(t, "trace cm lone").wants(t, exitFailed, "is not managed by a Kustomization")
	before := lone.DeepCopy()
	lone.Labels = localbuild.OwnerOf(x.parts).Labels()
	if err := x.client.Patch(t.Context(), lone, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	if r := x.ask(t, "trace cm lone").wants(t, exitOK); !strings.Contains(r.out,
		"its inventory does not list ConfigMap/"+x.namespace+"/lone") {
		t.Errorf("the trace does not warn about a copied label:\n%s", r.out)
	}
	x.ask(t, "trace cm none").wants(t, exitFailed, "not found")
	x.ask(t, "trace widget x").wants(t, exitFailed, "widget")
	x.ask(t, "trace web").wants(t, exitUsage, "deployment/web")
}

func (x lineageTest) events(t *testing.T) {
	testenv.Eventually(t, "the events are recorded", func() error {
		if out := x.ask(t, "events --for ks/apps").wants(t, exitOK).out; !strings.Contains(out, "Kustomization/apps") ||
			strings.Contains(out, "GitRepository/app") || strings.Contains(out, "Kustomization/top") {
			return errors.New(out)
		}
		return nil
	})
	if out := x.ask(t, "events -A").wants(t, exitOK).out; !strings.Contains(out, x.namespace) ||
		strings.Contains(out, "ReplicaSet/") {
		t.Errorf("got\n%s", out)
	}
	x.ask(t, "events --types Warning --for Kustomization/top").wants(t, exitOK, "no events found")
	var list corev1.EventList
	if out := x.ask(t, "events ks/apps -o json").wants(t, exitOK).out; json.Unmarshal([]byte(out), &list) != nil ||
		len(list.Items) == 0 || list.Items[0].Kind != "Event" || list.Items[0].InvolvedObject.Name == "" {
		t.Errorf("-o json prints:\n%s", out)
	}
	x.ask(t, "events --types Bad").wants(t, exitUsage, "choose from Normal, Warning")
	x.ask(t, "events --for top").wants(t, exitUsage, "KIND/NAME")
}

func (x lineageTest) debug(t *testing.T) {
	if out := x.ask(t, "debug ks apps --show-vars").wants(t, exitOK).out; out != "a=plain\nb='it'\\''s'\n" {
		t.Errorf("the variables are\n%s", out)
	}
	if out := x.ask(t, "debug ks apps --show-status").wants(t, exitOK).out; !strings.HasPrefix(out, "status:\n") ||
		!strings.Contains(out, "lastAppliedRevision: main@sha1:"+x.commit) {
		t.Errorf("the status is\n%s", out)
	}
	if out := x.ask(t, "debug ks apps --show-history").wants(t, exitOK).
		out; !strings.HasPrefix(out, "history:\n- digest: sha256:") {
		t.Errorf("the history is\n%s", out)
	}
	x.ask(t, "debug ks apps").wants(t, exitUsage, "--show-status")
}

func (x lineageTest) stats(t *testing.T) {
	var lines []string
	for line := range strings.Lines(x.ask(t, "stats").wants(t, exitOK).out) {
		lines = append(lines, term.OneLine(line))
	}
	out := strings.Join(lines, "\n")
	for _, want := range []string{"KIND RUNNING FAILING SUSPENDED STORAGE", " B\nOCIRepository 0 0 0 -",
		"GitRepository 1 0 0", "Kustomization 3 0 0 -", "HelmChart 0 0 0 -"} {
		if !strings.Contains(out, want) {
			t.Errorf("the table lacks %q:\n%s", want, out)
		}
	}
}

// TestTraceHelmRelease traces an object of a HelmRelease that a Kustomization applied.
func TestTraceHelmRelease(t *testing.T) {
	c, namespace := withDefinitions(t)
	samples(t, c, namespace)
	release := &helmv2.HelmRelease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}}
	release.Labels = map[string]string{"kustomize.toolkit.fluxcd.io/name": "common",
		"kustomize.toolkit.fluxcd.io/namespace": namespace}
	release.Spec.Interval.Duration, release.Spec.Suspend = 60e9, true
	release.Spec.ChartRef = &helmv2.ChartReference{Kind: sourcev1.HelmChartKind, Name: "app"}
	if err := c.Create(t.Context(), release); err != nil {
		t.Fatal(err)
	}
	release.Status.LastAttemptedRevision = "1.2.3"
	release.Status.Inventory = &meta.ResourceInventory{Entries: []meta.ResourceRef{}}
	if err := c.Status().Update(t.Context(), release); err != nil {
		t.Fatal(err)
	}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "rendered",
		Labels: map[string]string{helmv2.GroupVersion.Group + "/name": "web",
			helmv2.GroupVersion.Group + "/namespace": namespace}}}
	if err := c.Create(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	golden(t, "trace-helm.txt", at(t, "trace", "configmap", "rendered", "-n", namespace).wants(t, exitOK).out)
}

// TestEventsWatchPrintsRepeatedEvents checks that an event is printed again when its count grows.
func TestEventsWatchPrintsRepeatedEvents(t *testing.T) {
	c, namespace := withDefinitions(t)
	repeated := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "e"}, Type: corev1.EventTypeWarning, Reason: "Broken",
		Message: "one\nof two", Count: 1,
		InvolvedObject: corev1.ObjectReference{APIVersion: "kustomize.toolkit.fluxcd.io/v1", Kind: "Kustomization",
			Namespace: namespace, Name: "app"},
	}
	if err := c.Create(t.Context(), repeated); err != nil {
		t.Fatal(err)
	}
	next, stop := follow(t, "events", "--watch", "-n", namespace)
	next("LAST SEEN", "MESSAGE")
	next("Warning", "Broken", "Kustomization/app", "one; of two")
	repeated.Count, repeated.Message = 2, "again"
	if err := c.Update(t.Context(), repeated); err != nil {
		t.Fatal(err)
	}
	next("Kustomization/app", "again")
	stop()
}
