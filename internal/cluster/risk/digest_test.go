package risk

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-gitops/sluice/internal/credentials/seal"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

func tree(kind string, fields map[string]any) *unstructured.Unstructured {
	o := map[string]any{"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": "web",
		"resourceVersion": "1", "uid": "a", "generation": int64(1), "creationTimestamp": "2026-11-23T10:00:00Z",
		"annotations": map[string]any{"note": "a"}},
		"data": map[string]any{"a": "aHVudGVyMg==", "b": "b"}, "status": map[string]any{"replicas": int64(1)}}
	for k, v := range fields {
		o[k] = v
	}
	return &unstructured.Unstructured{Object: o}
}

var digestKey = seal.New([]byte("0123456789abcdef0123456789abcdef"))

func digestOf(inputs string, edit func(*Change), objects ...*unstructured.Unstructured) string {
	c := &Change{Owner: Owner{Kind: "Kustomization", Namespace: "apps", Name: "web"}, Revision: "main@sha1:a"}
	for _, o := range objects {
		c.Objects = append(c.Objects, NewObject(Created, nil, o, nil))
	}
	edit(c)
	c.Identify(digestKey.Seal, inputs)
	return c.Digest()
}

// TestDigest checks that a digest stands for what is written, and not for what the API server sets.
func TestDigest(t *testing.T) {
	change := func(edit func(*Change), fields map[string]any) string {
		return digestOf("inputs", edit, tree("Secret", fields))
	}
	nothing := func(*Change) {}
	same := change(nothing, nil)
	for name, tc := range map[string]struct {
		edit   func(*Change)
		fields map[string]any
		want   bool // the digest is the same
	}{
		"again":  {want: true},
		"status": {fields: map[string]any{"status": map[string]any{"replicas": int64(2)}}, want: true},
		"resource version": {fields: map[string]any{"metadata": map[string]any{"name": "web", "resourceVersion": "2",
			"annotations": map[string]any{"note": "a"}}}, want: true},
		"spec":              {fields: map[string]any{"spec": map[string]any{"replicas": int64(2)}}},
		"value of a Secret": {fields: map[string]any{"data": map[string]any{"a": "aHVudGVyMw==", "b": "b"}}},
		"annotation of a Secret": {fields: map[string]any{"metadata": map[string]any{"name": "web",
			"annotations": map[string]any{"note": "b"}}}},
		"action":   {edit: func(c *Change) { c.Objects[0].Action = Deleted }},
		"owner":    {edit: func(c *Change) { c.Owner.Name = "other" }},
		"revision": {edit: func(c *Change) { c.Revision = "main@sha1:b" }},
		"more": {edit: func(c *Change) {
			c.Objects = append(c.Objects, Object{Action: Created, Kind: "Role", Name: "x"})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.edit == nil {
				tc.edit = nothing
			}
			if got := change(tc.edit, tc.fields) == same; got != tc.want {
				t.Errorf("the digest is the same: %t, want %t", got, tc.want)
			}
		})
	}
	if digestOf("other values", nothing, tree("Secret", nil)) == same {
		t.Error("the inputs are not part of the digest")
	}
	without := &Change{Objects: []Object{NewObject(Created, nil, tree("Secret", nil), nil)}}
	if without.Identify((*seal.Key)(nil).Seal, ""); without.Digest() != "" {
		t.Error("a digest without a key")
	}
}

// TestDigestCoversEachMutation changes one thing at a time, in random places: each is another change.
func TestDigestCoversEachMutation(t *testing.T) {
	random := rand.New(rand.NewPCG(37, 5))
	nothing := func(*Change) {}
	seen := map[string]int{digestOf("in", nothing, tree("ConfigMap", nil), tree("Secret", nil)): -1}
	for n := range 500 {
		kinds := []string{"ConfigMap", "Secret"}
		o := tree(kinds[random.IntN(2)], nil)
		inputs, value := "in", fmt.Sprint("value-", n)
		switch random.IntN(5) {
		case 0:
			o.SetAnnotations(map[string]string{"note": value})
		case 1:
			o.Object["data"].(map[string]any)[[]string{"a", "b", value}[random.IntN(3)]] = value
		case 2:
			o.SetLabels(map[string]string{value: "x"})
		case 3:
			o.Object["stringData"] = map[string]any{"x": value}
		default:
			inputs = value // values of a chart, variables, or its content
		}
		objects := []*unstructured.Unstructured{tree("ConfigMap", nil), tree("Secret", nil)}
		objects[map[string]int{"ConfigMap": 0, "Secret": 1}[o.GetKind()]] = o
		digest := digestOf(inputs, nothing, objects...)
		if other, ok := seen[digest]; ok {
			t.Fatalf("mutations %d and %d have the same digest", n, other)
		}
		seen[digest] = n
	}
}

// TestDigestWithoutRandomValues checks that only values are left out that differ between two renders.
func TestDigestWithoutRandomValues(t *testing.T) {
	render := func(random, fixed string) *unstructured.Unstructured {
		return tree("Secret", map[string]any{"data": map[string]any{"random": random, "fixed": fixed}})
	}
	digest := func(random, again, fixed string) string {
		known := redact.Compare([]*unstructured.Unstructured{render(random, fixed)},
			[]*unstructured.Unstructured{render(again, fixed)})
		return digestOf("in", func(c *Change) { c.LeaveOut(known) }, render(random, fixed))
	}
	if digest("YQ==", "Yg==", "eA==") != digest("Yw==", "ZA==", "eA==") {
		t.Error("random values are part of the digest")
	}
	if digest("YQ==", "Yg==", "eA==") == digest("YQ==", "Yg==", "eQ==") {
		t.Error("other values are not part of the digest")
	}
	if digest("YQ==", "YQ==", "eA==") == digest("Yg==", "Yg==", "eA==") {
		t.Error("values that are not random are not part of the digest")
	}
}
