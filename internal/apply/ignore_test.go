package apply

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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

func (f *fixture) replicas() int64 {
	f.t.Helper()
	n, _, err := unstructured.NestedInt64(f.get(deployments, "app").Object, "spec", "replicas")
	if err != nil {
		f.t.Fatal(err)
	}
	return n
}
