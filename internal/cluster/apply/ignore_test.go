package apply

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

var ignoredFieldEdits = map[string]struct {
	manager     string
	subresource []string
	body        string
}{
	"autoscaler":      {manager: "hpa", subresource: []string{"scale"}, body: `{"spec":{"replicas":5}}`},
	"another manager": {manager: "other", body: `{"spec":{"replicas":5}}`},
	"kubectl":         {manager: "kubectl-patch", body: `{"spec":{"replicas":5}}`},
	"kubectl scale":   {manager: "kubectl", subresource: []string{"scale"}, body: `{"spec":{"replicas":5}}`},
}

func TestIgnoredFieldsAreNotOverwritten(t *testing.T) {
	t.Parallel()
	rules := []Ignored{{
		Matches: func(o *unstructured.Unstructured) bool { return o.GetKind() == "Deployment" },
		Paths: []string{"/spec/replicas", "/spec/template/spec/containers/0/image",
			"/metadata/annotations/example.com~1note"},
	}}
	noted := strings.Replace(drifting, "kind: Deployment\nmetadata: {", `kind: Deployment
metadata: {annotations: {example.com/note: declared}, `, 1)
	for name, by := range ignoredFieldEdits {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			apply := func(f *fixture, text string) []string {
				req := f.request(text)
				req.Ignore = rules
				return f.do(req)
			}
			apply(f, noted)
			if got := f.replicas(); got != 2 {
				t.Fatalf("created with %d replicas", got)
			}
			client := f.client(deployments, f.ns)
			for _, e := range []edit{
				patched(types.MergePatchType, by.manager, by.body, by.subresource...),
				patched(types.StrategicMergePatchType, by.manager,
					`{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"app:9"}]}}}}`),
				patched(types.MergePatchType, by.manager, `{"metadata":{"annotations":{"example.com/note":"theirs"}}}`),
			} {
				if err := e(t.Context(), client, "app"); err != nil {
					t.Fatal(err)
				}
			}
			check := func(when string) {
				t.Helper()
				o := f.get(deployments, "app")
				containers, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
				if err != nil || f.replicas() != 5 || containers[0].(map[string]any)["image"] != "app:9" ||
					o.GetAnnotations()["example.com/note"] != "theirs" {
					t.Errorf("%s: %d replicas, %v, %v", when, f.replicas(), containers, o.GetAnnotations())
				}
			}
			f.waitObserved(deployments, "app")
			apply(f, noted)
			check("second apply")
			apply(f, strings.Replace(noted, `{name: A, value: "1"}`, `{name: A, value: "2"}`, 1))
			check("apply with another change")
			restarted := f.restart()
			for _, change := range apply(restarted,
				strings.Replace(noted, `{name: A, value: "1"}`, `{name: A, value: "2"}`, 1)) {
				if strings.HasPrefix(change, "Deployment") && !strings.HasSuffix(change, " unchanged") {
					t.Errorf("after a restart: %s", change)
				}
			}
			check("apply after a restart")
		})
	}
	keepsFirstValue(t, noted, rules)
}

// keepsFirstValue makes sure that a change of an ignored field is not applied.
func keepsFirstValue(t *testing.T, noted string, rules []Ignored) {
	t.Helper()
	t.Run("ignored field keeps its first value", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		for _, text := range []string{noted, strings.Replace(noted, "replicas: 2", "replicas: 3", 1)} {
			req := f.request(text)
			req.Ignore = rules
			f.do(req)
		}
		if got := f.replicas(); got != 2 {
			t.Errorf("%d replicas", got)
		}
	})
}

// TestIgnoredUndeclaredFieldsAreKept adds fields by managers whose fields are taken over, and so removed.
// Those that a rule ignores stay.
func TestIgnoredUndeclaredFieldsAreKept(t *testing.T) {
	t.Parallel()
	for _, manager := range []string{"kubectl-edit", "kubectl-client-side-apply", "lens"} {
		for _, driftOnly := range []bool{false, true} {
			for _, keepOthers := range []bool{false, true} {
				name := fmt.Sprintf("%s, driftOnly=%v, keepOthers=%v", manager, driftOnly, keepOthers)
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					f := newFixture(t)
					f.managers.overridden = []string{"lens"}
					f.keepsUndeclared(manager, Ignored{DriftOnly: driftOnly, Paths: []string{"/data/extra",
						"/metadata/labels/team", "/metadata/annotations/example.com~1note", "/spec/minReadySeconds",
						"/spec/template/spec/containers/0/resources", "/spec/template/spec/containers/0/env/1"},
						Matches: func(*unstructured.Unstructured) bool { return true }}, keepOthers)
				})
			}
		}
	}
}

