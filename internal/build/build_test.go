package build

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/artifact"
)

const configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: NAME}\n"

func cm(name string) string { return strings.ReplaceAll(configMap, "NAME", name) }

func TestBuildMakesObjects(t *testing.T) {
	for reason, c := range map[string]struct {
		files map[string]string
		req   Request
		want  string
	}{
		"a kustomization is generated from all manifests": {
			map[string]string{"app/a.yaml": cm("a"), "app/sub/b.yml": cm("b") + "---\n" + cm("c"), "app/readme.md": "x", "other/d.yaml": cm("d")},
			Request{Path: "./app"}, "a b c",
		},
		"a directory with its own kustomization is a base": {
			map[string]string{"a.yaml": cm("a"), "sub/kustomization.yaml": "resources: [b.yaml]\nnamePrefix: x-\n", "sub/b.yaml": cm("b"), "sub/c.yaml": cm("c")},
			Request{}, "a x-b",
		},
		"components are for those who name them": {
			map[string]string{"a.yaml": cm("a"), "comp/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nresources: [b.yaml]\n", "comp/b.yaml": cm("b")},
			Request{Path: "/"}, "a",
		},
		"a base may stand beside the path": {
			map[string]string{"base/kustomization.yaml": "resources: [a.yaml]\n", "base/a.yaml": cm("a"), "env/prod/kustomization.yaml": "resources: [../../base]\nnamespace: prod\n"},
			Request{Path: "env/prod"}, "prod/a",
		},
		"the target namespace wins": {
			map[string]string{"kustomization.yaml": "resources: [a.yaml]\nnamespace: theirs\n", "a.yaml": cm("a")},
			Request{TargetNamespace: "ours"}, "ours/a",
		},
		"components are added": {
			map[string]string{"a.yaml": cm("a"), "comp/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nnameSuffix: -c\n"},
			Request{Components: []string{"comp", "none"}, IgnoreMissingComponents: true, NamePrefix: "p-"}, "p-a-c",
		},
		"a symlink inside is followed": {
			map[string]string{"app/kustomization.yaml": "resources: [link.yaml]\n", "app/link.yaml": "symlink:../shared/a.yaml", "shared/a.yaml": cm("a")},
			Request{Path: "app"}, "a",
		},
		"generators read files": {
			map[string]string{"kustomization.yaml": "configMapGenerator: [{name: g, files: [k=data.txt], options: {disableNameSuffixHash: true}}]\n", "data.txt": "hello"},
			Request{}, "g",
		},
		"lists are taken apart": {
			map[string]string{"l.yaml": "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: b}}\n"},
			Request{}, "a b",
		},
	} {
		t.Run(reason, func(t *testing.T) {
			c.req.Tree = artifact.FromMap(c.files)
			result, err := Build(t.Context(), c.req)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, o := range result.Objects {
				names = append(names, strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/"))
			}
			if got := strings.Join(names, " "); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestBuildRefusesInWordsThatHelp(t *testing.T) {
	for reason, c := range map[string]struct {
		files map[string]string
		path  string
		says  string
	}{
		"a path that is not there": {map[string]string{"deploy/a.yaml": cm("a")}, "depoly", "the source has: deploy"},
		"a path out of the source": {map[string]string{"a.yaml": cm("a")}, "../x", "reaches out"},
		"a base out of the source": {map[string]string{"a/kustomization.yaml": "resources: [../../../etc]\n"}, "a", `a/kustomization.yaml names "../../../etc", which reaches out of the source`},
		"an absolute base":         {map[string]string{"kustomization.yaml": "resources: [/etc/passwd]\n"}, "", "reaches out"},
		"a symlink out":            {map[string]string{"kustomization.yaml": "resources: [x.yaml]\n", "x.yaml": "symlink:../../etc/passwd"}, "", `names "x.yaml"`},
		"a symlink out, generated": {map[string]string{"a.yaml": cm("a"), "x.yaml": "symlink:/etc/passwd"}, "", "x.yaml is a symlink that leads out"},
		"a remote base":            {map[string]string{"kustomization.yaml": "resources: ['https://user:pw@example.com/x.yaml']\n"}, "", `"https://example.com/x.yaml", which is remote`},
		"a remote git base":        {map[string]string{"kustomization.yaml": "resources: ['github.com/a/b?ref=v1']\n"}, "", "is remote"},
		"a file that is missing":   {map[string]string{"kustomization.yaml": "resources: [a.yaml]\n"}, "", `names "a.yaml", which is not in the source`},
		"a Helm chart":             {map[string]string{"kustomization.yaml": "helmCharts: [{name: x}]\n"}, "", "HelmRelease"},
		"invalid YAML":             {map[string]string{"dir/bad.yaml": "a: b\nc: [\n"}, "", "dir/bad.yaml is not valid YAML: line 2"},
		"invalid YAML in a base":   {map[string]string{"kustomization.yaml": "resources: [bad.yaml]\n", "bad.yaml": "apiVersion: v1\nkind: x\n\tmetadata: y\n"}, "", "bad.yaml is not valid YAML: line"},
		"a file that is no object": {map[string]string{"values.yaml": "\nreplicas: 1\n"}, "", "values.yaml, line 2: this is not a Kubernetes object"},
		"an object without a name": {map[string]string{"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {labels: {a: b}}\n"}, "", "name"},
		"an object twice":          {map[string]string{"a.yaml": cm("a"), "b.yaml": cm("a")}, "", "a"},
		"a plugin that would run":  {map[string]string{"kustomization.yaml": "generators: [g.yaml]\n", "g.yaml": "apiVersion: v1\nkind: G\nmetadata: {name: g, annotations: {config.kubernetes.io/function: 'exec: {path: /bin/sh}'}}\n"}, "", "Only plugins of apiVersion: builtin"},
	} {
		t.Run(reason, func(t *testing.T) {
			result, err := Build(t.Context(), Request{Tree: artifact.FromMap(c.files), Path: c.path})
			if err == nil {
				t.Fatal("it was built")
			}
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %q, want it to say %q", err, c.says)
			}
			if strings.Contains(err.Error(), mount+"/") || strings.Contains(err.Error(), "user:pw") {
				t.Errorf("shows what it should not: %v", err)
			}
			if result == nil || result.Trace == nil {
				t.Error("no trace")
			}
		})
	}
}

func TestTraceKnowsWhatWasRead(t *testing.T) {
	base := map[string]string{
		"base/kustomization.yaml": "resources: [a.yaml]\n", "base/a.yaml": cm("a"), "base/unused.yaml": cm("u"),
		"app/kustomization.yaml": "resources: [../base]\n", "plain/b.yaml": cm("b"), "readme.md": "x",
	}
	for reason, c := range map[string]struct {
		path      string
		change    map[string]string
		unchanged bool
	}{
		"an unrelated file":                    {"app", map[string]string{"readme.md": "y", "plain/b.yaml": cm("z")}, true},
		"a file that a base does not name":     {"app", map[string]string{"base/unused.yaml": "?"}, true},
		"a file of a base":                     {"app", map[string]string{"base/a.yaml": cm("z")}, false},
		"a new file where all are scanned":     {"plain", map[string]string{"plain/c.yaml": cm("c")}, false},
		"a kustomization where there was none": {"plain", map[string]string{"plain/kustomization.yaml": "resources: [b.yaml]\n"}, false},
		"a second kustomization file":          {"app", map[string]string{"base/kustomization.yml": "resources: []\n"}, false},
		"a path that went away":                {"app", map[string]string{"base/a.yaml": ""}, false},
	} {
		t.Run(reason, func(t *testing.T) {
			result, err := Build(t.Context(), Request{Tree: artifact.FromMap(base), Path: c.path})
			if err != nil {
				t.Fatal(err)
			}
			next := map[string]string{}
			for k, v := range base {
				next[k] = v
			}
			for k, v := range c.change {
				next[k] = v
				if v == "" {
					delete(next, k)
				}
			}
			if got := result.Trace.Unchanged(artifact.FromMap(next)); got != c.unchanged {
				t.Errorf("unchanged: %v, want %v", got, c.unchanged)
			}
		})
	}
}

func TestSchemaOfOneBuildDoesNotReachAnother(t *testing.T) {
	poison := artifact.FromMap(map[string]string{
		"kustomization.yaml": "resources: [d.yaml]\nopenapi: {path: schema.json}\n", "schema.json": `{"definitions":{}}`, "d.yaml": cm("a"),
	})
	deployment := "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {template: {spec: {containers: [{name: one, image: a}, {name: two, image: b}]}}}\n"
	victim := Request{Tree: artifact.FromMap(map[string]string{
		"kustomization.yaml": "resources: [d.yaml]\npatches: [{path: p.yaml}]\n", "d.yaml": deployment,
		"p.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {template: {spec: {containers: [{name: two, image: patched}]}}}\n",
	})}
	if _, err := Build(t.Context(), Request{Tree: poison}); err != nil {
		t.Fatal(err)
	}
	result, err := Build(t.Context(), victim)
	if err != nil {
		t.Fatal(err)
	}
	b, err := result.Objects[0].MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), `"image":"a"`) || !strings.Contains(string(b), "patched") {
		t.Errorf("the list was replaced, not merged: %s", b)
	}
}

func TestRealRepositoriesBuild(t *testing.T) {
	root := os.Getenv("SLUICE_REALWORLD")
	if root == "" {
		t.Log("SLUICE_REALWORLD is not set: it names the folder with gitops-istio and podinfo-deploy; only the examples are built")
		return
	}
	for dir, paths := range map[string][]string{
		"podinfo-deploy": {"webapp/common", "webapp/backend", "webapp/frontend", "overlays/dev", "overlays/production", "plain", "base/podinfo"},
		"gitops-istio":   {"istio", "prod", "flagger"},
	} {
		files := map[string]string{}
		base := filepath.Join(root, dir)
		err := filepath.Walk(base, func(p string, info os.FileInfo, err error) error {
			if err != nil || info.IsDir() {
				return err
			}
			b, err := os.ReadFile(p)
			name, relErr := filepath.Rel(base, p)
			files[name] = string(b)
			if err == nil {
				err = relErr
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range paths {
			result, err := Build(t.Context(), Request{Tree: artifact.FromMap(files), Path: p})
			if err != nil || len(result.Objects) == 0 {
				t.Errorf("%s/%s: %v", dir, p, err)
			}
		}
	}
}

func FuzzBuild(f *testing.F) {
	f.Add("resources: [a.yaml]\n", cm("a"))
	f.Add("resources: ['../../x']\nopenapi: {path: a.yaml}\n", "a: [\n")
	f.Add("", "apiVersion: v1\nkind: List\nitems: [{}]\n")
	f.Fuzz(func(t *testing.T, kustomization, manifest string) {
		files := map[string]string{"a.yaml": manifest}
		if kustomization != "" {
			files["kustomization.yaml"] = kustomization
		}
		result, err := Build(t.Context(), Request{Tree: artifact.FromMap(files)})
		if result == nil || result.Trace == nil {
			t.Fatal("no trace", err)
		}
	})
}
