package kustomization_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

func driftMode(mode string, ignore ...meta.IgnoreRule) func(*kustomizev1.Kustomization) {
	return func(k *kustomizev1.Kustomization) {
		k.Spec.DriftDetection = &meta.DriftDetection{Mode: mode, Ignore: ignore}
	}
}

// edit patches a live object as a field manager.
func (s *harness) edit(fieldManager string, o client.Object, name, patch string) {
	s.Helper()
	o.SetNamespace(s.Namespace)
	o.SetName(name)
	if err := s.Client.Patch(s.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch)),
		client.FieldOwner(fieldManager)); err != nil {
		s.Fatal(err)
	}
}

// drifted waits until the condition Drifted has a reason and a message that contains all texts. With an empty reason,
// it waits until the condition is not True.
func (s *harness) drifted(name, reason string, texts ...string) {
	s.Helper()
	testenv.Eventually(s, "condition Drifted of "+name, func() error {
		k := &kustomizev1.Kustomization{}
		if err := s.Get(k, name); err != nil {
			return err
		}
		c := apimeta.FindStatusCondition(k.Status.Conditions, "Drifted")
		if reason == "" && (c == nil || c.Status == metav1.ConditionFalse) {
			return nil
		}
		if c == nil || c.Reason != reason || c.Status != metav1.ConditionTrue {
			return fmt.Errorf("%+v", c)
		}
		for _, w := range texts {
			if !strings.Contains(c.Message, w) {
				return fmt.Errorf("the message lacks %q: %s", w, c.Message)
			}
		}
		return nil
	})
}

const secretManifest = "apiVersion: v1\nkind: Secret\nmetadata: {name: login}\nstringData: {user: declared-user}\n"

func TestDriftIsCorrectedAndReported(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	commit := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1"),
		"b.yaml": system.ConfigMap("b", "1"),
		"s.yaml": secretManifest})
	s.GitRepository("app")
	s.Kustomization("app", "app", "")
	s.Ready("app", commit)
	s.HasEvent("app", "ReconciliationSucceeded", "Applied revision: main@sha1:"+commit, "3 created",
		"ConfigMap/"+s.Namespace+"/a created")

	s.edit("autotuner", &corev1.ConfigMap{}, "a", `{"data":{"k":"9"}}`)
	s.ConfigMapHas("a", "1")
	s.HasEvent("app", "DriftCorrected", "corrected drift: 1 configured", "ConfigMap/"+s.Namespace+"/a configured",
		"data.k",
		`"9" → "1"`)
	s.edit("autotuner", &corev1.Secret{}, "login", `{"stringData":{"user":"drifted-user"}}`)
	s.HasEvent("app", "DriftCorrected", "Secret/"+s.Namespace+"/login configured",
		"data.user: *** (before) → *** (after)")
	s.drifted("app", "")
	var list eventsv1.EventList
	if err := s.Client.List(t.Context(), &list, client.InNamespace(s.Namespace)); err != nil {
		t.Fatal(err)
	}
	for _, e := range list.Items {
		if strings.Contains(e.Note, "ZHJpZnRlZC11c2Vy") || strings.Contains(e.Note, "drifted-user") {
			t.Errorf("an event contains a secret: %s", e.Note)
		}
	}

	t.Log("a new revision is not drift")
	commit = s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "2")})
	s.RequestFetch("app")
	s.Ready("app", commit)
	s.HasEvent("app", "ReconciliationSucceeded", "1 configured", "data.k", `"1" → "2"`)
}

