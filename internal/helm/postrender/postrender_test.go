package postrender_test

import (
	"strings"
	"testing"

	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/helm/postrender"
	"github.com/sluice-gitops/sluice/internal/helm/render"
)

const webFile = `# the front end
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "web:1.0"}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: "8080"}
data: {port: "8080", yes: "yes"}
`

const hookFile = `apiVersion: batch/v1
kind: Job
metadata: {name: migrate, annotations: {helm.sh/hook: pre-install}}
`

func kustomize(k helmv2.Kustomize) helmv2.PostRenderer { return helmv2.PostRenderer{Kustomize: &k} }

// change changes rendered files, and returns the text of the manifests and of the hooks as Helm sorts them.
func change(t *testing.T, o postrender.Options, files ...render.File) (manifests, hooks string) {
	t.Helper()
	changed, err := postrender.Change(t.Context(), files, o)
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]string{}
	for _, f := range changed {
		byName[f.Name] = f.Content
	}
	sortedHooks, sorted, err := releaseutil.SortManifests(byName, nil, releaseutil.InstallOrder)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range sorted {
		manifests += "---\n" + m.Content + "\n"
	}
	for _, h := range sortedHooks {
		hooks += "---\n" + h.Manifest
	}
	return manifests, hooks
}

var ownerLabels = map[string]string{"helm.toolkit.fluxcd.io/name": "app"}

var webDeployment = meta.Selector{Kind: "Deployment", Name: "web"}

var postRenderCases = map[string]struct {
	options            postrender.Options
	want, never, hooks []string // in the manifests, in the hooks
}{
	"nothing": {want: []string{"# the front end\n", `metadata: {name: web, labels: {app: web}}`}},
	"labels": {
		options: postrender.Options{Labels: ownerLabels, CommonMetadata: &meta.CommonMetadata{
			Labels:      map[string]string{"team": "a", "helm.toolkit.fluxcd.io/name": "other"},
			Annotations: map[string]string{"size": "10"}}},
		want:  []string{"helm.toolkit.fluxcd.io/name: app", "team: a", `size: "10"`, `port: "8080"`, `"true": "yes"`},
		never: []string{"postrender-filename", "other"},
		hooks: []string{"helm.toolkit.fluxcd.io/name: app", "team: a", `size: "10"`, "helm.sh/hook: pre-install"},
	},
	"labels of separate hooks": {
		options: postrender.Options{Labels: ownerLabels, Strategy: "separate"},
		hooks:   []string{"helm.toolkit.fluxcd.io/name: app"},
	},
	"no hooks": {
		options: postrender.Options{Labels: ownerLabels, Strategy: "nohooks"},
		want:    []string{"helm.toolkit.fluxcd.io/name: app"},
		hooks:   []string{"metadata: {name: migrate, annotations: {helm.sh/hook: pre-install}}\n"},
	},
	"patches in order": {
		options: postrender.Options{Labels: ownerLabels, PostRenderers: []helmv2.PostRenderer{
			kustomize(helmv2.Kustomize{Patches: []helmv2.Patch{
				{Patch: `[{"op": "add", "path": "/spec/replicas", "value": 2}]`, Target: &webDeployment}}}),
			{},
			kustomize(helmv2.Kustomize{
				PatchesStrategicMerge: []apiextensionsv1.JSON{{Raw: []byte(`{"apiVersion": "apps/v1", ` +
					`"kind": "Deployment", "metadata": {"name": "web"}, "spec": {"paused": true}}`)}},
				PatchesJSON6902: []meta.JSON6902Patch{{Target: webDeployment, Patch: []meta.JSON6902{{Op: "test",
					Path: "/spec/replicas", Value: &apiextensionsv1.JSON{Raw: []byte("2")}}}}},
				Images: []meta.Image{{Name: "web", NewName: "registry/web", NewTag: "2.0"}}}),
		}},
		want: []string{"replicas: 2", "paused: true", "image: registry/web:2.0", `port: "8080"`,
			"helm.toolkit.fluxcd.io/name: app"},
		never: []string{"postrender-filename"},
		hooks: []string{"helm.sh/hook: pre-install", "helm.toolkit.fluxcd.io/name: app"},
	},
}

func TestPostRender(t *testing.T) {
	for name, test := range postRenderCases {
		t.Run(name, func(t *testing.T) {
			manifests, hooks := change(t, test.options, render.File{Name: "shop/templates/web.yaml", Content: webFile},
				render.File{Name: "shop/templates/hook.yaml", Content: hookFile})
			for _, want := range test.want {
				if !strings.Contains(manifests, want) {
					t.Errorf("the manifests lack %q:\n%s", want, manifests)
				}
			}
			for _, never := range test.never {
				if strings.Contains(manifests+hooks, never) {
					t.Errorf("the result has %q:\n%s%s", never, manifests, hooks)
				}
			}
			for _, want := range test.hooks {
				if !strings.Contains(hooks, want) {
					t.Errorf("the hooks lack %q:\n%s", want, hooks)
				}
			}
		})
	}
}

