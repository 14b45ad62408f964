package build

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sluice-gitops/sluice/internal/artifact"
)

// TestABuildReachesNothingOutside counts requests at a real server, and calls of a fake git that is first in PATH.
// remoteReferences returns files that refer to the server, or to other hosts, in a kustomization.
func remoteReferences(server string) map[string]map[string]string {
	url, host := server+"/x.yaml", strings.TrimPrefix(server, "http://")
	dir := "http:/" + host // path.Clean of the URL
	return map[string]map[string]string{
		"a resource": {"kustomization.yaml": "resources: ['" + url + "']\n"},
		"a resource that exists locally": {"kustomization.yaml": "resources: ['" + url + "']\n", dir +
			"/x.yaml": cm("a")},
		"with a single slash": {"kustomization.yaml": "resources: ['" + dir + "/x.yaml']\n", dir +
			"/x.yaml": cm("a")},
		"in capitals": {"kustomization.yaml": "resources: ['" +
			strings.Replace(url, "http", "HTTP", 1) + "']\n"},
		"a base":       {"kustomization.yaml": "bases: ['" + url + "']\n"},
		"a component":  {"kustomization.yaml": "components: ['" + server + "/a/b']\n"},
		"a repository": {"kustomization.yaml": "resources: [github.com/a/b]\n"},
		"a repository that exists locally": {"kustomization.yaml": "resources: [github.com/a/b]\n",
			"github.com/a/b/kustomization.yaml": "resources: [c.yaml]\n", "github.com/a/b/c.yaml": cm("c")},
		"a repository by SSH": {"kustomization.yaml": "resources: ['git@example.com:a/b.git']\n"},
		"a repository by SSH that exists locally": {"kustomization.yaml": "resources: ['me@host/a/b']\n",
			"me@host/a/b/kustomization.yaml": "namePrefix: x\n"},
		"a repository with a forced protocol": {
			"kustomization.yaml": "resources: ['git::https://example.com/a/b']\n"},
		"a repository on this disk": {"kustomization.yaml": "resources: ['file:///etc']\n"},
		"a repository and a line break": {
			"kustomization.yaml": "resources: [\"https://example.com/a/b\\nc\"]\n"},
		"a repository as a transformer": {
			"kustomization.yaml": "resources: [a.yaml]\ntransformers: [\"github.com/a/b\\n\"]\n", "a.yaml": cm("a")},
		"a transformer that is a mapping": {"kustomization.yaml": "resources: [a.yaml]\ntransformers: ['" + url +
			": {a: b}']\n", "a.yaml": cm("a")},
		"a patch": {"kustomization.yaml": "resources: [a.yaml]\npatches: [{path: '" +
			url + "'}]\n", "a.yaml": cm("a")},
		"a JSON patch": {"kustomization.yaml": "resources: [a.yaml]\npatchesJson6902: [{path: '" + url +
			"', target: {version: v1, kind: ConfigMap, name: a}}]\n", "a.yaml": cm("a")},
		"a strategic merge patch": {
			"kustomization.yaml": "resources: [a.yaml]\npatchesStrategicMerge: ['" + url + "']\n", "a.yaml": cm("a")},
		"a replacement": {"kustomization.yaml": "resources: [a.yaml]\nreplacements: [{path: '" +
			url + "'}]\n", "a.yaml": cm("a")},
		"CRDs": {"kustomization.yaml": "resources: [a.yaml]\ncrds: ['" + url + "']\n",
			"a.yaml": cm("a")},
		"a configuration": {"kustomization.yaml": "resources: [a.yaml]\nconfigurations: ['" +
			url + "']\n", "a.yaml": cm("a")},
		"a schema": {"kustomization.yaml": "resources: [a.yaml]\nopenapi: {path: '" + url +
			"'}\n", "a.yaml": cm("a")},
		"a generator's file": {"kustomization.yaml": "configMapGenerator: [{name: g, files: ['" +
			url + "']}]\n"},
		"a generator's file with a key": {"kustomization.yaml": "secretGenerator: [{name: g, files: ['k=" +
			url + "']}]\n"},
		"a generator's variables": {"kustomization.yaml": "configMapGenerator: [{name: g, envs: ['" +
			url + "']}]\n"},
		"a generator's env": {"kustomization.yaml": "configMapGenerator: [{name: g, env: '" + url +
			"'}]\n"},
		"in a base": {"kustomization.yaml": "resources: [base]\n",
			"base/kustomization.yaml": "resources: ['" + url + "']\n"},
		"in a base that is found": {"a.yaml": cm("a"), "base/kustomization.yaml": "resources: ['" + url +
			"']\n"},
	}
}

