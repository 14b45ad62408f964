package render_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	release "helm.sh/helm/v4/pkg/release/v1"

	"github.com/sluice-gitops/sluice/internal/helm/render"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// umbrella is a chart with everything that dependencies can do.
var umbrella = map[string]string{
	"Chart.yaml": `apiVersion: v2
name: umbrella
version: 2.0.0
dependencies:
- {name: common, version: 1.x.x, repository: ""}
- {name: web, version: 1.x.x, repository: "", alias: front, condition: front.enabled}
- {name: web, version: 1.x.x, repository: "", alias: back, tags: [backend]}
- {name: db, version: 1.x.x, repository: "", condition: db.enabled,
   import-values: [connection, {child: settings, parent: database}]}
`,
	"values.yaml": `front: {enabled: true, replicas: 2}
db: {enabled: true}
tags: {backend: true}
global: {region: eu}
braces: "{{ not a template }}"
`,
	"values.schema.json": `{"type": "object"}`,
	"README.md":          "about",
	"crds/one.yaml": "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n" +
		"metadata: {name: ones.example.com}\n",
	"templates/NOTES.txt": "Region {{ .Values.global.region }}",
	"templates/main.yaml": `apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-main}
data:
  port: {{ .Values.port | quote }}
  size: {{ .Values.database.size | quote }}
  braces: {{ .Values.braces | quote }}
  odd: {{ "{{- }} {{ /* {{" | quote }}
`,
	"templates/hook.yaml": `apiVersion: batch/v1
kind: Job
metadata:
  name: {{ .Release.Name }}-migrate
  annotations: {helm.sh/hook: pre-install, helm.sh/hook-weight: "3"}
`,
	"charts/common/Chart.yaml":           "apiVersion: v2\nname: common\nversion: 1.0.0\ntype: library\n",
	"charts/common/templates/_names.tpl": `{{ define "common.name" }}{{ .Release.Name }}-{{ .Chart.Name }}{{ end }}`,
	"charts/web/Chart.yaml":              "apiVersion: v2\nname: web\nversion: 1.4.0\n",
	"charts/web/values.yaml":             "replicas: 1\n",
	"charts/web/crds/web.yaml": "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n" +
		"metadata: {name: webs.example.com}\n",
	"charts/web/templates/NOTES.txt": "web",
	"charts/web/templates/web.yaml": `apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ include "common.name" . }}}
spec: {replicas: {{ .Values.replicas }}, region: {{ .Values.global.region }}}
`,
	"charts/db/Chart.yaml":  "apiVersion: v2\nname: db\nversion: 1.1.0\n",
	"charts/db/values.yaml": "exports: {connection: {port: 5432}}\nsettings: {size: 10Gi}\n",
	"charts/db/templates/db.yaml": `apiVersion: v1
kind: Service
metadata: {name: {{ include "common.name" . }}}
`,
}

// template runs Helm's install action without a cluster.
func template(t *testing.T, ch *chart.Chart, values map[string]any) *release.Release {
	t.Helper()
	install := action.NewInstall(action.NewConfiguration())
	install.DryRunStrategy, install.ReleaseName, install.Namespace = action.DryRunClient, "app", "team"
	released, err := install.Run(ch, values)
	if err != nil {
		t.Fatal(err)
	}
	return released.(*release.Release)
}

func load(t *testing.T, archive []byte) *chart.Chart {
	t.Helper()
	ch, err := loader.LoadArchive(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestPrerenderedEqualsHelm compares Helm's install action on a chart with the same action on the prerendered chart.
func TestPrerenderedEqualsHelm(t *testing.T) {
	archive := testenv.ChartArchive(t, "umbrella", "2.0.0", umbrella)
	r := newRenderer(t, render.Options{Timeout: wide, Children: 1})
	tests := map[string]map[string]any{
		"all dependencies":    {},
		"condition disables":  {"front": map[string]any{"enabled": false}},
		"tag disables":        {"tags": map[string]any{"backend": false}},
		"no import":           {"db": map[string]any{"enabled": false}, "database": map[string]any{"size": "1Gi"}},
		"parent before child": {"port": int64(1), "back": map[string]any{"replicas": 7.0}},
	}
	for name, values := range tests {
		t.Run(name, func(t *testing.T) {
			result, err := r.Render(t.Context(), render.Request{Chart: archive, Values: values,
				Release:     render.Release{Name: "app", Namespace: "team", Revision: 1, IsInstall: true},
				KubeVersion: common.DefaultCapabilities.KubeVersion.Version})
			if err != nil {
				t.Fatal(err)
			}
			want := template(t, load(t, archive), values)
			original := load(t, archive)
			got := template(t, render.Prerendered(original, result), values)
			if len(got.Chart.CRDObjects()) != len(want.Chart.CRDObjects()) {
				t.Errorf("%d CRDs, want %d", len(got.Chart.CRDObjects()), len(want.Chart.CRDObjects()))
			}
			got.Info, want.Info = &release.Info{Notes: got.Info.Notes}, &release.Info{Notes: want.Info.Notes}
			got.Chart = render.Processed(original, got.Chart)
			if a, b := asJSON(t, got), asJSON(t, want); a != b {
				t.Errorf("the release is\n%s\nwant\n%s", a, b)
			}
		})
	}
}

func TestDefinitionsOfDisabledDependenciesAreLeftOut(t *testing.T) {
	ch, err := loader.LoadArchive(bytes.NewReader(testenv.ChartArchive(t, "umbrella", "2.0.0", umbrella)))
	if err != nil {
		t.Fatal(err)
	}
	off := map[string]any{"enabled": false}
	for name, c := range map[string]struct {
		values map[string]any
		want   int
	}{
		"all are enabled": {want: 3},
		"one is disabled": {values: map[string]any{"front": off}, want: 2},
		"both aliases are disabled": {values: map[string]any{"front": off, "tags": map[string]any{"backend": false}},
			want: 1},
	} {
		crds, err := render.CRDs(ch, c.values)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, d := range crds {
			names = append(names, d.Filename)
		}
		if len(names) != c.want {
			t.Errorf("%s: %v", name, names)
		}
	}
	if all := ch.CRDObjects(); len(all) != 2 {
		t.Errorf("the chart was changed: it has %d files", len(all))
	}
}