func TestDriftWarnModeOnlyReports(t *testing.T) {
	t.Parallel()
	s := newHarness(t)
	commit := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1"),
		"b.yaml": system.ConfigMap("b", "1"),
		"s.yaml": secretManifest})
	s.GitRepository("app")
	s.Kustomization("app", "app", "", driftMode("warn"))
	s.Ready("app", commit)
	s.drifted("app", "")

	t.Log("each drift is reported at once, and nothing is changed")
	s.Requests.Reset()
	s.edit("autotuner", &corev1.ConfigMap{}, "a", `{"data":{"k":"9"}}`)
	s.drifted("app", "DriftDetected", "1 object drifted", "ConfigMap/"+s.Namespace+"/a differs",
		`data.k: "9" → "1"`)
	s.edit("autotuner", &corev1.Secret{}, "login", `{"stringData":{"user":"drifted-user"}}`)
	s.drifted("app", "DriftDetected", "2 objects drifted", "Secret/"+s.Namespace+"/login differs",
		"*** (before) → *** (after)")
	s.edit("autotuner", &corev1.ConfigMap{}, "a", `{"data":{"k":"8"}}`)
	s.drifted("app", "DriftDetected", `data.k: "8" → "1"`)
	if err := s.Client.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace,
		Name: "b"}}); err != nil {
		t.Fatal(err)
	}
	s.drifted("app", "DriftDetected", "3 objects drifted", "ConfigMap/"+s.Namespace+"/b was deleted")
	s.HasEvent("app", "DriftDetected", "1 object drifted", `data.k: "9" → "1"`)
	s.HasEvent("app", "DriftDetected", "2 objects drifted", "Secret/"+s.Namespace+"/login differs")
	s.HasEvent("app", "DriftDetected", `data.k: "8" → "1"`)
	s.HasEvent("app", "DriftDetected", "3 objects drifted", "was deleted")
	s.Ready("app", commit)

	reportsDriftOnce(t, s)

	t.Log("a manual correction is reported")
	s.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.Namespace, Name: "b",
		Labels: map[string]string{"kustomize.toolkit.fluxcd.io/name": "app",
			"kustomize.toolkit.fluxcd.io/namespace": s.Namespace},
	}, Data: map[string]string{"k": "1"}})
	s.drifted("app", "DriftDetected", "ConfigMap/"+s.Namespace+"/a differs")

	t.Log("a new revision overwrites all drift")
	commit = s.Git.Commit("app", map[string]string{"c.yaml": system.ConfigMap("c", "1")})
	s.RequestFetch("app")
	s.Ready("app", commit)
	s.ConfigMapHas("a", "1")
	s.ConfigMapHas("b", "1")
	s.ConfigMapHas("c", "1")
	s.drifted("app", "")
	s.HasEvent("app", "DriftResolved", "match what was applied")

	t.Log("a change of the mode takes effect at once")
	s.edit("autotuner", &corev1.ConfigMap{}, "a", `{"data":{"k":"9"}}`)
	s.drifted("app", "DriftDetected", "a differs")
	s.Patch(&kustomizev1.Kustomization{}, "app", `{"spec":{"driftDetection":{"mode":"enabled"}}}`)
	s.ConfigMapHas("a", "1")
	s.drifted("app", "")
}

// reportsDriftOnce makes sure that other passes neither correct nor report known drift.
func reportsDriftOnce(t *testing.T, s *harness) {
	t.Helper()
	t.Log("interval, request and restart do not correct it, and it is reported once")
	s.Reconcile(&kustomizev1.Kustomization{}, "app")
	s.Stop()
	s.Start()
	s.edit("autotuner", &corev1.ConfigMap{}, "a", `{"data":{"k":"7"}}`)
	s.drifted("app", "DriftDetected", "3 objects drifted", `data.k: "7" → "1"`)
	for _, l := range append(s.Requests.Matching("/configmaps/"), s.Requests.Matching("/secrets/")...) {
		if !strings.HasPrefix(l, "GET") && !strings.Contains(l, "dryRun=All") {
			t.Errorf("unexpected write: %s", l)
		}
	}
	count := s.HasEvent("app", "DriftDetected", `data.k: "7" → "1"`)
	s.Reconcile(&kustomizev1.Kustomization{}, "app")
	if again := s.HasEvent("app", "DriftDetected"); again != count {
		t.Errorf("%d events, later %d", count, again)
	}
}

func TestDriftDetectionDisabled(t *testing.T) {
	t.Parallel()
	s := newHarness(t, func(o *options.Options) { o.Resync = time.Millisecond })
	commit := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1"),
		"b.yaml": system.ConfigMap("b", "1")})
	s.GitRepository("app")
	s.Kustomization("app", "app", "", driftMode("warn"))
	s.Ready("app", commit)
	s.edit("autotuner", &corev1.ConfigMap{}, "a", `{"data":{"k":"9"}}`)
	s.drifted("app", "DriftDetected")
	s.Patch(&kustomizev1.Kustomization{}, "app", `{"spec":{"driftDetection":{"mode":"disabled"}}}`)
	s.drifted("app", "")

	s.Requests.Reset()
	s.Reconcile(&kustomizev1.Kustomization{}, "app")
	s.Stop()
	s.Start()
	s.Reconcile(&kustomizev1.Kustomization{}, "app")
	for _, l := range append(s.Requests.Matching("/configmaps/"),
		s.Requests.Matching("/configmaps?labelSelector=kustomize")...) {
		t.Errorf("unexpected request: %s", l)
	}
	s.ConfigMapHas("a", "9")

	t.Log("a new declaration overwrites all drift")
	commit = s.Git.Commit("app", map[string]string{"b.yaml": system.ConfigMap("b", "2")})
	s.RequestFetch("app")
	s.Ready("app", commit)
	s.ConfigMapHas("a", "1")
	s.ConfigMapHas("b", "2")
}