// remotePlugins returns files that refer to the URL in the configuration of a plugin.
func remotePlugins(url string) map[string]map[string]string {
	builtin := func(kind, rest string) string {
		return "apiVersion: builtin\nkind: " + kind + "\nmetadata: {name: p}\n" + rest + "\n"
	}
	return map[string]map[string]string{
		"in a plugin's file": {"kustomization.yaml": "resources: [a.yaml]\ntransformers: [t.yaml]\n",
			"a.yaml": cm("a"), "t.yaml": builtin("PatchTransformer", "path: '"+url+"'")},
		"in an inline plugin": {"kustomization.yaml": "resources: [a.yaml]\ntransformers: " +
			"['{apiVersion: builtin, kind: PatchTransformer, metadata: {name: p}, path: \"" + url + "\"}']\n",
			"a.yaml": cm("a")},
		"in a generator's plugin": {"kustomization.yaml": "generators: [g.yaml]\n",
			"g.yaml": builtin("ConfigMapGenerator", "files: ['k="+url+"']")},
		"in a plugin's second document": {"kustomization.yaml": "generators: [g.yaml]\n",
			"g.yaml": builtin("ConfigMapGenerator", "literals: [a=b]") + "---\n" +
				builtin("SecretGenerator", "envs: ['"+url+"']")},
		"in a plugin behind an alias": {"kustomization.yaml": "generators: [g.yaml]\n",
			"g.yaml": builtin("ConfigMapGenerator", "labels: {a: &a '"+url+"'}\nfiles: [*a]")},
		"in a plugin behind a merge key": {"kustomization.yaml": "resources: [a.yaml]\ntransformers: [t.yaml]\n",
			"a.yaml": cm("a"), "t.yaml": builtin("PatchTransformer", "labels: &m {path: '"+url+"'}\n<<: *m")},
		"in a plugin as binary": {"kustomization.yaml": "resources: [a.yaml]\ntransformers: [t.yaml]\n",
			"a.yaml": cm("a"), "t.yaml": builtin("PatchTransformer", "path: !!binary aHR0cDovL2V4YW1wbGUuY29tL3g=")},
		"in a value adder's targets": {"kustomization.yaml": "resources: [a.yaml]\ntransformers: [t.yaml]\n",
			"a.yaml": cm("a"), "t.yaml": builtin("ValueAddTransformer", "value: x\ntargetFilePath: '"+url+"'")},
		"in a validator": {"kustomization.yaml": "resources: [a.yaml]\nvalidators: [t.yaml]\n",
			"a.yaml": cm("a"), "t.yaml": builtin("PatchTransformer", "path: '"+url+"'")},
		"in a directory of plugins": {"kustomization.yaml": "resources: [a.yaml]\ntransformers: [ts]\n",
			"a.yaml": cm("a"), "ts/kustomization.yaml": "resources: [t.yaml]\n",
			"ts/t.yaml": builtin("PatchTransformer", "path: '"+url+"'")},
		"patched into a directory of plugins": {"kustomization.yaml": "resources: [a.yaml]\ntransformers: [ts]\n",
			"a.yaml": cm("a"), "ts/kustomization.yaml": "resources: [t.yaml]\npatches: [{target: {kind: " +
				"PatchTransformer}, patch: '[{op: add, path: /path, value: \"" + url + "\"}]'}]\n",
			"ts/t.yaml": builtin("PatchTransformer", "target: {kind: ConfigMap}")},
		"a Helm chart as a plugin": {"kustomization.yaml": "generators: [g.yaml]\n",
			"g.yaml": builtin("HelmChartInflationGenerator", "repo: '"+url+"'\nname: x")},
		"a container as a plugin": {"kustomization.yaml": "generators: [g.yaml]\n",
			"g.yaml": "apiVersion: v1\nkind: G\nmetadata: {name: g, annotations: {config.kubernetes.io/function: " +
				"'container: {image: x}'}}\n"},
	}
}

