package manager

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
	"github.com/sluice-gitops/sluice/internal/testenv"
)

func driftMode(mode string, ignore ...meta.IgnoreRule) func(*kustomizev1.Kustomization) {
	return func(k *kustomizev1.Kustomization) {
		k.Spec.DriftDetection = &meta.DriftDetection{Mode: mode, Ignore: ignore}
	}
}

// edit changes a live object in the name of a manager.
func (s *system) edit(manager string, o client.Object, name, patch string) {
	s.Helper()
	o.SetNamespace(s.namespace)
	o.SetName(name)
	if err := s.client.Patch(s.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch)),
		client.FieldOwner(manager)); err != nil {
		s.Fatal(err)
	}
}

// drifted waits for the condition Drifted to say all of it; without words, for there to be none.
func (s *system) drifted(name, reason string, says ...string) {
	s.Helper()
	testenv.Eventually(s, "the condition Drifted of "+name, func() error {
		k := &kustomizev1.Kustomization{}
		if err := s.get(k, name); err != nil {
			return err
		}
		c := apimeta.FindStatusCondition(k.Status.Conditions, "Drifted")
		if c == nil && reason == "" {
			return nil
		}
		if c == nil || c.Reason != reason || c.Status != metav1.ConditionTrue {
			return fmt.Errorf("%+v", c)
		}
		for _, w := range says {
			if !strings.Contains(c.Message, w) {
				return fmt.Errorf("it does not say %q: %s", w, c.Message)
			}
		}
		return nil
	})
}

// told waits for an event about an object that says all of it, and returns how many there are of its reason.
func (s *system) told(name, reason string, says ...string) int {
	s.Helper()
	count := 0
	testenv.Eventually(s, "an event about "+name, func() error {
		var list eventsv1.EventList
		if err := s.client.List(s.Context(), &list, client.InNamespace(s.namespace)); err != nil {
			return err
		}
		count = 0
		var notes []string
		found := false
		for _, e := range list.Items {
			if e.Regarding.Name != name || e.Reason != reason {
				continue
			}
			count++
			notes = append(notes, e.Note)
			all := true
			for _, w := range says {
				all = all && strings.Contains(e.Note, w)
			}
			found = found || all
		}
		if !found {
			return fmt.Errorf("none of %s says %q: %q", reason, says, notes)
		}
		return nil
	})
	return count
}

const secretManifest = "apiVersion: v1\nkind: Secret\nmetadata: {name: login}\nstringData: {user: declared-user}\n"

func TestDriftIsCorrectedAndTold(t *testing.T) {
	s := newSystem(t)
	commit := s.git.Commit("app", map[string]string{"a.yaml": cm("a", "1"), "b.yaml": cm("b", "1"),
		"s.yaml": secretManifest})
	s.source("app")
	s.sync("app", "app", "")
	s.ready("app", commit)
	s.told("app", "Progressing", "3 created", "ConfigMap/"+s.namespace+"/a created")

	s.edit("autotuner", &corev1.ConfigMap{}, "a", `{"data":{"k":"9"}}`)
	s.configMap("a", "1")
	s.told("app", "DriftCorrected", "corrected drift: 1 configured", "ConfigMap/"+s.namespace+"/a configured", "data.k",
		`"9" → "1"`)
	s.edit("autotuner", &corev1.Secret{}, "login", `{"stringData":{"user":"drifted-user"}}`)
	s.told("app", "DriftCorrected", "Secret/"+s.namespace+"/login configured", "data.user: *** (before) → *** (after)")
	s.drifted("app", "")
	var list eventsv1.EventList
	if err := s.client.List(t.Context(), &list, client.InNamespace(s.namespace)); err != nil {
		t.Fatal(err)
	}
	for _, e := range list.Items {
		if strings.Contains(e.Note, "ZHJpZnRlZC11c2Vy") || strings.Contains(e.Note, "drifted-user") {
			t.Errorf("an event tells a secret: %s", e.Note)
		}
	}

	t.Log("a new revision is no drift")
	commit = s.git.Commit("app", map[string]string{"a.yaml": cm("a", "2")})
	s.pull("app")
	s.ready("app", commit)
	s.told("app", "Progressing", "1 configured", "data.k", `"1" → "2"`)
}

