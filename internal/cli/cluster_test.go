package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/manager"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// at runs a command line against the cluster of the tests.
func at(t *testing.T, args ...string) result {
	t.Helper()
	return run(t, append(args, "--kubeconfig", testenv.Kubeconfig(t))...)
}

func clusterClient(t *testing.T) client.Client {
	t.Helper()
	s := manager.Scheme()
	utilruntime.Must(apiextensionsv1.AddToScheme(s))
	c, err := client.New(testenv.Cluster(t), client.Options{Scheme: s})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// withDefinitions makes the cluster serve our kinds, and gives a namespace. Tests run one after another and
// in any order.
func withDefinitions(t *testing.T) (client.Client, string) {
	t.Helper()
	at(t, "install", "--crds-only").wants(t, exitOK)
	return clusterClient(t), testenv.Namespace(t)
}

// without takes all of Sluice out of the cluster.
func without(t *testing.T) client.Client {
	t.Helper()
	at(t, "uninstall", "--silent").wants(t, exitOK)
	return clusterClient(t)
}

func TestGetBeforeInstall(t *testing.T) {
	without(t)
	for _, line := range []string{"get all", "get ks", "get sources git -w", "reconcile ks app", "suspend ks --all"} {
		at(t, strings.Fields(line)...).wants(t, exitFailed, "Run sluice install")
	}
}

// TestInstallAndUninstall goes the whole way: the definitions are served when the command ends, a second run changes
// nothing, and an uninstall leaves nothing but what was applied.
func TestInstallAndUninstall(t *testing.T) {
	c := without(t)
	golden(t, "install.txt", at(t, "install").wants(t, exitOK).err)
	keep := &sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Namespace: defaultNamespace, Name: "app",
		Finalizers: []string{reconcile.Finalizer}}}
	keep.Spec.URL, keep.Spec.Interval.Duration = "https://example.com/app", 1e9
	if err := c.Create(t.Context(), keep); err != nil {
		t.Fatalf("the definitions are not served when install has ended: %v", err)
	}
	if second := at(t, "install").wants(t, exitOK).err; strings.Contains(second, "created") ||
		strings.Contains(second, "configured") {
		t.Errorf("a second install changes something:\n%s", second)
	}
	testenv.Eventually(t, "the Deployment is accepted and its pods run", func() error {
		d := &appsv1.Deployment{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: defaultNamespace, Name: "sluice"}, d); err != nil {
			return err
		}
		if d.Status.ReadyReplicas != 1 {
			return fmt.Errorf("status is %+v", d.Status)
		}
		return nil
	})

	golden(t, "uninstall-dry-run.txt", at(t, "uninstall", "--dry-run").wants(t, exitOK).err)
	args := []string{"uninstall", "--keep-namespace", "--kubeconfig", testenv.Kubeconfig(t)}
	runWith(t.Context(), "n\n", args...).wants(t, exitFailed, "nothing was removed")
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(keep), keep); err != nil {
		t.Fatalf("an uninstall that was not confirmed removed something: %v", err)
	}
	runWith(t.Context(), "yes\n", args...).wants(t, exitOK)
	crds := &apiextensionsv1.CustomResourceDefinitionList{}
	if err := c.List(t.Context(), crds); err != nil || len(crds.Items) > 0 {
		t.Errorf("definitions are left: %v %v", crds.Items, err)
	}
	if err := c.Get(t.Context(), client.ObjectKey{Name: defaultNamespace}, &corev1.Namespace{}); err != nil {
		t.Errorf("the namespace was not kept: %v", err)
	}
	without(t)
	if err := c.Get(t.Context(), client.ObjectKey{Name: defaultNamespace},
		&corev1.Namespace{}); !apierrors.IsNotFound(err) {
		t.Errorf("the namespace is left: %v", err)
	}
	if r := at(t, "uninstall", "--silent").wants(t, exitOK); r.err != "" {
		t.Errorf("a second uninstall removes something:\n%s", r.err)
	}
}