// TestRefusals has what kustomize refuses. Each error says what to change, in words of a HelmRelease.
func TestRefusals(t *testing.T) {
	account := "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: a}\n"
	hook := "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: a\n  annotations: {helm.sh/hook: pre-install}\n"
	nothing := kustomize(helmv2.Kustomize{Images: []meta.Image{{Name: "x", NewTag: "1"}}})
	for name, test := range map[string]struct {
		step helmv2.PostRenderer
		text string
		says []string
	}{
		"missing object": {step: kustomize(helmv2.Kustomize{Patches: []helmv2.Patch{
			{Patch: "apiVersion: v1\nkind: Service\nmetadata: {name: none}\n"}}}), text: account,
			says: []string{"spec.postRenderers[1].kustomize failed: ", "none"}},
		"hook and object": {step: nothing, text: hook + "---\n" + account, says: []string{"ServiceAccount 'a'",
			"x/templates/a.yaml",
			"Set spec.postRenderStrategy: separate, so that hooks are changed on their own"}},
		"object and hook": {step: nothing, text: account + "---\n" + hook, says: []string{
			"Set spec.postRenderStrategy: separate"}},
		"duplicate key": {step: nothing, text: account + "kind: ServiceAccount\n", says: []string{
			"ServiceAccount 'a' in x/templates/a.yaml has the key 'kind' twice",
			"Remove one of them from the template of the chart: kustomize does not accept both"}},
		"duplicate inner key": {step: nothing, text: account + "x: [{b: 1, b: 1}]\n", says: []string{"'b' twice"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := postrender.Change(t.Context(), []render.File{{Name: "x/templates/a.yaml", Content: test.text}},
				postrender.Options{PostRenderers: []helmv2.PostRenderer{{}, test.step}})
			if err == nil || strings.Contains(err.Error(), ".sourceignore") {
				t.Fatalf("the error is %v", err)
			}
			for _, says := range test.says {
				if !strings.Contains(err.Error(), says) {
					t.Errorf("the error lacks %q: %v", says, err)
				}
			}
		})
	}
	separate := postrender.Options{PostRenderers: []helmv2.PostRenderer{nothing}, Strategy: "separate"}
	change(t, separate, render.File{Name: "x/templates/a.yaml", Content: hook + "---\n" + account})
}

func TestListsAndEmptyFiles(t *testing.T) {
	o := postrender.Options{Labels: map[string]string{"a": "b"}}
	text, _ := change(t, o, render.File{Name: "x/templates/a.yaml", Content: "kind: List\napiVersion: v1\nitems:\n" +
		"- kind: ConfigMap\n  apiVersion: v1\n  metadata: {name: x}\n  data: &d {k: v}\n" +
		"- kind: ConfigMap\n  apiVersion: v1\n  metadata: {name: y}\n  data: *d\n"})
	if strings.Count(text, "a: b") != 2 || strings.Count(text, "k: v") != 2 {
		t.Errorf("the list is %s", text)
	}
	for _, empty := range []string{"", " \n", "# nothing\n", "---\n---\n# nothing\n"} {
		if text, _ := change(t, o, render.File{Name: "x/templates/a.yaml", Content: empty}); text != "" {
			t.Errorf("no manifests became %q", text)
		}
	}
}

// TestKeysThatYAMLReadsAsSwitches has keys with and without quotes, and texts that look like such keys.
func TestKeysThatYAMLReadsAsSwitches(t *testing.T) {
	for data, want := range map[string]string{
		"{y: 1}": "y", "{a: {N: 1}}": "N", "[{on: 1}]": "on", "\n  off: 1": "off", "\n  - Yes : 1": "Yes",
		`{"y": 1}`: "", `{'n': 1}`: "", "{yy: 1}": "", "|\n  y: 1": "", "{a: y}": "", "y": "",
	} {
		var warnings []string
		o := postrender.Options{Labels: ownerLabels, Warn: func(text string) { warnings = append(warnings, text) }}
		change(t, o, render.File{Name: "x/templates/a.yaml", Content: "apiVersion: v1\nkind: ConfigMap\n" +
			"metadata: {name: a}\ndata: " + data + "\n"})
		if want == "" && len(warnings) > 0 || want != "" && (len(warnings) != 1 ||
			!strings.Contains(warnings[0], "ConfigMap 'a' in x/templates/a.yaml has the key "+want+" without quotes")) {
			t.Errorf("%s: %q", data, warnings)
		}
	}
}