func TestDriftIsReportedAndLeft(t *testing.T) {
	s := newSystem(t)
	commit := s.git.Commit("app", map[string]string{"a.yaml": cm("a", "1"), "b.yaml": cm("b", "1"),
		"s.yaml": secretManifest})
	s.source("app")
	s.sync("app", "app", "", driftMode("warn"))
	s.ready("app", commit)
	s.drifted("app", "")

	t.Log("it is reported as it happens, each new one, and nothing is changed")
	s.requests.reset()
	s.edit("autotuner", &corev1.ConfigMap{}, "a", `{"data":{"k":"9"}}`)
	s.drifted("app", "DriftDetected", "1 of the applied objects drifted", "ConfigMap/"+s.namespace+"/a differs",
		`data.k: "9" → "1"`)
	s.edit("autotuner", &corev1.Secret{}, "login", `{"stringData":{"user":"drifted-user"}}`)
	s.drifted("app", "DriftDetected", "2 of the applied objects drifted", "Secret/"+s.namespace+"/login differs",
		"*** (before) → *** (after)")
	s.edit("autotuner", &corev1.ConfigMap{}, "a", `{"data":{"k":"8"}}`)
	s.drifted("app", "DriftDetected", `data.k: "8" → "1"`)
	if err := s.client.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace,
		Name: "b"}}); err != nil {
		t.Fatal(err)
	}
	s.drifted("app", "DriftDetected", "3 of the applied objects drifted", "ConfigMap/"+s.namespace+"/b is gone")
	s.told("app", "DriftDetected", "1 of the applied objects drifted", `data.k: "9" → "1"`)
	s.told("app", "DriftDetected", "2 of the applied objects drifted", "Secret/"+s.namespace+"/login differs")
	s.told("app", "DriftDetected", `data.k: "8" → "1"`)
	s.told("app", "DriftDetected", "3 of the applied objects drifted", "is gone")
	s.ready("app", commit)

	t.Log("neither the interval, a request, nor a restart corrects it, and what is known is told once")
	s.handled(&kustomizev1.Kustomization{}, "app")
	s.stop()
	s.start()
	s.edit("autotuner", &corev1.ConfigMap{}, "a", `{"data":{"k":"7"}}`)
	s.drifted("app", "DriftDetected", "3 of the applied objects drifted", `data.k: "7" → "1"`)
	for _, l := range append(s.requests.about("/configmaps/"), s.requests.about("/secrets/")...) {
		if !strings.HasPrefix(l, "GET") && !strings.Contains(l, "dryRun=All") {
			t.Errorf("changed something: %s", l)
		}
	}
	count := s.told("app", "DriftDetected", `data.k: "7" → "1"`)
	s.handled(&kustomizev1.Kustomization{}, "app")
	if again := s.told("app", "DriftDetected"); again != count {
		t.Errorf("told %d times, then %d", count, again)
	}

	t.Log("what is put right by hand is reported so")
	s.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.namespace, Name: "b",
		Labels: map[string]string{"kustomize.toolkit.fluxcd.io/name": "app",
			"kustomize.toolkit.fluxcd.io/namespace": s.namespace},
	}, Data: map[string]string{"k": "1"}})
	s.drifted("app", "DriftDetected", "ConfigMap/"+s.namespace+"/a differs")

	t.Log("a new revision is applied whole")
	commit = s.git.Commit("app", map[string]string{"c.yaml": cm("c", "1")})
	s.pull("app")
	s.ready("app", commit)
	s.configMap("a", "1")
	s.configMap("b", "1")
	s.configMap("c", "1")
	s.drifted("app", "")
	s.told("app", "DriftResolved", "as they were applied")

	t.Log("the mode takes effect at once")
	s.edit("autotuner", &corev1.ConfigMap{}, "a", `{"data":{"k":"9"}}`)
	s.drifted("app", "DriftDetected", "a differs")
	s.patch(&kustomizev1.Kustomization{}, "app", `{"spec":{"driftDetection":{"mode":"enabled"}}}`)
	s.configMap("a", "1")
	s.drifted("app", "")
}

func TestDriftIsNotLookedAtWhenDisabled(t *testing.T) {
	s := newSystem(t, func(o *Options) { o.Resync = time.Millisecond })
	commit := s.git.Commit("app", map[string]string{"a.yaml": cm("a", "1"), "b.yaml": cm("b", "1")})
	s.source("app")
	s.sync("app", "app", "", driftMode("warn"))
	s.ready("app", commit)
	s.edit("autotuner", &corev1.ConfigMap{}, "a", `{"data":{"k":"9"}}`)
	s.drifted("app", "DriftDetected")
	s.patch(&kustomizev1.Kustomization{}, "app", `{"spec":{"driftDetection":{"mode":"disabled"}}}`)
	s.drifted("app", "")

	s.requests.reset()
	s.handled(&kustomizev1.Kustomization{}, "app")
	s.stop()
	s.start()
	s.handled(&kustomizev1.Kustomization{}, "app")
	for _, l := range append(s.requests.about("/configmaps/"),
		s.requests.about("/configmaps?labelSelector=kustomize")...) {
		t.Errorf("looked: %s", l)
	}
	s.configMap("a", "9")

	t.Log("a new declaration is applied, whole")
	commit = s.git.Commit("app", map[string]string{"b.yaml": cm("b", "2")})
	s.pull("app")
	s.ready("app", commit)
	s.configMap("a", "1")
	s.configMap("b", "2")
}