// samples makes objects in states that users meet, as controllers would leave them.
func samples(t *testing.T, c client.Client, namespace string) {
	t.Helper()
	ready := func(status metav1.ConditionStatus, reason, message string) meta.Status {
		s := meta.Status{ObservedGeneration: 1}
		apimeta.SetStatusCondition(&s.Conditions, metav1.Condition{
			Type: reconcile.TypeReady, Status: status, Reason: reason, Message: message, ObservedGeneration: 1,
			LastTransitionTime: metav1.Unix(1700000000, 0),
		})
		return s
	}
	revision := "main@sha1:" + strings.Repeat("4f17", 10)
	app := &sourcev1.GitRepository{}
	app.Name, app.Labels = "app", map[string]string{"team": "a"}
	app.Spec.URL, app.Spec.Interval.Duration = "https://example.com/app", 60e9
	app.Status.Status = ready(metav1.ConditionTrue, meta.SucceededReason, "stored artifact for revision "+
		short(revision))
	app.Status.Artifact = &meta.Artifact{Path: "p", URL: "http://a/p", Revision: revision, Digest: "sha256:00",
		LastUpdateTime: metav1.Unix(1700000000, 0)}
	lost := &sourcev1.GitRepository{}
	lost.Name = "lost"
	lost.Spec.URL, lost.Spec.Interval.Duration = "https://example.com/lost", 60e9
	lost.Status.Status = ready(metav1.ConditionFalse, meta.GitOperationFailedReason, "the repository\nis not there")
	common := &kustomizev1.Kustomization{}
	common.Name, common.Labels = "common", map[string]string{"in": namespace}
	common.Spec.Interval.Duration, common.Spec.Suspend = 60e9, true
	common.Spec.SourceRef.Kind, common.Spec.SourceRef.Name = sourcev1.GitRepositoryKind, "app"
	common.Status.Status = ready(metav1.ConditionTrue, meta.ReconciliationSucceededReason, "Applied revision: "+
		short(revision))
	common.Status.LastAppliedRevision = revision
	fresh := &kustomizev1.Kustomization{}
	fresh.Name, fresh.Labels = "fresh", map[string]string{"in": namespace}
	fresh.Spec.Interval.Duration = 60e9
	fresh.Spec.SourceRef.Kind, fresh.Spec.SourceRef.Name, fresh.Spec.SourceRef.Namespace = sourcev1.GitRepositoryKind,
		"app", "elsewhere"
	chart := &sourcev1.HelmChart{}
	chart.Name, chart.Spec.Chart, chart.Spec.Interval.Duration = "app", "app", 60e9
	chart.Spec.SourceRef = sourcev1.LocalHelmChartSourceReference{Kind: sourcev1.HelmRepositoryKind, Name: "charts"}
	chart.Status.Status = ready(metav1.ConditionTrue, sourcev1.ChartPullSucceededReason,
		"pulled 'app' chart with version '1.2.3'")
	chart.Status.Artifact = &meta.Artifact{Path: "p", URL: "http://a/p", Revision: "1.2.3", Digest: "sha256:00",
		LastUpdateTime: metav1.Unix(1700000000, 0)}
	charts := &sourcev1.HelmRepository{}
	charts.Name, charts.Spec.URL = "charts", "https://charts.example.com"
	split := &extensionsv1beta1.ArtifactGenerator{}
	split.Name, split.Annotations = "split", map[string]string{
		extensionsv1beta1.ReconcileAnnotation: extensionsv1beta1.ReconcileDisabled}
	split.Spec.Sources = []extensionsv1beta1.SourceReference{{Alias: "app", Kind: sourcev1.GitRepositoryKind,
		Name: "app"}}
	split.Spec.Artifacts = []extensionsv1beta1.OutputArtifact{{Name: "part",
		Copy: []extensionsv1beta1.CopyOperation{{From: "@app/part/**", To: "@artifact/"}}}}
	split.Status.Status = ready(metav1.ConditionTrue, meta.SucceededReason, "made 1 artifact")
	part := &sourcev1.ExternalArtifact{}
	part.Name, part.Spec.SourceRef = "part", &meta.ObjectReference{Kind: extensionsv1beta1.ArtifactGeneratorKind,
		Name: "split"}
	part.Status.Status = ready(metav1.ConditionTrue, meta.SucceededReason, "stored")
	part.Status.Artifact = &meta.Artifact{Path: "p", URL: "http://a/p", Revision: "latest@sha256:" +
		strings.Repeat("4f17", 16), Digest: "sha256:00", LastUpdateTime: metav1.Unix(1700000000, 0)}
	for _, o := range []reconcile.Object{app, lost, chart, part, split, common} {
		makeAll(t, c, namespace, o)
	}
	for _, o := range []reconcile.Object{fresh, charts} { // as nobody has looked at them yet
		o.SetNamespace(namespace)
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

// makeAll makes objects with the status that they carry. It names no version: the playground's own
// controllers write, too.
func makeAll(t *testing.T, c client.Client, namespace string, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		o.SetNamespace(namespace)
		status := statusOf(t, o)
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		if err := c.Status().Patch(t.Context(), o, status); err != nil {
			t.Fatal(err)
		}
	}
}

// statusOf writes the status that an object carries, whoever else writes.
func statusOf(t *testing.T, o client.Object) client.Patch {
	t.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		t.Fatal(err)
	}
	status, err := json.Marshal(map[string]any{"status": fields["status"]})
	if err != nil {
		t.Fatal(err)
	}
	return client.RawPatch(types.MergePatchType, status)
}

