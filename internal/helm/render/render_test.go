package render_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/helm/render"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// one is a request for release 'team/app' of a chart with files.
func one(t testing.TB, files map[string]string) render.Request {
	t.Helper()
	return render.Request{
		Chart:       testenv.ChartArchive(t, "shop", "1.2.3", files),
		Release:     render.Release{Name: "app", Namespace: "team", Revision: 1, IsInstall: true},
		KubeVersion: "v1.34.1", APIVersions: []string{"v1", "apps/v1"},
	}
}

func newRenderer(t testing.TB, o render.Options) *render.Renderer {
	t.Helper()
	r := render.New(o)
	t.Cleanup(r.Close)
	return r
}

// contents returns the rendered files by name.
func contents(result *render.Result) map[string]string {
	files := map[string]string{}
	for _, f := range result.Files {
		files[f.Name] = f.Content
	}
	return files
}

// wide makes the tests independent of the speed of the machine.
const wide = 10 * time.Minute

var renderCases = map[string]struct {
	files  map[string]string
	change func(*render.Request)
	want   map[string]string
}{
	"built-in objects": {
		files: map[string]string{
			"values.yaml": "color: red\n",
			"templates/a.yaml": "{{ .Release.Name }} {{ .Release.Namespace }} {{ .Release.Revision }} " +
				"{{ .Release.IsInstall }} {{ .Chart.Name }} {{ .Chart.Version }} {{ .Values.color }} " +
				"{{ .Template.Name }}",
			"templates/b.yaml": "{{ .Capabilities.KubeVersion }} {{ .Capabilities.KubeVersion.Minor }} " +
				"{{ .Capabilities.APIVersions.Has \"apps/v1\" }} {{ .Capabilities.APIVersions.Has \"x/v1\" }}",
			"templates/NOTES.txt":    "Thanks",
			"templates/_helpers.tpl": "never rendered",
			"templates/c.yaml":       `{{ .Files.Get "motd.txt" }}`,
			"motd.txt":               "hello",
		},
		want: map[string]string{
			"shop/templates/a.yaml":    "app team 1 true shop 1.2.3 red shop/templates/a.yaml",
			"shop/templates/b.yaml":    "v1.34.1 34 true false",
			"shop/templates/NOTES.txt": "Thanks",
			"shop/templates/c.yaml":    "hello",
		},
	},
	"types of numbers": {
		files: map[string]string{
			"templates/a.yaml": "{{ .Values.int }} {{ .Values.float }} {{ .Values.none | kindOf }}"},
		change: func(q *render.Request) {
			q.Values = map[string]any{"int": int64(1000000), "float": float64(1000000), "none": nil}
		},
		want: map[string]string{"shop/templates/a.yaml": "1000000 1e+06 invalid"},
	},
	"server version of a cloud": {
		files:  map[string]string{"templates/a.yaml": "{{ .Capabilities.KubeVersion.Minor }}"},
		change: func(q *render.Request) { q.KubeMajor, q.KubeMinor = "1", "34+" },
		want:   map[string]string{"shop/templates/a.yaml": "34+"},
	},
	"no DNS, no lookup": {
		files: map[string]string{
			"templates/a.yaml": `[{{ getHostByName "localhost" }}]{{ lookup "v1" "Secret" "team" "x" }}`},
		want: map[string]string{"shop/templates/a.yaml": "[]map[]"},
	},
	"braces in output": {
		files: map[string]string{"templates/a.yaml": "{{ \"{{ .Values.x }}\" }}"},
		want:  map[string]string{"shop/templates/a.yaml": "{{ .Values.x }}"},
	},
}