func TestIgnoredFieldsMayDrift(t *testing.T) {
	for _, mode := range []string{"enabled", "warn"} {
		t.Run(mode, func(t *testing.T) {
			s := newSystem(t)
			commit := s.git.Commit("app", map[string]string{"a.yaml": cm("a", "1"), "b.yaml": cm("b", "1")})
			s.source("app")
			s.sync("app", "app", "", driftMode(mode,
				meta.IgnoreRule{Paths: []string{"/data/k"}, Target: &meta.Selector{Kind: "ConfigMap", Name: "a"}}))
			s.ready("app", commit)
			s.edit("autotuner", &corev1.ConfigMap{}, "a", `{"data":{"k":"9"}}`)
			s.handled(&kustomizev1.Kustomization{}, "app")
			s.drifted("app", "")

			t.Log("also when something else of the set is declared anew")
			commit = s.git.Commit("app", map[string]string{"b.yaml": cm("b", "2")})
			s.pull("app")
			s.ready("app", commit)
			s.configMap("b", "2")
			s.configMap("a", "9")

			t.Log("until the object itself is")
			commit = s.git.Commit("app", map[string]string{"a.yaml": cm("a", "2")})
			s.pull("app")
			s.ready("app", commit)
			s.configMap("a", "2")
		})
	}
}

func TestFieldsOfOthersStayTheirs(t *testing.T) {
	s := newSystem(t)
	commit := s.git.Commit("app", map[string]string{"a.yaml": cm("a", "1"), "b.yaml": cm("b", "1")})
	s.source("app")
	s.sync("app", "app", "", func(k *kustomizev1.Kustomization) {
		k.Spec.Ignore = []meta.IgnoreRule{{Paths: []string{"/data/k"}, Target: &meta.Selector{Name: "a"}}}
	})
	s.ready("app", commit)
	s.edit("autotuner", &corev1.ConfigMap{}, "a", `{"data":{"k":"9"}}`)
	commit = s.git.Commit("app", map[string]string{"a.yaml": cm("a", "2"), "b.yaml": cm("b", "2")})
	s.pull("app")
	s.ready("app", commit)
	s.configMap("b", "2")
	s.configMap("a", "9")
}

func TestTwoWhoDeclareOneObjectAreTold(t *testing.T) {
	s := newSystem(t)
	commit := s.git.Commit("app", map[string]string{"a.yaml": cm("a", "1")})
	s.source("app")
	s.sync("one", "app", "")
	s.ready("one", commit)
	s.sync("two", "app", "")
	s.ready("two", commit)
	s.told("two", "AppliedWithWarnings", "ConfigMap/"+s.namespace+"/a was applied by "+s.namespace+
		"/one before, and now by "+s.namespace+"/two")
}

func TestDriftRulesThatCannotBeReadAreTold(t *testing.T) {
	s := newSystem(t)
	s.git.Commit("app", map[string]string{"a.yaml": cm("a", "1")})
	s.source("app")
	s.sync("app", "app", "", driftMode("enabled", meta.IgnoreRule{Paths: []string{"data.k"}}))
	s.fails(&kustomizev1.Kustomization{}, "app", "ReconciliationFailed",
		"the path 'data.k' of spec.driftDetection.ignore is no JSON pointer")
}

func TestEveryVersionHasDriftDetection(t *testing.T) {
	s := newSystem(t)
	for _, version := range []string{"v1", "v1beta2", "v1beta1"} {
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "kustomize.toolkit.fluxcd.io/" + version, "kind": "Kustomization",
			"metadata": map[string]any{"namespace": s.namespace, "name": "app-" + version},
			"spec": map[string]any{
				"interval": "1h", "prune": true, "sourceRef": map[string]any{"kind": "GitRepository", "name": "app"},
				"driftDetection": map[string]any{"mode": "warn", "ignore": []any{map[string]any{
					"paths": []any{"/spec/replicas"}, "target": map[string]any{"kind": "Deployment"},
				}}},
			},
		}}
		s.create(o)
		k := &kustomizev1.Kustomization{}
		if err := s.get(k, "app-"+version); err != nil {
			t.Fatal(err)
		}
		d := k.Spec.DriftDetection
		if d == nil || d.Mode != "warn" || len(d.Ignore) != 1 || d.Ignore[0].Paths[0] != "/spec/replicas" ||
			d.Ignore[0].Target.Kind != "Deployment" {
			t.Errorf("%s: %+v", version, d)
		}
		o.Object["metadata"] = map[string]any{"namespace": s.namespace, "name": "wrong-" + version}
		if err := unstructured.SetNestedField(o.Object, "sometimes", "spec", "driftDetection", "mode"); err != nil {
			t.Fatal(err)
		}
		if err := s.client.Create(t.Context(), o); !apierrors.IsInvalid(err) {
			t.Errorf("%s takes any mode: %v", version, err)
		}
	}
}
