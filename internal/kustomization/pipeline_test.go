package kustomization_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

func TestApplyCorrectAndPrune(t *testing.T) {
	t.Parallel()
	s := newHarness(t)
	first := s.Git.Commit("app", map[string]string{"deploy/a.yaml": system.ConfigMap("a", "1"),
		"deploy/b.yaml": system.ConfigMap("b", "1"),
		"other.md":      "x"})
	s.GitRepository("app")
	s.Kustomization("app", "app", "deploy")
	k := s.Ready("app", first)
	if k.Status.Inventory == nil || len(k.Status.Inventory.Entries) != 2 {
		t.Fatalf("inventory %+v", k.Status.Inventory)
	}

	t.Log("a commit changes one object and deletes another")
	second := s.Git.Commit("app", map[string]string{"deploy/a.yaml": system.ConfigMap("a", "2"), "deploy/b.yaml": ""})
	s.RequestFetch("app")
	s.Ready("app", second)
	s.ConfigMapHas("a", "2")
	s.Gone(&corev1.ConfigMap{}, "b")

	t.Log("an edited object is corrected and a deleted one is recreated, independent of the interval")
	edited := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "a"}}
	if err := s.Client.Patch(t.Context(), edited,
		client.RawPatch(types.MergePatchType, []byte(`{"data":{"k":"edited"}}`))); err != nil {
		t.Fatal(err)
	}
	s.ConfigMapHas("a", "2")
	if err := s.Client.Delete(t.Context(), edited); err != nil {
		t.Fatal(err)
	}
	s.ConfigMapHas("a", "2")

	t.Log("a commit that changes no file of the build causes no requests for the objects")
	s.Reconcile(&kustomizev1.Kustomization{}, "app") // no correction is running any more
	s.Requests.Reset()
	third := s.Git.Commit("app", map[string]string{"other.md": "y"})
	s.RequestFetch("app")
	s.Ready("app", third)
	if r := s.Requests.Matching("/configmaps/a"); len(r) > 0 {
		t.Errorf("unexpected requests for the object: %v", r)
	}

	t.Log("deleting the Kustomization deletes its objects")
	k.SetResourceVersion("")
	if err := s.Client.Delete(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	s.Gone(&kustomizev1.Kustomization{}, "app")
	s.Gone(&corev1.ConfigMap{}, "a")
}

func TestDeletedWhileSuspendedKeepsObjects(t *testing.T) {
	t.Parallel()
	s := newSteps(t)
	commit := s.Commit("app", map[string]string{"a.yaml": system.ConfigMap("kept", "1")})
	s.apply("app", "app", "")
	k := s.Ready("app", commit)
	if err := s.Client.Patch(t.Context(), k, client.RawPatch(types.MergePatchType,
		[]byte(`{"spec":{"suspend":true}}`))); err != nil {
		t.Fatal(err)
	}
	s.Pass("app")
	s.removes("app")
	s.Gone(&kustomizev1.Kustomization{}, "app")
	s.ConfigMapHas("kept", "1")
}

func TestIdleObjectsCauseNoRequests(t *testing.T) {
	t.Parallel()
	s := newHarness(t)
	var all strings.Builder
	for i := range 500 {
		all.WriteString("---\n" + system.ConfigMap(fmt.Sprintf("cm-%03d", i), "x"))
	}
	commit := s.Git.Commit("app", map[string]string{"all.yaml": all.String()})
	s.GitRepository("app")
	s.Kustomization("app", "app", "", func(k *kustomizev1.Kustomization) {
		k.Spec.Interval.Duration = 100 * time.Millisecond
	})
	s.Ready("app", commit)
	passes := func() float64 {
		return system.MetricValue(t, "gotk_reconcile_duration_seconds", kustomizev1.KustomizationKind,
			s.Namespace, "app")
	}
	testenv.Eventually(t, "there are no more requests", func() error {
		s.Requests.Reset()
		from := passes()
		testenv.Eventually(t, "ten intervals pass", func() error {
			if passes() < from+10 {
				return errors.New("not yet")
			}
			return nil
		})
		for _, r := range append(s.Requests.Matching("/configmaps"), s.Requests.Matching("/kustomizations")...) {
			if !strings.Contains(r, "watch=true") {
				return fmt.Errorf("unexpected request: %s", r)
			}
		}
		return nil
	})
}

func TestChainOfDependenciesByEdges(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	files := map[string]string{}
	for i := range 10 {
		files[fmt.Sprintf("d%d/a.yaml", i)] = system.ConfigMap(fmt.Sprintf("link-%d", i), "x")
	}
	commit := s.Git.Commit("app", files)
	for i := range 10 {
		s.Kustomization(fmt.Sprintf("k%d", i), "app", fmt.Sprintf("d%d", i), func(k *kustomizev1.Kustomization) {
			if i > 0 {
				k.Spec.DependsOn = []kustomizev1.DependencyReference{
					{NamespacedName: meta.NamespacedName{Name: fmt.Sprintf("k%d", i-1)}}}
			}
		})
	}
	s.NotReady(&kustomizev1.Kustomization{}, "k0", "ArtifactFailed", "not found")
	s.GitRepository("app")
	// All intervals are an hour, so only edges can reconcile the last one.
	s.Ready("k9", commit)
}