func TestRender(t *testing.T) {
	r := newRenderer(t, render.Options{Timeout: wide, Children: 1})
	for name, test := range renderCases {
		t.Run(name, func(t *testing.T) {
			q := one(t, test.files)
			if test.change != nil {
				test.change(&q)
			}
			result, err := r.Render(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			if got := contents(result); !maps.Equal(got, test.want) {
				t.Errorf("rendered %q, want %q", got, test.want)
			}
		})
	}
}

func TestRenderKeepsTheOrderOfTheEngine(t *testing.T) {
	r := newRenderer(t, render.Options{Timeout: wide, Children: 1})
	result, err := r.Render(t.Context(), one(t, map[string]string{
		"templates/a.yaml": "a", "templates/b.yaml": "b", "templates/deep/a.yaml": "c", "values.yaml": "x: {size: 1}",
	}))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range result.Files {
		names = append(names, f.Name)
	}
	want := []string{"shop/templates/deep/a.yaml", "shop/templates/b.yaml", "shop/templates/a.yaml"}
	if !slices.Equal(names, want) {
		t.Errorf("the order is %q, want %q", names, want)
	}
	if x, _ := result.Values["x"].(map[string]any); x["size"] != 1.0 {
		t.Errorf("the values are %v, want the defaults of the chart", result.Values)
	}
}

// replicasSchema requires a number of replicas.
const replicasSchema = `{"type": "object", "required": ["replicas"], "properties": {"replicas": {"type": "integer"}, ` +
	`"remote": {"$ref": "https://example.com/schema.json#/definitions/x"}}}`

var errorCases = map[string]struct {
	files   map[string]string
	change  func(*render.Request)
	message string
}{
	"missing value": {
		files: map[string]string{"templates/a.yaml": "x:\n{{ .Values.a.b }}"},
		message: "shop/templates/a.yaml:2:10\n  executing \"shop/templates/a.yaml\" at <.Values.a.b>:\n" +
			"    nil pointer evaluating interface {}.b",
	},
	"syntax": {
		files:   map[string]string{"templates/a.yaml": "{{ if }}"},
		message: "parse error at (shop/templates/a.yaml:1): missing value for if",
	},
	"required": {
		files:   map[string]string{"templates/a.yaml": `{{ required "set x" .Values.x }}`},
		message: "execution error at (shop/templates/a.yaml:1:3): set x",
	},
	"recursive include": {
		files: map[string]string{
			"templates/a.yaml": `{{ define "r" }}{{ include "r" . }}{{ end }}{{ include "r" . }}`},
		message: "rendering template has a nested reference name: r: unable to execute template",
	},
	"values against the schema": {
		files: map[string]string{"values.schema.json": replicasSchema, "templates/a.yaml": ""},
		message: "values don't meet the specifications of the schema(s) in the following chart(s):\nshop:\n" +
			"- at '': missing property 'replicas'",
	},
	"type against the schema": {
		files:  map[string]string{"values.schema.json": replicasSchema, "templates/a.yaml": ""},
		change: func(q *render.Request) { q.Values = map[string]any{"replicas": "two", "remote": "any"} },
		message: "values don't meet the specifications of the schema(s) in the following chart(s):\nshop:\n" +
			"- at '/replicas': got string, want integer",
	},
	"local file in a schema": {
		files:   map[string]string{"values.schema.json": `{"$ref": "file:///etc/passwd"}`, "templates/a.yaml": ""},
		message: "the schema refers to 'file:///etc/passwd', which is not part of it",
	},
	"version of Kubernetes": {
		files: map[string]string{
			"Chart.yaml": "apiVersion: v2\nname: shop\nversion: 1.0.0\nkubeVersion: '>=1.99'\n"},
		message: "chart requires kubeVersion: >=1.99 which is incompatible with Kubernetes v1.34.1",
	},
	"library chart": {
		files:   map[string]string{"Chart.yaml": "apiVersion: v2\nname: shop\nversion: 1.0.0\ntype: library\n"},
		message: "library charts are not installable",
	},
	"not a chart": {
		change:  func(q *render.Request) { q.Chart = []byte("<html>not found</html>") },
		message: "cannot load the chart: ",
	},
}

func TestErrorsInHelmsWords(t *testing.T) {
	r := newRenderer(t, render.Options{Timeout: wide, Children: 1})
	for name, test := range errorCases {
		t.Run(name, func(t *testing.T) {
			q := one(t, test.files)
			if test.change != nil {
				test.change(&q)
			}
			_, err := r.Render(t.Context(), q)
			var own *render.Error
			if !errors.As(err, &own) || !strings.Contains(own.Message, test.message) {
				t.Errorf("the error is %v, want one of the chart with %q", err, test.message)
			}
		})
	}
}

func TestSchemaIsSkipped(t *testing.T) {
	r := newRenderer(t, render.Options{Timeout: wide, Children: 1})
	q := one(t, map[string]string{"values.schema.json": `{"required": ["x"]}`, "templates/a.yaml": "a"})
	q.SkipSchemaValidation = true
	if _, err := r.Render(t.Context(), q); err != nil {
		t.Error(err)
	}
}

func TestLookup(t *testing.T) {
	r := newRenderer(t, render.Options{Timeout: wide, Children: 1})
	q := one(t, map[string]string{"templates/a.yaml": `{{ (lookup "v1" "Secret" "team" "key").data.n }} ` +
		`{{ len (lookup "v1" "Pod" "team" "").items }} {{ lookup "v1" "Secret" "team" "none" }}`})
	q.Lookup = func(_ context.Context, apiVersion, kind, namespace, name string) (map[string]any, error) {
		switch {
		case apiVersion != "v1" || namespace != "team":
			return nil, errors.New("an unexpected lookup")
		case kind == "Pod":
			return map[string]any{"items": []any{map[string]any{}, map[string]any{}}}, nil
		case name == "key":
			return map[string]any{"data": map[string]any{"n": int64(3000000)}}, nil
		}
		return nil, nil
	}
	result, err := r.Render(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if got := result.Files[0].Content; got != "3000000 2 map[]" {
		t.Errorf("rendered %q", got)
	}

	q.Lookup = func(context.Context, string, string, string, string) (map[string]any, error) {
		return nil, errors.New("secrets is forbidden: user 'x' cannot get secrets")
	}
	if _, err = r.Render(t.Context(), q); err == nil || !strings.Contains(err.Error(), "secrets is forbidden") {
		t.Errorf("a refused lookup: %v", err)
	}
	q = one(t, map[string]string{"templates/a.yaml": `{{ range until 1100 }}{{ lookup "v1" "Pod" "x" "y" }}{{ end }}`})
	q.Lookup = func(context.Context, string, string, string, string) (map[string]any, error) { return nil, nil }
	if _, err = r.Render(t.Context(), q); err == nil || !strings.Contains(err.Error(), "look up more than 1000 times") {
		t.Errorf("too many lookups: %v", err)
	}
}
