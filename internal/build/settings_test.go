package build

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/resid"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/artifact"
)

const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: one, image: nginx:1}
      - {name: two, image: redis:1}
`

var replicasPatch = `[{"op": "add", "path": "/spec/replicas", "value": 3}]`

var webSelector = &types.Selector{ResId: resid.ResId{Gvk: resid.Gvk{Kind: "Deployment"}, Name: "web"}}

var mergedSettings = map[string]struct {
	kustomization string
	req           Request
	has, hasNot   []string
}{
	"the target namespace replaces the one of the file": {
		kustomization: "resources: [d.yaml]\nnamespace: theirs\n", req: Request{TargetNamespace: "ours"},
		has: []string{`"namespace":"ours"`}, hasNot: []string{"theirs"},
	},
	"prefix and suffix replace those of the file": {
		kustomization: "resources: [d.yaml]\nnamePrefix: a-\nnameSuffix: -b\n",
		req:           Request{NamePrefix: "x-", NameSuffix: "-y"},
		has:           []string{`"name":"x-web-y"`},
	},
	"a patch selects by the name in the manifests, before the file adds a prefix": {
		kustomization: "resources: [d.yaml]\nnamePrefix: a-\nnamespace: ns\n",
		req:           Request{Patches: []types.Patch{{Patch: replicasPatch, Target: webSelector}}},
		has:           []string{`"name":"a-web"`, `"replicas":3`},
	},
	"a strategic merge patch without a target does too": {
		kustomization: "resources: [d.yaml]\nnamePrefix: a-\n",
		req: Request{Patches: []types.Patch{{
			Patch: "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n" +
				"spec: {replicas: 3}\n"}}},
		has: []string{`"name":"a-web"`, `"replicas":3`},
	},
	"patches come after those of the file": {
		kustomization: "resources: [d.yaml]\n" +
			"patches: [{target: {kind: Deployment}, patch: '[{\"op\": \"add\", \"path\": " +
			"\"/spec/replicas\", \"value\": 9}]'}]\n",
		req: Request{Patches: []types.Patch{{Patch: replicasPatch, Target: webSelector}}},
		has: []string{`"replicas":3`},
	},
	"a patch may delete": {
		kustomization: "resources: [d.yaml, c.yaml]\n",
		req: Request{Patches: []types.Patch{{Patch: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n" +
			"$patch: delete\n"}}},
		has: []string{"Deployment"}, hasNot: []string{"ConfigMap"},
	},
	"an image changes that of the same name in the file": {
		kustomization: "resources: [d.yaml]\n" +
			"images: [{name: nginx, newName: other, newTag: '2'}, {name: redis, newTag: '2'}]\n",
		req: Request{Images: []types.Image{{Name: "nginx", NewTag: "3"}}},
		has: []string{`"image":"other:3"`, `"image":"redis:2"`},
	},
	"an image keeps what it does not set": {
		kustomization: "resources: [d.yaml]\nimages: [{name: nginx, newTag: '1.2'}]\n",
		req:           Request{Images: []types.Image{{Name: "nginx", NewName: "reg.io/nginx"}}},
		has:           []string{`"image":"reg.io/nginx:1.2"`},
	},
	"a tag replaces a digest": {
		kustomization: "resources: [d.yaml]\nimages: [{name: nginx, digest: 'sha256:" + strings.Repeat("0", 64) +
			"'}]\n",
		req: Request{Images: []types.Image{{Name: "nginx", NewTag: "3"}}},
		has: []string{`"image":"nginx:3"`}, hasNot: []string{"sha256"},
	},
	"numbers are taken for text, and unknown fields are ignored": {
		kustomization: "resources: [d.yaml]\nunknown: 1\nimages: [{name: nginx, newTag: 20240101}]\n" +
			"commonLabels: {x: 1}\n",
		has: []string{`"image":"nginx:20240101"`, `"x":"1"`},
	},
	"the last of several images of a name wins": {
		kustomization: "resources: [d.yaml]\n",
		req: Request{Images: []types.Image{{Name: "nginx", NewTag: "2"},
			{Name: "nginx", Digest: "sha256:" + strings.Repeat("0", 64)}}},
		has: []string{`"image":"nginx@sha256:000`},
	},
	"components apply to the output of the file": {
		kustomization: "resources: [d.yaml]\n", req: Request{Components: []string{"../comp"}},
		has: []string{`"replicas":7`},
	},
	"missing components may be ignored": {
		kustomization: "resources: [d.yaml]\n",
		req:           Request{Components: []string{"../none", "../comp"}, IgnoreMissingComponents: true},
		has:           []string{`"replicas":7`},
	},
	"build metadata is added to that of the file": {
		kustomization: "resources: [d.yaml]\nbuildMetadata: [managedByLabel]\n",
		req:           Request{BuildMetadata: []string{"originAnnotations", "managedByLabel"}},
		has:           []string{"config.kubernetes.io/origin", "app.kubernetes.io/managed-by"},
	},
	"common metadata is set on the object, not on its templates": {
		kustomization: "resources: [d.yaml]\n", req: Request{Labels: map[string]string{"app": "ours", "team": "a"},
			Annotations: map[string]string{"note": "n"}},
		has: []string{`"metadata":{"annotations":{"note":"n"},"labels":{"app":"ours","team":"a"},"name":"web"}`,
			`"matchLabels":{"app":"web"}`, `"template":{"metadata":{"labels":{"app":"web"}}`},
	},
	"settings apply to a generated kustomization": {
		req: Request{TargetNamespace: "ours", NamePrefix: "x-"},
		has: []string{`"name":"x-web"`, `"name":"x-c"`, `"namespace":"ours"`},
	},
	"other fields of the file are kept": {
		kustomization: "resources: [d.yaml]\ncommonLabels: {team: a}\nreplicas: [{name: web, count: 5}]\n" +
			"sortOptions: {order: fifo}\npatchesStrategicMerge: ['{apiVersion: apps/v1, kind: Deployment, " +
			"metadata: {name: web}, spec: {paused: true}}']\n",
		req: Request{TargetNamespace: "ours"},
		has: []string{`"team":"a"`, `"replicas":5`, `"paused":true`},
	},
}

