package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
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
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// at runs a command line against the test cluster.
func at(t *testing.T, args ...string) result {
	t.Helper()
	return environment(nil).at(t, args...)
}

func (v environment) at(t *testing.T, args ...string) result {
	t.Helper()
	return v.run(t.Context(), "", append(args, "--kubeconfig", testenv.Kubeconfig(t))...)
}

func clusterClient(t *testing.T) client.Client {
	t.Helper()
	s := kubeclient.Scheme()
	utilruntime.Must(apiextensionsv1.AddToScheme(s))
	c, err := client.New(testenv.Cluster(t), client.Options{Scheme: s})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// installDefinitions and startControllers prepare the clusters that tests share.
var (
	installDefinitions, startControllers sync.Once
	stopControllers                      = func() error { return nil }
)

// withDefinitions returns a new namespace of a cluster that has the CustomResourceDefinitions and no controllers. Other
// tests use the cluster at the same time.
func withDefinitions(t *testing.T) (client.Client, string) {
	t.Helper()
	t.Parallel()
	installDefinitions.Do(func() { at(t, "install", "--crds-only").wants(t, exitOK) })
	return clusterClient(t), testenv.Namespace(t)
}

// withControllers returns a new namespace of a cluster whose controllers run until all tests have ended. Other tests
// use the cluster at the same time.
func withControllers(t *testing.T) (client.Client, string) {
	t.Helper()
	t.Parallel()
	testenv.Second(t)
	startControllers.Do(func() {
		at(t, "install", "--crds-only").wants(t, exitOK)
		stopControllers = controllers(t)
	})
	return clusterClient(t), testenv.Namespace(t)
}

// withOwnControllers returns a cluster that only the test uses. The controllers run until it ends.
func withOwnControllers(t *testing.T) client.Client {
	t.Helper()
	c := without(t)
	at(t, "install", "--crds-only").wants(t, exitOK)
	stop := controllers(t)
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// without returns a client of an empty cluster that only the test uses.
func without(t *testing.T) client.Client {
	t.Helper()
	t.Parallel()
	testenv.Exclusive(t)
	return clusterClient(t)
}

// readyStatus returns a status with a Ready condition.
func readyStatus(status metav1.ConditionStatus, reason, message string) meta.Status {
	s := meta.Status{ObservedGeneration: 1}
	apimeta.SetStatusCondition((*[]metav1.Condition)(&s.Conditions), metav1.Condition{
		Type: reconcile.TypeReady, Status: status, Reason: reason, Message: message, ObservedGeneration: 1,
		LastTransitionTime: metav1.Unix(1700000000, 0),
	})
	return s
}

// samples creates objects with typical statuses, as controllers would set them.
func samples(t *testing.T, c client.Client, namespace string) {
	t.Helper()
	revision := "main@sha1:" + strings.Repeat("4f17", 10)
	app := &sourcev1.GitRepository{}
	app.Name, app.Labels = "app", map[string]string{"team": "a"}
	app.Spec.URL, app.Spec.Interval.Duration = "https://example.com/app", 60e9
	app.Status.Status = readyStatus(metav1.ConditionTrue, meta.SucceededReason, "stored artifact for revision "+
		kind.ShortRevision(revision))
	app.Status.Artifact = &meta.Artifact{Path: "p", URL: "http://a/p", Revision: revision, Digest: "sha256:00",
		LastUpdateTime: meta.TimeOf(time.Unix(1700000000, 0))}
	lost := &sourcev1.GitRepository{}
	lost.Name = "lost"
	lost.Spec.URL, lost.Spec.Interval.Duration = "https://example.com/lost", 60e9
	lost.Status.Status = readyStatus(metav1.ConditionFalse, meta.GitOperationFailedReason,
		"the repository\nis not there")
	common := &kustomizev1.Kustomization{}
	common.Name, common.Labels = "common", map[string]string{"in": namespace}
	common.Spec.Interval.Duration, common.Spec.Suspend = 60e9, true
	common.Spec.SourceRef.Kind, common.Spec.SourceRef.Name = sourcev1.GitRepositoryKind, "app"
	common.Status.Status = readyStatus(metav1.ConditionTrue, meta.ReconciliationSucceededReason, "Applied revision: "+
		kind.ShortRevision(revision))
	common.Status.LastAppliedRevision = revision
	fresh := &kustomizev1.Kustomization{}
	fresh.Name, fresh.Labels = "fresh", map[string]string{"in": namespace}
	fresh.Spec.Interval.Duration = 60e9
	fresh.Spec.SourceRef.Kind, fresh.Spec.SourceRef.Name, fresh.Spec.SourceRef.Namespace = sourcev1.GitRepositoryKind,
		"app", "elsewhere"
	chart := &sourcev1.HelmChart{}
	chart.Name, chart.Spec.Chart, chart.Spec.Interval.Duration = "app", "app", 60e9
	chart.Spec.SourceRef = sourcev1.LocalHelmChartSourceReference{Kind: sourcev1.HelmRepositoryKind, Name: "charts"}
	chart.Status.Status = readyStatus(metav1.ConditionTrue, sourcev1.ChartPullSucceededReason,
		"pulled 'app' chart with version '1.2.3'")
	chart.Status.Artifact = &meta.Artifact{Path: "p", URL: "http://a/p", Revision: "1.2.3", Digest: "sha256:00",
		LastUpdateTime: meta.TimeOf(time.Unix(1700000000, 0))}
	charts := &sourcev1.HelmRepository{}
	charts.Name, charts.Spec.URL = "charts", "https://charts.example.com"
	split := &extensionsv1beta1.ArtifactGenerator{}
	split.Name, split.Annotations = "split", map[string]string{
		extensionsv1beta1.ReconcileAnnotation: extensionsv1beta1.ReconcileDisabled}
	split.Spec.Sources = []extensionsv1beta1.SourceReference{{Alias: "app", Kind: sourcev1.GitRepositoryKind,
		Name: "app"}}
	split.Spec.Artifacts = []extensionsv1beta1.OutputArtifact{{Name: "part",
		Copy: []extensionsv1beta1.CopyOperation{{From: "@app/part/**", To: "@artifact/"}}}}
	split.Status.Status = readyStatus(metav1.ConditionTrue, meta.SucceededReason, "made 1 artifact")
	part := &sourcev1.ExternalArtifact{}
	part.Name, part.Spec.SourceRef = "part", &meta.ObjectReference{Kind: extensionsv1beta1.ArtifactGeneratorKind,
		Name: "split"}
	part.Status.Status = readyStatus(metav1.ConditionTrue, meta.SucceededReason, "stored")
	part.Status.Artifact = &meta.Artifact{Path: "p", URL: "http://a/p", Revision: "latest@sha256:" +
		strings.Repeat("4f17", 16), Digest: "sha256:00", LastUpdateTime: meta.TimeOf(time.Unix(1700000000, 0))}
	for _, o := range []reconcile.Object{app, lost, chart, part, split, common} {
		makeAll(t, c, namespace, o)
	}
	for _, o := range []reconcile.Object{fresh, charts} { // not reconciled yet
		o.SetNamespace(namespace)
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

// makeAll creates objects with their status.
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

// statusOf returns a patch that sets the status of an object. It has no resourceVersion, so it does not conflict
// with the controllers of the playground.
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

// follow runs a command until stop is called. next reads a line and checks that it contains all texts.
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
		go func() { _, _ = io.Copy(io.Discard, out) }() // so that writes do not block
		if got := <-code; got != exitOK {
			t.Errorf("exit code %d after cancellation, want 0\n%s", got, errOut.String())
		}
	}
}

// expires runs a command that must time out and fail. See [expiresWith].
func expires(t *testing.T, line []string, texts ...string) {
	t.Helper()
	expiresWith(t, exitFailed, line, texts...)
}

// expiresWith runs a command that must time out, and checks its exit code and standard error, where TIMEOUT in a text
// stands for the timeout. It retries with longer ones, since on a slow machine the command may not reach the wait.
func expiresWith(t *testing.T, code int, line []string, texts ...string) {
	t.Helper()
	timeout := 2 * time.Second
	testenv.Eventually(t, strings.Join(line, " "), func() error {
		timeout *= 2
		wanted := slices.Clone(texts)
		for i := range wanted {
			wanted[i] = strings.ReplaceAll(wanted[i], "TIMEOUT", timeout.String())
		}
		return at(t, append(line, "--timeout", timeout.String())...).check(code, wanted...)
	})
}