func TestGet(t *testing.T) {
	c, namespace := withDefinitions(t)
	samples(t, c, namespace)
	for file, line := range map[string]string{
		"all.txt":         "get all",
		"git.txt":         "get sources git",
		"one.txt":         "get source git app",
		"sources.txt":     "get sources all --no-header",
		"with-source.txt": "get ks --show-source",
		"charts.txt":      "get sources chart --show-source",
		"generators.txt":  "get artifacts generators",
		"not-ready.txt":   "get all --status-selector ready=false",
		"unknown.txt":     "get all --status-selector Ready=Unknown",
		"labels.txt":      "get all -l team=a",
		"everywhere.txt":  "get ks -A -l in=NAMESPACE",
		"names.txt":       "get all -o name",
		"one.yaml":        "get source git app -o yaml",
		"list.json":       "get ks common -o json",
	} {
		t.Run(line, func(t *testing.T) {
			line = strings.ReplaceAll(line, "NAMESPACE", namespace)
			r := at(t, append(strings.Fields(line), "-n", namespace)...).wants(t, exitOK)
			golden(t, "get-"+file, r.out)
		})
	}
	at(t, "get", "ks", "none", "-n", namespace).
		wants(t, exitFailed, "Kustomization '"+namespace+"/none' not found", "sluice get kustomizations -A")
	at(t, "get", "source", "git", "none", "-n", namespace).wants(t, exitFailed, "sluice get source git -A")
	wide := at(t, "get", "ks", "common", "-o", "wide", "-n", namespace).wants(t, exitOK).out
	if !strings.Contains(wide, "AGE") || !strings.Contains(wide, strings.Repeat("4f17", 10)) {
		t.Errorf("wide output lacks the age or the whole revision:\n%s", wide)
	}
	empty := testenv.Namespace(t)
	if r := at(t, "get", "all", "-o", "json", "-n", empty).
		wants(t, exitOK, "nothing found"); !strings.Contains(r.out, `"items": []`) {
		t.Errorf("no empty list for scripts: %s", r.out)
	}
	r := at(t, "get", "ks", "-n", namespace, "--verbose").
		wants(t, exitOK, "/namespaces/"+namespace+"/kustomizations", "200 OK")
	if strings.Contains(r.out, "200 OK") {
		t.Error("progress is mixed with results")
	}
	forbidden := at(t, "get", "ks", "-n", namespace, "--as", "nobody").
		wants(t, exitFailed, "cannot list Kustomization objects", "Ask for this right")
	if forbidden.out != "" {
		t.Errorf("output of a failed command: %s", forbidden.out)
	}
	if r := run(t, "__complete", "--kubeconfig", testenv.Kubeconfig(t), "-n", namespace, "suspend", "ks", "common", "").
		wants(t, exitOK); !strings.HasPrefix(r.out, "fresh\n") {
		t.Errorf("completion offers %q, want the name that is not there yet", r.out)
	}
}