func TestSettingsAreMergedIntoTheKustomization(t *testing.T) {
	for reason, c := range mergedSettings {
		t.Run(reason, func(t *testing.T) {
			files := map[string]string{
				"app/d.yaml": deployment, "app/c.yaml": cm("c"),
				"comp/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n" +
					"patches: [{target: {kind: Deployment}, patch: '[{\"op\": \"add\", \"path\": " +
					"\"/spec/replicas\", \"value\": 7}]'}]\n",
			}
			if c.kustomization != "" {
				files["app/kustomization.yaml"] = c.kustomization
			}
			c.req.Tree, c.req.Path = artifact.FromMap(files), "app"
			result, err := Build(t.Context(), c.req)
			if err != nil {
				t.Fatal(err)
			}
			b, err := json.Marshal(result.Objects)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range c.has {
				if !strings.Contains(string(b), want) {
					t.Errorf("no %s in %s", want, b)
				}
			}
			for _, not := range c.hasNot {
				if strings.Contains(string(b), not) {
					t.Errorf("%s in %s", not, b)
				}
			}
		})
	}
}

func TestComponentsOutsideAreRefused(t *testing.T) {
	for c, hint := range map[string]string{"/comp": "Give a path relative to spec.path",
		"../../comp": "Give a path relative to spec.path", "https://example.com/comp": "Give a path relative to " +
			"spec.path",
		"github.com/a/b": "Give a path relative to spec.path",
		"none":           "Correct the path, which is relative to spec.path, or set spec.ignoreMissingComponents"} {
		_, err := Build(t.Context(), Request{Tree: artifact.FromMap(map[string]string{"app/a.yaml": cm("a")}),
			Path: "app", Components: []string{c}})
		if err == nil || !strings.Contains(err.Error(), "spec.components") ||
			!strings.HasSuffix(err.Error(), ". "+hint) {
			t.Errorf("%s: %v", c, err)
		}
	}
}

// A kustomization is written out again when settings are merged into it: no field may be lost.
func TestAKustomizationSurvivesBeingWritten(t *testing.T) {
	var full types.Kustomization
	fill(reflect.ValueOf(&full).Elem(), 0)
	b, err := yaml.Marshal(full)
	if err != nil {
		t.Fatal(err)
	}
	var again types.Kustomization
	if err := again.Unmarshal(b); err != nil {
		t.Fatal(err)
	}
	second, err := yaml.Marshal(again)
	if err != nil {
		t.Fatal(err)
	}
	if string(b) != string(second) {
		t.Errorf("it was\n%s\nand became\n%s", b, second)
	}
}

// fill sets every field with a JSON name to a non-zero value.
func fill(v reflect.Value, depth int) {
	if depth > 8 || !v.CanSet() {
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth+1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), depth+1)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, depth+1)
		fill(value, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), depth+1)
		}
	}
}