func TestHealthChecksWait(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	s.Git.Commit("app", map[string]string{"d.yaml": system.WebDeployment("nginx", "image-pull")})
	s.GitRepository("app")
	s.Kustomization("app", "app", "", func(k *kustomizev1.Kustomization) {
		k.Spec.HealthChecks = []meta.ObjectReference{{Kind: "Deployment", Name: "web"}}
		k.Spec.Timeout.Duration = runsOut
	})
	s.NotReady(&kustomizev1.Kustomization{}, "app", "HealthCheckFailed", "ImagePullBackOff")
	s.Patch(&kustomizev1.Kustomization{}, "app", `{"spec":{"timeout":"1h"}}`)
	commit := s.Git.Commit("app", map[string]string{"d.yaml": system.WebDeployment("nginx", "")})
	s.RequestFetch("app")
	s.Ready("app", commit)
	d := &appsv1.Deployment{}
	if err := s.Get(d, "web"); err != nil || d.Status.AvailableReplicas != 1 {
		t.Errorf("the Kustomization is Ready, but the Deployment is not: %+v, %v", d.Status, err)
	}
}

// TestInvalidSources has sources that fail, each for another reason, and one with a file that is not in its artifact.
func TestInvalidSources(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	s.Git.Commit("app", map[string]string{"link/kustomization.yaml": "resources: [x.yaml]\n",
		"link/x.yaml": "symlink:../../../etc/passwd"})
	s.GitRepository("app")
	branch := func(b string) func(*sourcev1.GitRepository) {
		return func(g *sourcev1.GitRepository) { g.Spec.URL, g.Spec.Reference.Branch = s.Git.URL+"/app", b }
	}
	s.GitRepository("missing-branch", branch("mian"))
	s.GitRepository("missing-repository")
	s.GitRepository("missing-secret", branch("main"),
		func(g *sourcev1.GitRepository) { g.Spec.SecretRef = &meta.LocalObjectReference{Name: "none"} })
	s.GitRepository("unknown-host", func(g *sourcev1.GitRepository) { g.Spec.URL = "http://host.invalid/x" })
	s.GitRepository("no-version", branch("main"), func(g *sourcev1.GitRepository) { g.Spec.Reference.SemVer = ">=1" })
	s.Kustomization("link", "app", "link")
	for name, c := range map[string]struct{ reason, message string }{
		"missing-branch":     {reason: "GitOperationFailed", message: "the remote has: main"},
		"missing-repository": {reason: "GitOperationFailed", message: "not found"},
		"missing-secret":     {reason: "AuthenticationFailed", message: "/none' not found"},
		"unknown-host":       {reason: "GitOperationFailed", message: "host.invalid"},
		"no-version":         {reason: "GitOperationFailed", message: "no tag matches"},
	} {
		s.NotReady(&sourcev1.GitRepository{}, name, c.reason, c.message)
		s.HasEvent(name, c.reason)
	}
	s.NotReady(&kustomizev1.Kustomization{}, "link", "BuildFailed", "x.yaml")
	s.HasEvent("link", "BuildFailed")
}

func TestInvalidInputChangesNothing(t *testing.T) {
	t.Parallel()
	s := newSteps(t)
	s.Commit("app", map[string]string{
		"good/a.yaml":            system.ConfigMap("good", "1"),
		"yaml/bad.yaml":          "a: b\nc: [\n",
		"out/kustomization.yaml": "resources: [../../../etc]\n",
		"refused/a.yaml":         system.ConfigMap("refused-a", "1"),
		"refused/b.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: refused-b}\n" +
			"spec: {ports: [{port: 99999}]}\n",
		"unknown/a.yaml": "apiVersion: none.example.com/v1\nkind: Nothing\nmetadata: {name: x}\n",
	})
	for _, dir := range []string{"yaml", "out", "refused", "unknown", "nowhere"} {
		s.Kustomization(dir, "app", dir)
	}
	s.Kustomization("missing-source", "none", "")
	s.Kustomization("missing-dependency", "app", "good", dependsOn("none"))
	s.Kustomization("cycle-a", "app", "good", dependsOn("cycle-b"))
	s.Kustomization("cycle-b", "app", "good", dependsOn("cycle-a"))
	for name, c := range map[string]struct{ reason, message string }{
		"yaml":               {reason: "BuildFailed", message: "yaml/bad.yaml is not valid YAML: line 2"},
		"out":                {reason: "BuildFailed", message: "reaches out of the source"},
		"refused":            {reason: "ReconciliationFailed", message: "Service/" + s.Namespace + "/refused-b"},
		"unknown":            {reason: "ReconciliationFailed", message: "does not serve kind Nothing"},
		"nowhere":            {reason: "ArtifactFailed", message: "path not found"},
		"missing-source":     {reason: "ArtifactFailed", message: "/none' not found"},
		"missing-dependency": {reason: "DependencyNotReady", message: "/none' not found"},
		"cycle-a":            {reason: "DependencyNotReady", message: "dependency cycle"},
	} {
		s.Pass(name)
		s.NotReady(&kustomizev1.Kustomization{}, name, c.reason, c.message)
		s.HasEvent(name, c.reason)
	}
	for _, name := range []string{"refused-a", "good"} {
		if err := s.Get(&corev1.ConfigMap{}, name); !apierrors.IsNotFound(err) {
			t.Errorf("ConfigMap %s was applied: %v", name, err)
		}
	}
}