// TestGetFollowsChanges watches, and sees one line for a change that shows and none for one that doesn't.
func TestGetFollowsChanges(t *testing.T) {
	c, namespace := withDefinitions(t)
	samples(t, c, namespace)
	next, stop := follow(t, "get", "ks", "-w", "-n", namespace)
	next("NAME", "REVISION", "SUSPENDED", "READY", "MESSAGE")
	next("common", "True")
	next("fresh", "Unknown")
	change := func(of func(*kustomizev1.Kustomization)) {
		t.Helper()
		ks := &kustomizev1.Kustomization{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "fresh"}, ks); err != nil {
			t.Fatal(err)
		}
		before := ks.DeepCopy()
		of(ks)
		if err := c.Patch(t.Context(), ks, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	change(func(ks *kustomizev1.Kustomization) { ks.Spec.Path = "./nobody/sees/this" })
	change(func(ks *kustomizev1.Kustomization) { ks.Spec.Suspend = true })
	next("fresh", "True", "Unknown")
	change(func(ks *kustomizev1.Kustomization) { ks.Spec.Suspend = false })
	next("fresh", "False", "Unknown")
	stop()
}

// follow runs a command that goes on until it is stopped. Next reads a line and checks that it holds all texts.
func follow(t *testing.T, args ...string) (next func(want ...string), stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	out, in := io.Pipe()
	code := make(chan int, 1)
	var errOut bytes.Buffer
	go func() {
		code <- Main(ctx, append(args, "--kubeconfig", testenv.Kubeconfig(t)), strings.NewReader(""), in, &errOut)
		in.Close()
	}()
	lines := bufio.NewScanner(out)
	next = func(want ...string) {
		t.Helper()
		if !lines.Scan() {
			t.Fatalf("the output ended, want %q\n%s", want, errOut.String())
		}
		for _, w := range want {
			if !strings.Contains(lines.Text(), w) {
				t.Fatalf("got %q, want %q in it", lines.Text(), w)
			}
		}
	}
	return next, func() {
		t.Helper()
		cancel()
		go func() { _, _ = io.Copy(io.Discard, out) }() // what nobody waits for
		if got := <-code; got != exitOK {
			t.Errorf("exit code %d after it was stopped, want 0\n%s", got, errOut.String())
		}
	}
}

func TestSuspendAndResume(t *testing.T) {
	c, namespace := withDefinitions(t)
	samples(t, c, namespace)
	suspendedNow := func(name string) bool {
		t.Helper()
		ks := &kustomizev1.Kustomization{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, ks); err != nil {
			t.Fatal(err)
		}
		return ks.Spec.Suspend
	}
	at(t, "suspend", "ks", "none", "fresh", "-n", namespace).wants(t, exitFailed, "fresh' suspended", "none' not found")
	if !suspendedNow("fresh") {
		t.Error("one name that is none keeps the others from being suspended")
	}
	at(t, "resume", "ks", "--all", "--wait=false", "-n", namespace).
		wants(t, exitOK, "common' resumed", "fresh' resumed")
	if suspendedNow("common") || suspendedNow("fresh") {
		t.Error("not all were resumed")
	}
	at(t, "suspend", "source", "git", "--all", "-n", namespace).wants(t, exitOK, "app' suspended", "lost' suspended")
	at(t, "suspend", "ks", "--all", "-n", testenv.Namespace(t)).wants(t, exitOK, "no Kustomization in namespace")
	at(t, "reconcile", "source", "git", "app", "-n", namespace).
		wants(t, exitFailed, "is suspended", "sluice resume source git app")

	split := &extensionsv1beta1.ArtifactGenerator{}
	for line, want := range map[string]string{"resume artifact generator split --wait=false": "",
		"suspend artifact ag split": extensionsv1beta1.ReconcileDisabled} {
		at(t, append(strings.Fields(line), "-n", namespace)...).wants(t, exitOK)
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "split"}, split); err != nil {
			t.Fatal(err)
		}
		if got := split.Annotations[extensionsv1beta1.ReconcileAnnotation]; got != want {
			t.Errorf("after %s the annotation is %q, want %q", line, got, want)
		}
	}
}

// expires runs a command that cannot end well in its time, and checks what it says. On a slow machine it does
// not get as far: it has more time, then.
func expires(t *testing.T, line []string, texts ...string) {
	t.Helper()
	timeout := 2 * time.Second
	testenv.Eventually(t, strings.Join(line, " "), func() error {
		timeout *= 2
		return at(t, append(line, "--timeout", timeout.String())...).missing(exitFailed, texts...)
	})
}

// TestWithoutControllers checks what waiting commands say when nobody reconciles.
func TestWithoutControllers(t *testing.T) {
	c, namespace := withDefinitions(t)
	samples(t, c, namespace)
	expires(t, []string{"reconcile", "ks", "fresh", "-n", namespace}, "was not handled within ",
		"Are the controllers running?")
	expires(t, []string{"resume", "ks", "common", "-n", namespace}, "common' resumed", "Are the controllers running?")
	expires(t, []string{"reconcile", "source", "chart", "app", "--with-source", "-n", namespace},
		"asking for a reconcile of HelmRepository")
	parts := &kustomizev1.Kustomization{}
	parts.Name, parts.Namespace, parts.Spec.Interval.Duration = "parts", namespace, 60e9
	parts.Spec.SourceRef.Kind, parts.Spec.SourceRef.Name = sourcev1.ExternalArtifactKind, "part"
	if err := c.Create(t.Context(), parts); err != nil {
		t.Fatal(err)
	}
	at(t, "reconcile", "ks", "parts", "--with-source", "-n", namespace).
		wants(t, exitFailed, "ArtifactGenerator '"+namespace+"/split' is suspended")

	came := make(chan result, 1)
	go func() {
		came <- runWith(t.Context(), "", "reconcile", "source", "git", "lost", "-n", namespace, "--kubeconfig",
			testenv.Kubeconfig(t))
	}()
	lost := &sourcev1.GitRepository{}
	testenv.Eventually(t, "the request is there", func() error {
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "lost"}, lost); err != nil {
			return err
		}
		if request(lost) == "" {
			return errors.New("no annotation yet")
		}
		return nil
	})
	if err := c.Delete(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	r := <-came
	if r.code != exitFailed || !strings.Contains(r.err, "lost' was deleted while waiting") &&
		!strings.Contains(r.err, "not found") {
		t.Errorf("exit code %d, standard error:\n%s", r.code, r.err)
	}
}
