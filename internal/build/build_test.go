package build

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: NAME}\n"

func cm(name string) string { return strings.ReplaceAll(configMap, "NAME", name) }

var builtSources = map[string]struct {
	files map[string]string
	req   Request
	want  string
}{
	"a kustomization is generated from all manifests": {
		files: map[string]string{"app/a.yaml": cm("a"), "app/sub/b.yml": cm("b") + "---\n" + cm("c"),
			"app/readme.md": "x",
			"other/d.yaml":  cm("d")},
		req: Request{Path: "./app"}, want: "a b c",
	},
	"a directory with its own kustomization is a base": {
		files: map[string]string{"a.yaml": cm("a"),
			"sub/kustomization.yaml": "resources: [b.yaml]\nnamePrefix: x-\n",
			"sub/b.yaml":             cm("b"), "sub/c.yaml": cm("c")},
		req: Request{}, want: "a x-b",
	},
	"components are not part of a generated kustomization": {
		files: map[string]string{"a.yaml": cm("a"), "comp/kustomization.yaml": "apiVersion: kustomize.config." +
			"k8s.io/v1alpha1\nkind: Component\nresources: [b.yaml]\n", "comp/b.yaml": cm("b")},
		req: Request{Path: "/"}, want: "a",
	},
	"a base may be outside of the path": {
		files: map[string]string{"base/kustomization.yaml": "resources: [a.yaml]\n", "base/a.yaml": cm("a"),
			"env/prod/kustomization.yaml": "resources: [../../base]\nnamespace: prod\n"},
		req: Request{Path: "env/prod"}, want: "prod/a",
	},
	"the target namespace wins": {
		files: map[string]string{"kustomization.yaml": "resources: [a.yaml]\nnamespace: theirs\n",
			"a.yaml": cm("a")},
		req: Request{TargetNamespace: "ours"}, want: "ours/a",
	},
	"components are added": {
		files: map[string]string{"a.yaml": cm("a"),
			"comp/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n" +
				"nameSuffix: -c\n"},
		req:  Request{Components: []string{"comp", "none"}, IgnoreMissingComponents: true, NamePrefix: "p-"},
		want: "p-a-c",
	},
	"a symlink inside is followed": {
		files: map[string]string{"app/kustomization.yaml": "resources: [link.yaml]\n",
			"app/link.yaml": "symlink:../shared/a.yaml", "shared/a.yaml": cm("a")},
		req: Request{Path: "app"}, want: "a",
	},
	"generators read files": {
		files: map[string]string{
			"kustomization.yaml": "configMapGenerator: [{name: g, files: [k=data.txt], options: " +
				"{disableNameSuffixHash: true}}]\n", "data.txt": "hello"},
		req: Request{}, want: "g",
	},
	"a directory without manifests has no objects": {
		files: map[string]string{"app/readme.md": "x"}, req: Request{Path: "app", TargetNamespace: "ns"}, want: "",
	},
	"an empty kustomization has no objects": {
		files: map[string]string{"kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1beta1\n" +
			"kind: Kustomization\nresources: []\n"}, req: Request{}, want: "",
	},
	"a kustomization may have any of its names": {
		files: map[string]string{"Kustomization": "resources: [base]\n",
			"base/kustomization.yml": "resources: [a.yaml]\n",
			"base/a.yaml":            cm("a"), "b.yaml": cm("b")},
		req: Request{NamePrefix: "x-"}, want: "x-a",
	},
	"an absolute path starts at the root of the source": {
		files: map[string]string{"app/a.yaml": cm("a"), "b.yaml": cm("b")}, req: Request{Path: "//app/"}, want: "a",
	},
	"a path through a symlink is resolved to its target": {
		files: map[string]string{"link": "symlink:env/prod",
			"env/prod/kustomization.yaml": "resources: [../../base]\n",
			"base/a.yaml":                 cm("a"), "base/kustomization.yaml": "resources: [a.yaml]\n"},
		req: Request{Path: "link"}, want: "a",
	},
	"bases are relative to the resolved directory, not to the symlink": {
		files: map[string]string{"kustomization.yaml": "resources: [link]\n", "link": "symlink:deep/down/app",
			"deep/down/app/kustomization.yaml":  "resources: [../base]\n",
			"deep/down/base/kustomization.yaml": "resources: [a.yaml]\n", "deep/down/base/a.yaml": cm("a")},
		req: Request{}, want: "a",
	},
	"a file with only comments is ignored": {
		files: map[string]string{"a.yaml": cm("a"), "b.yaml": "# nothing\n---\n---\n# here\n"}, req: Request{},
		want: "a",
	},
	"objects of Flux kinds are built like other objects": {
		files: map[string]string{"ks.yaml": "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\n" +
			"metadata: {name: ks, namespace: flux-system}\n"},
		req: Request{}, want: "flux-system/ks",
	},
	"objects are in the order of the files": {
		files: map[string]string{"z.yaml": cm("z"), "b.yaml": cm("b"), "a/c.yaml": cm("c"), "a.yaml": cm("a")},
		req:   Request{},
		want:  "c a b z",
	},
	"one name in two namespaces is two objects": {
		files: map[string]string{
			"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: x}\n---\n" +
				"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: y}\n"},
		req: Request{}, want: "x/a y/a",
	},
	"local-config objects are kept": {
		files: map[string]string{"a.yaml": cm("a"),
			"b.yaml": "apiVersion: v1\nkind: X\nmetadata: {name: b, annotations: " +
				"{config.kubernetes.io/local-config: 'true'}}\n"},
		req: Request{}, want: "a",
	},
	"lists are split into their items": {
		files: map[string]string{
			"l.yaml": "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, " +
				"metadata: {name: a}}\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: b}}\n"},
		req: Request{}, want: "a b",
	},
}