func TestABuildReachesNothingOutside(t *testing.T) {
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		_, _ = w.Write([]byte(cm("evil"))) // no build may request it
	}))
	defer server.Close()
	bin := t.TempDir()
	called := filepath.Join(bin, "called")
	if err := os.WriteFile(filepath.Join(bin, "git"), []byte("#!/bin/sh\necho \"$@\" >>"+called+"\nexit 1\n"),
		0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("HOME", t.TempDir())

	cases := remoteReferences(server.URL)
	maps.Copy(cases, remotePlugins(server.URL+"/x.yaml"))
	for reason, files := range cases {
		t.Run(reason, func(t *testing.T) {
			_, err := Build(t.Context(), Request{Tree: artifact.FromMap(files)})
			if err == nil {
				t.Error("it was built")
			}
			if n := requests.Swap(0); n != 0 {
				t.Errorf("%d requests went out: %v", n, err)
			}
			if b, err := os.ReadFile(called); err == nil {
				t.Errorf("git was run: %s", b)
			}
			_ = os.Remove(called)
		})
	}
}

func TestPluginsThatAreBuiltInRun(t *testing.T) {
	labels := "apiVersion: builtin\nkind: LabelTransformer\nmetadata: {name: l}\n" +
		"labels: {url: 'https://example.com', team: a}\nfieldSpecs: [{path: metadata/annotations, create: true}]\n"
	for reason, files := range map[string]map[string]string{
		"from a file": {"kustomization.yaml": "resources: [a.yaml]\ntransformers: [l.yaml]\n", "l.yaml": labels},
		"from a directory": {"kustomization.yaml": "resources: [a.yaml]\ntransformers: [./more]\n",
			"more/kustomization.yaml": "resources: [../l.yaml]\n", "l.yaml": labels},
		"inline": {"kustomization.yaml": "resources: [a.yaml]\ntransformers:\n- |\n  " +
			strings.ReplaceAll(strings.TrimSpace(labels), "\n", "\n  ") + "\n"},
		"inline, one line": {"kustomization.yaml": "resources: [a.yaml]\ntransformers: ['{apiVersion: builtin, " +
			"kind: AnnotationsTransformer, metadata: {name: x}, annotations: {team: a}, fieldSpecs: [{path: " +
			"metadata/annotations, create: true}]}']\n"},
	} {
		t.Run(reason, func(t *testing.T) {
			files["a.yaml"] = cm("a")
			result, err := Build(t.Context(), Request{Tree: artifact.FromMap(files)})
			if err != nil {
				t.Fatal(err)
			}
			if got := result.Objects[0].GetAnnotations()["team"]; got != "a" {
				t.Errorf("got %v", result.Objects[0])
			}
		})
	}
}

func FuzzIsRemote(f *testing.F) {
	for _, s := range []string{"../base", "https://example.com/x", "git@github.com:a/b", "a@b", "GitHub.com/a/b",
		"git::file://x", "a:b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if (strings.HasPrefix(s, "./") || strings.HasPrefix(s, "../")) && isRemote(s) {
			t.Errorf("%q is local", s)
		}
		if strings.HasPrefix(s, "https:") && len(s) > 8 && strings.HasPrefix(s, "https://") && !isRemote(s) {
			t.Errorf("%q is remote", s)
		}
	})
}