func TestImmutableFieldsNeedForce(t *testing.T) {
	t.Parallel()
	s := newSteps(t)
	secret := func(v string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: fixed}\nimmutable: true\n"+
			"stringData: {token: %q}\n", v)
	}
	commit := s.Commit("app", map[string]string{"s.yaml": secret("first-value")})
	s.apply("app", "app", "")
	s.Ready("app", commit)
	commit = s.Commit("app", map[string]string{"s.yaml": secret("second-value")})
	s.Pass("app")
	s.NotReady(&kustomizev1.Kustomization{}, "app", "ReconciliationFailed", "spec.force")
	k := &kustomizev1.Kustomization{}
	if err := s.Get(k, "app"); err != nil || strings.Contains(fmt.Sprint(k.Status), "second-value") {
		t.Errorf("the status contains the value: %v", err)
	}
	if err := s.Client.Patch(t.Context(), k, client.RawPatch(types.MergePatchType,
		[]byte(`{"spec":{"force":true}}`))); err != nil {
		t.Fatal(err)
	}
	s.Pass("app")
	s.Ready("app", commit)
	got := &corev1.Secret{}
	if err := s.Get(got, "fixed"); err != nil || string(got.Data["token"]) != "second-value" {
		t.Errorf("the object was not recreated: %v", err)
	}
}

func TestArtifactIsServedDuringOutage(t *testing.T) {
	t.Parallel()
	s := newHarness(t)
	commit := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("served", "1")})
	s.GitRepository("app")
	s.Kustomization("app", "app", "")
	s.Ready("app", commit)
	s.Git.Stop()
	s.RequestFetch("app")
	g := &sourcev1.GitRepository{}
	s.NotReady(g, "app", "GitOperationFailed", "connection refused")
	if c := apimeta.FindStatusCondition(g.Status.Conditions, "FetchFailed"); c == nil ||
		c.Status != metav1.ConditionTrue {
		t.Errorf("FetchFailed: %+v", c)
	}
	resp, err := http.Get(g.Status.Artifact.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK ||
		int64(len(b)) != *g.Status.Artifact.Size {
		t.Errorf("got %d bytes, status %d, %v", len(b), resp.StatusCode, err)
	}
	if err := s.Client.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace,
		Name: "served"}}); err != nil {
		t.Fatal(err)
	}
	s.ConfigMapHas("served", "1")

	t.Log("a restart during the outage changes nothing, and drift is still corrected")
	s.Stop()
	if err := s.Client.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace,
		Name: "served"}}); err != nil {
		t.Fatal(err)
	}
	s.Start()
	s.ConfigMapHas("served", "1")
}

func TestLegacyManifests(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	commit := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("legacy", "1")})
	for _, text := range []string{
		"apiVersion: source.toolkit.fluxcd.io/v1beta1\nkind: GitRepository\nmetadata: {name: app}\n" +
			"spec: {interval: 1m, url: URL/app, ref: {branch: main}, gitImplementation: libgit2}\n",
		"apiVersion: kustomize.toolkit.fluxcd.io/v1beta1\nkind: Kustomization\nmetadata: {name: app}\n" +
			"spec: {interval: 5m, path: ./, prune: true, targetNamespace: NS, sourceRef: {kind: GitRepository, " +
			"name: app}, validation: client, healthChecks: [{kind: ConfigMap, name: legacy}]}\n",
	} {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(strings.NewReplacer("URL", s.Git.URL, "NS", s.Namespace).Replace(text)),
			&o.Object); err != nil {
			t.Fatal(err)
		}
		o.SetNamespace(s.Namespace)
		s.Create(o)
	}
	k := s.Ready("app", commit)
	if k.Spec.Validation != "client" {
		t.Errorf("validation was pruned: %q", k.Spec.Validation)
	}
}