func TestBuildMakesObjects(t *testing.T) {
	for reason, c := range builtSources {
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

var refusedSources = map[string]struct {
	files map[string]string
	path  string
	says  string
}{
	"a path that does not exist": {files: map[string]string{"deploy/a.yaml": cm("a")}, path: "depoly",
		says: "do not leave it out; the source has: deploy"},
	"a path out of the source": {files: map[string]string{"a.yaml": cm("a")}, path: "../x",
		says: "reaches out of the source. Give a path below the root of the source"},
	"a base out of the source": {files: map[string]string{"a/kustomization.yaml": "resources: [../../../etc]\n"},
		path: "a", says: `a/kustomization.yaml names "../../../etc", which reaches out of the source. A build ` +
			"sees its own repository only: copy it in"},
	"an absolute base": {files: map[string]string{"kustomization.yaml": "resources: [/etc/passwd]\n"},
		says: "reaches out"},
	"a symlink out": {files: map[string]string{"kustomization.yaml": "resources: [x.yaml]\n",
		"x.yaml": "symlink:../../etc/passwd"}, says: `names "x.yaml", which is a symlink that leads out of the ` +
		"source. Keep everything that a build reads inside the repository"},
	"a symlink out, generated": {files: map[string]string{"a.yaml": cm("a"), "x.yaml": "symlink:/etc/passwd"},
		says: "x.yaml is a symlink that leads out of the source. Keep everything that a build reads inside the " +
			"repository"},
	"a remote base": {files: map[string]string{
		"kustomization.yaml": "resources: ['https://user:pw@example.com/x.yaml']\n"},
		says: `"https://example.com/x.yaml", which is remote. Copy it into the repository, or create a separate ` +
			"source for it. Manifests and git repositories at http:// and https:// URLs without credentials are " +
			"fetched with the controller flag --no-remote-bases=false. If it is a local directory, write ./ " +
			"before it"},
	"a remote git base": {files: map[string]string{
		"kustomization.yaml": "resources: ['github.com/a/b?ref=v1']\n"},
		says: "is remote. Copy it into the repository, or create a separate source for it. Manifests and git " +
			"repositories at http:// and https:// URLs without credentials are fetched with the controller flag " +
			"--no-remote-bases=false"},
	"a file that is missing": {files: map[string]string{"kustomization.yaml": "resources: [a.yaml]\n"},
		says: `names "a.yaml", which is not in the source. Correct the path, and check that spec.ignore and ` +
			".sourceignore do not leave it out. Artifacts have no symlinks"},
	"a Helm chart": {files: map[string]string{"kustomization.yaml": "helmCharts: [{name: x}]\n"},
		says: "which would run a program. Deliver the chart with a HelmRelease"},
	"a directory of plugins that does more": {files: map[string]string{
		"kustomization.yaml": "resources: [a.yaml]\ntransformers: [ts]\n", "a.yaml": cm("a"),
		"ts/kustomization.yaml": "namePrefix: x-\nresources: [t.yaml]\n", "ts/t.yaml": cm("t")},
		says: "must do nothing else. Keep only resources in it, and write the complete configurations into files"},
	"binary data in a plugin": {files: map[string]string{
		"kustomization.yaml": "resources: [a.yaml]\ntransformers: [t.yaml]\n", "a.yaml": cm("a"),
		"t.yaml": "apiVersion: builtin\nkind: PatchTransformer\nmetadata: {name: p}\npath: !!binary aHR0cA==\n"},
		says: "t.yaml, line 4, holds binary data. Write it as text"},
	"invalid YAML": {files: map[string]string{"dir/bad.yaml": "a: b\nc: [\n"},
		says: "dir/bad.yaml is not valid YAML: line 2"},
	"invalid YAML in a base": {files: map[string]string{"kustomization.yaml": "resources: [bad.yaml]\n",
		"bad.yaml": "apiVersion: v1\nkind: x\n\tmetadata: y\n"}, says: "bad.yaml is not valid YAML: line"},
	"a file that is not an object": {files: map[string]string{"values.yaml": "\nreplicas: 1\n"},
		says: "values.yaml, line 2: this is not a Kubernetes object"},
	"two files that are not YAML": {files: map[string]string{"a.yaml": "a: [\n", "b.yaml": "ok: 1\nx: {\n"},
		says: "b.yaml is not valid YAML: line"},
	"a duplicate key": {files: map[string]string{
		"a.yaml": "apiVersion: v1\nkind: ConfigMap\nkind: Secret\nmetadata: {name: a}\n"},
		says: "a.yaml is not valid YAML: "},
	"a list instead of an object": {files: map[string]string{"a.yaml": "- a\n- b\n"},
		says: "a.yaml, line 1: this is not a Kubernetes object"},
	"a generated name": {files: map[string]string{
		"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: a-}\n"},
		says: "a.yaml, line 1: ConfigMap has metadata.generateName, which would make another object each time. " +
			"Give it a metadata.name"},
	"a generated name, listed": {files: map[string]string{"kustomization.yaml": "resources: [a.yaml]\n",
		"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: a-}\n"},
		says: "ConfigMap has metadata.generateName"},
	"an object twice, listed": {files: map[string]string{"kustomization.yaml": "resources: [a.yaml, b.yaml]\n",
		"a.yaml": cm("a"), "b.yaml": "# b\n" + cm("a")},
		says: "ConfigMap/a is declared twice: in a.yaml, line 1, and in b.yaml, line 2. Remove one of the two"},
	"an object in two versions": {files: map[string]string{
		"a.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n",
		"b.yaml": "apiVersion: apps/v1beta1\nkind: Deployment\nmetadata: {name: a}\n"},
		says: "Deployment/a is declared twice: in a.yaml, line 1, and in b.yaml, line 1"},
	"a cycle of bases": {files: map[string]string{"a/kustomization.yaml": "resources: [../b]\n",
		"b/kustomization.yaml": "resources: [../a]\n"}, path: "a", says: "cycle"},
	"a cycle by a symlink": {files: map[string]string{"kustomization.yaml": "resources: [self]\n",
		"self": "symlink:."}, says: "cycle"},
	"a base with a typo": {files: map[string]string{"kustomization.yaml": "resources: [base]\n",
		"base/kustomization.yaml": "resource: [a.yaml]\n"},
		says: `base/kustomization.yaml cannot be read: invalid Kustomization: json: unknown field "resource"`},
	"a kustomization that is not YAML": {files: map[string]string{"app/kustomization.yaml": "a: b\nresources: [\n"},
		path: "app",
		says: "app/kustomization.yaml cannot be read: error converting YAML to JSON: yaml: line 2"},
	"two kustomization files": {files: map[string]string{"kustomization.yaml": "resources: [a.yaml]\n",
		"kustomization.yml": "resources: [a.yaml]\n", "a.yaml": cm("a")}, says: "2 kustomization files"},
	"a base without kustomization": {files: map[string]string{"kustomization.yaml": "resources: [base]\n",
		"base/a.yaml": cm("a")}, says: "base"},
	"a path to a file": {files: map[string]string{"a.yaml": cm("a")}, path: "a.yaml",
		says: "is not a directory of the source. Correct spec.path, and check that spec.ignore and .sourceignore " +
			"of the source do not leave it out"},
	"a path through a symlink out": {files: map[string]string{"link": "symlink:../x", "a.yaml": cm("a")},
		path: "link",
		says: "symlink out of the source. Give a path below the root of the source"},
	"a generator's file out": {files: map[string]string{
		"kustomization.yaml": "configMapGenerator: [{name: g, files: [k=../../etc/passwd]}]\n"},
		says: "reaches out of the source. A build sees its own repository only: copy it in"},
	"a patch out": {files: map[string]string{
		"app/kustomization.yaml": "resources: [a.yaml]\npatches: [{path: ../../p.yaml}]\n", "app/a.yaml": cm("a")},
		path: "app", says: "reaches out"},
	"a plugin's file out": {files: map[string]string{
		"kustomization.yaml": "resources: [a.yaml]\ntransformers: [t.yaml]\n", "a.yaml": cm("a"),
		"t.yaml": "apiVersion: builtin\nkind: PatchTransformer\nmetadata: {name: p}\npath: ../../../etc/passwd\n"},
		says: "kustomize cannot build"},
	"an object without a name": {files: map[string]string{
		"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {labels: {a: b}}\n"}, says: "name"},
	"an object twice": {files: map[string]string{"a.yaml": cm("a"), "b.yaml": cm("a")}, says: "a"},
	"a key that is a number": {files: map[string]string{
		"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {8080: b}\n"},
		says: "ConfigMap/a in a.yaml, line 1 has a key that is a number or a boolean. " +
			"Keys must be strings: quote it"},
	"a template that is YAML": {files: map[string]string{
		"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Values.a }}}\n"},
		says: "It looks like a template of Helm: deliver the chart with a HelmRelease, and leave it out here " +
			"with .sourceignore or spec.ignore"},
	"a plugin that would run": {files: map[string]string{"kustomization.yaml": "generators: [g.yaml]\n",
		"g.yaml": "apiVersion: v1\nkind: G\nmetadata: {name: g, annotations: {config.kubernetes.io/function: " +
			"'exec: {path: /bin/sh}'}}\n"}, says: "Only plugins of apiVersion: builtin are allowed"},
}

func TestBuildRefusesInWordsThatHelp(t *testing.T) {
	for reason, c := range refusedSources {
		t.Run(reason, func(t *testing.T) {
			result, err := Build(t.Context(), Request{Tree: artifact.FromMap(c.files), Path: c.path})
			if err == nil {
				t.Fatal("it was built")
			}
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %q, want it to say %q", err, c.says)
			}
			if r := fault.Reason(err, ""); r != meta.BuildFailedReason && r != meta.ArtifactFailedReason {
				t.Errorf("reason %q", r)
			}
			if strings.Contains(err.Error(), mount+"/") || strings.Contains(err.Error(), "user:pw") {
				t.Errorf("shows a secret or an internal path: %v", err)
			}
			if result == nil || result.Trace == nil {
				t.Error("no trace")
			}
		})
	}
}

func TestRealRepositoriesBuild(t *testing.T) {
	root := os.Getenv("SLUICE_REALWORLD")
	if root == "" {
		t.Log("SLUICE_REALWORLD is not set: it names the folder with gitops-istio and podinfo-deploy; only the " +
			"examples are built")
		return
	}
	for dir, paths := range map[string][]string{
		"podinfo-deploy": {"webapp/common", "webapp/backend", "webapp/frontend", "overlays/dev", "overlays/production",
			"plain", "base/podinfo"},
		"gitops-istio": {"istio", "prod", "flagger"},
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

func TestAPathThatIsNotThereIsTheArtifactsFault(t *testing.T) {
	tree := artifact.FromMap(map[string]string{"deploy/prod/a.yaml": cm("a"), "deploy/dev/a.yaml": cm("a"),
		"x.yaml": cm("x")})
	_, err := Build(t.Context(), Request{Tree: tree, Path: "./deploy/prd/x"})
	if fault.Reason(err, "") != meta.ArtifactFailedReason ||
		!strings.Contains(err.Error(), "the source has: deploy/dev, deploy/prod") {
		t.Errorf("got %v", err)
	}
}

func TestAllProblemsAreToldAtOnce(t *testing.T) {
	files := map[string]string{"a.yaml": cm("a") + "---\n" + cm("a"), "b.yaml": "x: 1\n", "c.yaml": "a: [\n"}
	for i := range mostProblems {
		files[fmt.Sprintf("d%d.yaml", i)] = "x: 1\n"
	}
	_, err := Build(t.Context(), Request{Tree: artifact.FromMap(files)})
	for _, want := range []string{"a.yaml, line 1, and in a.yaml, line 5", "b.yaml, line 1: this",
		"c.yaml is not valid YAML", "and 3 more"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %q", err, want)
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
