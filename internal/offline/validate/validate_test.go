package validate

import (
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/helm/render"
	"github.com/sluice-gitops/sluice/internal/offline/schema"
)

const deployment = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: nginx
`

const crd = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boxes.example.com}
spec:
  group: example.com
  names: {kind: Box, plural: boxes}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [size]
            properties:
              size: {type: integer, minimum: 1}
              color: {type: string, enum: [red, blue]}
              free: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

func scaled(replicas string) string {
	return strings.Replace(deployment, "spec:\n", "spec:\n  replicas: "+replicas+"\n", 1)
}

func box(spec string) string {
	return "apiVersion: example.com/v1\nkind: Box\nmetadata: {name: b}\nspec:\n  " + spec + "\n"
}

// TestProblems compares the problems of repositories, with their places.
func TestProblems(t *testing.T) {
	templates := render.New(render.Options{Children: 1})
	t.Cleanup(templates.Close)
	for name, c := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"no problem": {files: map[string]string{"a.yaml": deployment, "values.yaml": "replicas: 1", "x.json": "[1, 2]",
			"other.yaml": "kind: [", "b.yaml": "# nothing\n---\n---\n" + deployment}},
		"unknown field": {files: map[string]string{"a/b.yaml": "# comment\n---\n" + deployment + "        imag: x\n"},
			want: []string{"a/b.yaml:15: Deployment/web spec.template.spec.containers[0].imag: unknown field"}},
		"wrong type": {files: map[string]string{"a.yaml": scaled("two")},
			want: []string{"a.yaml:6: Deployment/web spec.replicas: must be an integer, not text"}},
		"missing field": {
			files: map[string]string{"a.yaml": strings.Replace(deployment, "- name: web", "- tty: true", 1)},
			want:  []string{"a.yaml:11: Deployment/web spec.template.spec.containers[0].name: is required"}},
		"key twice": {files: map[string]string{"a.yaml": deployment + "kind: Deployment\n"},
			want: []string{`a.yaml:13: key "kind" already set in map`}},
		"no YAML": {files: map[string]string{"a.yaml": "---\napiVersion: v1\nkind: Pod\n\tx: 1\n"},
			want: []string{"a.yaml:4: found a tab character that violates indentation"}},
		"old version": {files: map[string]string{"a.yaml": strings.Replace(deployment, "apps/v1", "apps/v1beta1", 1)},
			want: []string{"a.yaml:2: Deployment/web kind: Kubernetes 1.37.2 has no kind Deployment of apps/v1beta1: " +
				"use apps/v1"}},
		"items of a list": {files: map[string]string{"a.yaml": "apiVersion: v1\nkind: List\nitems:\n" +
			"- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: a}\n  data:\n    a: 1\n"},
			want: []string{"a.yaml:8: ConfigMap/a data.a: must be text, not a number: quote it"}},
		"definition in the repository": {files: map[string]string{"crds/box.yaml": crd, "a.yaml": box("size: 0"),
			"b.yaml": box("color: green"), "c.yaml": box("size: 1\n  free: {a: 1}"),
			"d.yaml": box("size: 1\n  weight: 2")},
			want: []string{"a.yaml:5: Box/b spec.size: 0 is too small: the minimum is 1",
				"b.yaml:4: Box/b spec.size: is required", "b.yaml:5: Box/b spec.color: green is not one of red, blue",
				"d.yaml:6: Box/b spec.weight: unknown field"}},
		"live object of a definition": {files: map[string]string{"crds/box.yaml": crd, "a.yaml": strings.Replace(
			box("size: 1"), "{name: b}", "{name: b, managedFields: [{manager: m, fieldsV1: {\"f:spec\": {}}}]}", 1)}},
		"kind of Sluice": {files: map[string]string{"a.yaml": "apiVersion: kustomize.toolkit.fluxcd.io/v1\n" +
			"kind: Kustomization\nmetadata: {name: a}\nspec:\n  interval: 1h\n  prune: yes please\n" +
			"  sourceRef: {kind: GitRepository, name: a}\n"},
			want: []string{"a.yaml:6: Kustomization/a spec.prune: must be true or false, not text"}},
		"base and overlay": {files: map[string]string{"base/kustomization.yaml": "resources: [d.yaml]",
			"base/d.yaml":     deployment + "        imag: x\n",
			"prod/patch.yaml": "- op: add\n  path: /spec/replicas\n  value: many\n",
			"prod/kustomization.yaml": "resources: [../base]\n" +
				"patches:\n- path: patch.yaml\n  target: {kind: Deployment}\n"},
			want: []string{"base/d.yaml:5: Deployment/web spec.replicas: must be an integer, not text",
				"base/d.yaml:13: Deployment/web spec.template.spec.containers[0].imag: unknown field"}},
		"build that fails": {files: map[string]string{"app/kustomization.yaml": "resources: [none.yaml]"},
			want: []string{"app/kustomization.yaml: "}},
		"variables of a Kustomization": {files: map[string]string{
			"sync.yaml": "apiVersion: kustomize.toolkit.fluxcd.io/v1\n" +
				"kind: Kustomization\nmetadata: {name: a}\nspec:\n  interval: 1h\n  prune: true\n  path: ./app\n" +
				"  sourceRef: {kind: GitRepository, name: a}\n  postBuild: {substitute: {n: \"2\"}}\n",
			"app/a.yaml": scaled("${n}")}},
		"chart": {files: map[string]string{"chart/Chart.yaml": "apiVersion: v2\nname: c\nversion: 1.0.0\n",
			"chart/values.yaml":          "replicas: many\n",
			"chart/templates/web.yaml":   scaled("{{ .Values.replicas }}"),
			"chart/templates/_help.tpl":  "{{/* nothing */}}",
			"chart/templates/other.yaml": "{{ if .Values.other }}x: {{ end }}"},
			want: []string{"chart/templates/web.yaml:6: Deployment/web spec.replicas: must be an integer, not text"}},
		"chart that fails": {files: map[string]string{"chart/Chart.yaml": "apiVersion: v2\nname: c\nversion: 1.0.0\n",
			"chart/templates/web.yaml": "{{ fail \"no\" }}"},
			want: []string{"chart/"}},
		"encrypted": {files: map[string]string{"a.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n" +
			"data: {a: 'ENC[AES256_GCM,data:x]'}\nsops: {version: 3.9.0}\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			definitions, err := schema.ForVersion("")
			if err != nil {
				t.Fatal(err)
			}
			got, err := Run(t.Context(), Options{Files: artifact.FromMap(c.files), Definitions: definitions,
				Renderer: templates})
			if err != nil {
				t.Fatal(err)
			}
			var lines []string
			for _, p := range got.Problems {
				lines = append(lines, p.String())
			}
			if len(lines) != len(c.want) {
				t.Fatalf("problems are\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(c.want, "\n"))
			}
			for i, want := range c.want {
				if !strings.HasPrefix(lines[i], want) {
					t.Errorf("problem %d is\n%s\nwant\n%s", i, lines[i], want)
				}
			}
		})
	}
}