func (f *fixture) keepsUndeclared(manager string, rule Ignored, keepOthers bool) {
	f.t.Helper()
	apply := func(f *fixture, text string) {
		req := f.request(text)
		req.Ignore, req.KeepOthers = []Ignored{rule}, keepOthers
		planned, err := f.Diff(f.t.Context(), req)
		for _, c := range planned {
			if err != nil || strings.Contains(c.Diff, "extra") || strings.Contains(c.Diff, "minReady") {
				f.t.Errorf("diff: %s\n%s, %v", c.Ref, c.Diff, err)
			}
		}
		f.do(req)
	}
	apply(f, drifting)
	f.waitSynced()
	for name, body := range map[string]string{
		"config": `[{"op":"add","path":"/metadata/annotations","value":{"example.com/note":"a"}},
			{"op":"add","path":"/metadata/labels/team","value":"a"},
			{"op":"add","path":"/metadata/labels/other","value":"a"},
			{"op":"add","path":"/data/extra","value":"1"},{"op":"add","path":"/data/other","value":"1"}]`,
		"app": `[{"op":"add","path":"/spec/minReadySeconds","value":3},{"op":"add","path":"/spec/paused","value":true},
			{"op":"add","path":"/spec/template/spec/containers/0/env/1","value":{"name":"B","value":"1"}},
			{"op":"add","path":"/spec/template/spec/containers/0/resources","value":{"limits":{"cpu":"1"}}}]`,
	} {
		resource := map[string]schema.GroupVersionResource{"config": configMaps, "app": deployments}[name]
		if err := patched(types.JSONPatchType, manager, body)(f.t.Context(), f.client(resource, f.ns),
			name); err != nil {
			f.t.Fatal(err)
		}
		f.waitObserved(resource, name)
	}
	removed := !keepOthers || manager == "lens"
	check := func(when string) {
		f.t.Helper()
		cm, app := f.get(configMaps, "config"), f.get(deployments, "app")
		data, _ := cm.Object["data"].(map[string]any)
		seconds, _, _ := unstructured.NestedInt64(app.Object, "spec", "minReadySeconds")
		containers, _, _ := unstructured.NestedSlice(app.Object, "spec", "template", "spec", "containers")
		container := containers[0].(map[string]any)
		env, _ := container["env"].([]any)
		limit, _, _ := unstructured.NestedString(container, "resources", "limits", "cpu")
		if data["extra"] != "1" || cm.GetLabels()["team"] != "a" || cm.GetAnnotations()["example.com/note"] != "a" ||
			seconds != 3 || limit != "1" || len(env) != 2 {
			f.t.Errorf("%s: ignored fields were changed: %v", when, app.Object["spec"])
		}
		paused, _, _ := unstructured.NestedBool(app.Object, "spec", "paused")
		if data["other"] == nil != removed || cm.GetLabels()["other"] == "" != removed || paused == removed {
			f.t.Errorf("%s: other fields are %v, %v, paused=%v", when, data, cm.GetLabels(), paused)
		}
	}
	apply(f, drifting)
	check("second apply")
	changed := strings.NewReplacer(`b: "2"`, `b: "3"`, "replicas: 2", "replicas: 3").Replace(drifting)
	apply(f, changed)
	check("apply with another change")
	restarted := f.restart()
	restarted.managers = f.managers
	apply(restarted, changed)
	check("apply after a restart")
}

func (f *fixture) replicas() int64 {
	f.t.Helper()
	n, _, err := unstructured.NestedInt64(f.get(deployments, "app").Object, "spec", "replicas")
	if err != nil {
		f.t.Fatal(err)
	}
	return n
}
