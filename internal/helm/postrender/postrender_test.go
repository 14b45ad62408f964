package postrender_test

import (
	"bytes"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	release "helm.sh/helm/v4/pkg/release/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/helm/postrender"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

var files = map[string]string{
	"templates/web.yaml": `# the front end
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
`,
	"templates/hook.yaml": `apiVersion: batch/v1
kind: Job
metadata: {name: migrate, annotations: {helm.sh/hook: pre-install}}
`,
}

func kustomize(k helmv2.Kustomize) helmv2.PostRenderer { return helmv2.PostRenderer{Kustomize: &k} }

// install runs Helm's install action without a cluster.
func install(t *testing.T, o postrender.Options) (*release.Release, error) {
	t.Helper()
	ch, err := loader.LoadArchive(bytes.NewReader(testenv.ChartArchive(t, "shop", "1.0.0", files)))
	if err != nil {
		t.Fatal(err)
	}
	install := action.NewInstall(action.NewConfiguration())
	install.DryRunStrategy, install.ReleaseName, install.Namespace = action.DryRunClient, "app", "team"
	install.PostRenderer = postrender.New(t.Context(), o)
	released, err := install.Run(ch, nil)
	if err != nil {
		return nil, err
	}
	return released.(*release.Release), nil
}

var ownerLabels = map[string]string{"helm.toolkit.fluxcd.io/name": "app"}

var webDeployment = meta.Selector{Kind: "Deployment", Name: "web"}

var postRenderCases = map[string]struct {
	options     postrender.Options
	want, never []string // in the manifest
	hooks       []string // in the hooks
}{
	"nothing": {want: []string{"# the front end\n", `metadata: {name: web, labels: {app: web}}`}},
	"labels": {
		options: postrender.Options{Labels: ownerLabels, CommonMetadata: &meta.CommonMetadata{
			Labels:      map[string]string{"team": "a", "helm.toolkit.fluxcd.io/name": "other"},
			Annotations: map[string]string{"size": "10"}}},
		want: []string{"# the front end\n",
			"name: web, labels: {app: web, helm.toolkit.fluxcd.io/name: 'app', team: 'a'}",
			`size: '10'`, `metadata: {labels: {app: web}}`, `data: {port: "8080", yes: "yes"}`},
		never: []string{"postrender-filename", "other"},
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
			"helm.toolkit.fluxcd.io/name: 'app'"},
		never: []string{"postrender-filename"},
		hooks: []string{"helm.sh/hook: pre-install"},
	},
}

func TestPostRender(t *testing.T) {
	for name, test := range postRenderCases {
		t.Run(name, func(t *testing.T) {
			rel, err := install(t, test.options)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range test.want {
				if !strings.Contains(rel.Manifest, want) {
					t.Errorf("the manifest lacks %q:\n%s", want, rel.Manifest)
				}
			}
			for _, never := range test.never {
				if strings.Contains(rel.Manifest, never) {
					t.Errorf("the manifest has %q:\n%s", never, rel.Manifest)
				}
			}
			if len(rel.Hooks) != 1 || strings.Contains(rel.Hooks[0].Manifest, "toolkit") {
				t.Fatalf("the hooks are %+v, want one without labels of the owner", rel.Hooks)
			}
			for _, want := range test.hooks {
				if !strings.Contains(rel.Hooks[0].Manifest, want) {
					t.Errorf("the hook lacks %q:\n%s", want, rel.Hooks[0].Manifest)
				}
			}
		})
	}
}

func TestPatchOfMissingObject(t *testing.T) {
	_, err := install(t, postrender.Options{PostRenderers: []helmv2.PostRenderer{{}, kustomize(helmv2.Kustomize{
		Patches: []helmv2.Patch{{Patch: "apiVersion: v1\nkind: Service\nmetadata: {name: none}\n"}}})}})
	if err == nil || !strings.Contains(err.Error(), "spec.postRenderers[1].kustomize failed: ") ||
		!strings.Contains(err.Error(), "none") {
		t.Errorf("the error is %v, want one that names the post-renderer and the object", err)
	}
}

func TestListAndEmptyInput(t *testing.T) {
	r := postrender.New(t.Context(), postrender.Options{Labels: map[string]string{"a": "b"}})
	out,
		err := r.Run(bytes.NewBufferString("kind: List\napiVersion: v1\nitems:\n" +
		"- kind: ConfigMap\n  metadata: {name: x}\n"))
	if err != nil || !strings.Contains(out.String(), "{name: x, labels: {a: 'b'}}") {
		t.Errorf("the list is %s, %v", out, err)
	}
	if out, err = r.Run(&bytes.Buffer{}); err != nil || strings.TrimSpace(out.String()) != "" {
		t.Errorf("no manifests became %q, %v", out, err)
	}
	if postrender.New(t.Context(), postrender.Options{}) != nil {
		t.Error("there is a post-renderer without anything to change")
	}
}