func TestIgnoredFieldsMayDrift(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"enabled", "warn"} {
		t.Run(mode, func(t *testing.T) {
			s := newSteps(t)
			commit := s.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1"),
				"b.yaml": system.ConfigMap("b", "1")})
			s.apply("app", "app", "", driftMode(mode,
				meta.IgnoreRule{Paths: []string{"/data/k"}, Target: &meta.Selector{Kind: "ConfigMap", Name: "a"}}))
			s.Ready("app", commit)
			s.edit("autotuner", &corev1.ConfigMap{}, "a", `{"data":{"k":"9"}}`)
			s.request("app")
			s.drifted("app", "")

			t.Log("another object of the Kustomization changes: the drift stays")
			commit = s.Commit("app", map[string]string{"b.yaml": system.ConfigMap("b", "2")})
			s.Pass("app")
			s.Ready("app", commit)
			s.ConfigMapHas("b", "2")
			s.ConfigMapHas("a", "9")

			t.Log("the object itself changes: the drift is overwritten")
			commit = s.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "2")})
			s.Pass("app")
			s.Ready("app", commit)
			s.ConfigMapHas("a", "2")
		})
	}
}

func TestFieldsOfOtherManagersAreKept(t *testing.T) {
	t.Parallel()
	s := newSteps(t)
	commit := s.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1"),
		"b.yaml": system.ConfigMap("b", "1")})
	s.apply("app", "app", "", func(k *kustomizev1.Kustomization) {
		k.Spec.Ignore = []meta.IgnoreRule{{Paths: []string{"/data/k"}, Target: &meta.Selector{Name: "a"}}}
	})
	s.Ready("app", commit)
	s.edit("autotuner", &corev1.ConfigMap{}, "a", `{"data":{"k":"9"}}`)
	commit = s.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "2"),
		"b.yaml": system.ConfigMap("b", "2")})
	s.Pass("app")
	s.Ready("app", commit)
	s.ConfigMapHas("b", "2")
	s.ConfigMapHas("a", "9")
}

func TestObjectDeclaredTwice(t *testing.T) {
	t.Parallel()
	s := newSteps(t)
	commit := s.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1")})
	s.apply("one", "app", "")
	s.Ready("one", commit)
	s.apply("two", "app", "")
	s.Ready("two", commit)
	s.HasEvent("two", "AppliedWithWarnings", "ConfigMap/"+s.Namespace+"/a was applied by "+s.Namespace+
		"/one before, and now by "+s.Namespace+"/two")
}

func TestInvalidDriftRules(t *testing.T) {
	t.Parallel()
	s := newSteps(t)
	s.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1")})
	s.apply("app", "app", "", driftMode("enabled", meta.IgnoreRule{Paths: []string{"data.k"}}))
	s.NotReady(&kustomizev1.Kustomization{}, "app", "ReconciliationFailed",
		"path 'data.k' of spec.driftDetection.ignore is not a JSON pointer")
}

func TestDriftDetectionInEveryVersion(t *testing.T) {
	t.Parallel()
	s := newSteps(t)
	for _, version := range []string{"v1", "v1beta2", "v1beta1"} {
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "kustomize.toolkit.fluxcd.io/" + version, "kind": "Kustomization",
			"metadata": map[string]any{"namespace": s.Namespace, "name": "app-" + version},
			"spec": map[string]any{
				"interval": "1h", "prune": true, "sourceRef": map[string]any{"kind": "GitRepository", "name": "app"},
				"driftDetection": map[string]any{"mode": "warn", "ignore": []any{map[string]any{
					"paths": []any{"/spec/replicas"}, "target": map[string]any{"kind": "Deployment"},
				}}},
			},
		}}
		s.Create(o)
		k := &kustomizev1.Kustomization{}
		if err := s.Get(k, "app-"+version); err != nil {
			t.Fatal(err)
		}
		d := k.Spec.DriftDetection
		if d == nil || d.Mode != "warn" || len(d.Ignore) != 1 || d.Ignore[0].Paths[0] != "/spec/replicas" ||
			d.Ignore[0].Target.Kind != "Deployment" {
			t.Errorf("%s: %+v", version, d)
		}
		o.Object["metadata"] = map[string]any{"namespace": s.Namespace, "name": "wrong-" + version}
		if err := unstructured.SetNestedField(o.Object, "sometimes", "spec", "driftDetection", "mode"); err != nil {
			t.Fatal(err)
		}
		if err := s.Client.Create(t.Context(), o); !apierrors.IsInvalid(err) {
			t.Errorf("%s accepts an invalid mode: %v", version, err)
		}
	}
}
