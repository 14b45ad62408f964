package schema_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"

	"github.com/sluice-gitops/sluice/internal/offline/manifest"
	"github.com/sluice-gitops/sluice/internal/offline/schema"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// TestFaultsAgainstAPIServer puts faults into each field of objects, and compares the verdict with that of an API
// server: a dry-run with strict validation. What it cannot decode must be a problem, and a problem must be refused. It
// also refuses what only its code knows, as invalid.
func TestFaultsAgainstAPIServer(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("testdata/objects.yaml")
	if err != nil {
		t.Fatal(err)
	}
	objects, err := manifest.Decode(content)
	if err != nil {
		t.Fatal(err)
	}
	a := newAPIServer(t)
	definitions, err := schema.ForVersion("")
	if err != nil {
		t.Fatal(err)
	}
	checked, differ := 0, 0
	for _, o := range objects {
		if err := a.create(t, o.Object); err != nil {
			t.Errorf("%s '%s' is refused: %v", o.GetKind(), o.GetName(), err)
			continue
		}
		for _, f := range faultsOf(o.Object) {
			problems, _ := definitions.Check(f.object)
			refused := a.create(t, f.object)
			checked++
			if len(problems) > 0 == (refused != nil) || len(problems) == 0 && apierrors.IsInvalid(refused) {
				continue
			}
			differ++
			t.Errorf("%s, %s %s: we say %v, the API server %v", o.GetKind(), f.rule, f.path, problems, refused)
		}
	}
	t.Logf("%d faults, %d differ", checked, differ)
	if checked < 500 {
		t.Errorf("only %d faults were generated", checked)
	}
}

// apiServer creates objects in dry-runs.
type apiServer struct {
	client    dynamic.Interface
	mapper    *restmapper.DeferredDiscoveryRESTMapper
	namespace string
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	cfg := testenv.Cluster(t)
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	d, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &apiServer{client, restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(d)),
		testenv.Namespace(t)}
}

// create returns why an object is refused.
func (a *apiServer) create(t *testing.T, object map[string]any) error {
	t.Helper()
	o := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(object)}
	gvk := o.GroupVersionKind()
	mapping, err := a.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return err
	}
	var to dynamic.ResourceInterface = a.client.Resource(mapping.Resource)
	if mapping.Scope.Name() == "namespace" {
		to = a.client.Resource(mapping.Resource).Namespace(a.namespace)
	}
	_, err = to.Create(t.Context(), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll},
		FieldValidation: metav1.FieldValidationStrict})
	return err
}

// fault is an object with one fault.
type fault struct {
	rule, path string
	object     map[string]any
}

// faultsOf returns an object with a fault in each field: an unknown field next to it, another type, or no value.
func faultsOf(object map[string]any) (all []fault) {
	walk(object, nil, func(path []any) {
		name, isField := path[len(path)-1].(string)
		if !isField || len(path) == 1 && (name == "apiVersion" || name == "kind") || isName(path) {
			return
		}
		edit := func(rule string, change func(parent map[string]any, v any)) {
			changed := runtime.DeepCopyJSON(object)
			parent := at(changed, path[:len(path)-1]).(map[string]any)
			change(parent, parent[name])
			all = append(all, fault{rule, fmt.Sprint(path), changed})
		}
		edit("unknown field beside", func(parent map[string]any, _ any) { parent[name+"X"] = parent[name] })
		edit("missing", func(parent map[string]any, _ any) { delete(parent, name) })
		edit("a map in place of", func(parent map[string]any, _ any) {
			parent[name] = map[string]any{"x": map[string]any{"y": "z"}}
		})
		edit("a list in place of", func(parent map[string]any, _ any) { parent[name] = []any{[]any{int64(1)}} })
		edit("text in place of", func(parent map[string]any, _ any) { parent[name] = "text" })
		edit("a number in place of", func(parent map[string]any, _ any) { parent[name] = int64(7) })
		edit("a boolean in place of", func(parent map[string]any, _ any) { parent[name] = true })
	})
	return all
}

// isName reports whether a field is a key that people choose: that of a label, for example.
func isName(path []any) bool {
	if len(path) < 2 {
		return false
	}
	parent := fmt.Sprint(path[len(path)-2])
	return slices.Contains([]string{"labels", "annotations", "matchLabels", "data", "stringData", "selector",
		"nodeSelector", "limits", "requests", "hard", "parameters"}, parent) && path[len(path)-1] != "matchLabels"
}

// walk visits the path of each value of an object.
func walk(v any, path []any, visit func(path []any)) {
	if len(path) > 0 {
		visit(slices.Clone(path))
	}
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			walk(v[name], append(path, name), visit)
		}
	case []any:
		for i, item := range v {
			walk(item, append(path, i), visit)
		}
	}
}

func at(v any, path []any) any {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			v = v.(map[string]any)[step]
		case int:
			v = v.([]any)[step]
		}
	}
	return v
}
