package build

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/artifact"
)

// byKustomize builds the same with kustomize alone.
func byKustomize(t *testing.T, tree *artifact.Tree, dir string) (string, error) {
	t.Helper()
	f := newFilesystem(t.Context(), tree)
	k, err := f.prepare(Request{Tree: tree, Path: dir})
	if err != nil {
		return "", err
	}
	if k.CheckEmpty() != nil {
		return "", nil
	}
	objects, err := f.run(path.Join(mount, f.root))
	if err != nil {
		return "", err
	}
	if _, err := f.validate(objects); err != nil {
		return "", err
	}
	b, err := json.Marshal(objects)
	return string(b), err
}

// same tells whether a build comes to what kustomize comes to.
func same(t *testing.T, files map[string]string, dir string) error {
	t.Helper()
	tree := artifact.FromMap(files)
	want, wantErr := byKustomize(t, tree, dir)
	result, err := Build(t.Context(), Request{Tree: tree, Path: dir})
	if (err == nil) != (wantErr == nil) {
		return fmt.Errorf("error %v, kustomize says %v", err, wantErr) //nolint:errorlint // one of them is nil
	}
	if err != nil || wantErr != nil {
		return nil
	}
	got, err := json.Marshal(result.Objects)
	if string(got) != want && len(result.Objects) > 0 {
		return fmt.Errorf("got\n%s\nand of kustomize\n%s", got, want)
	}
	return err
}

func TestWhatIsOnlyListedComesOutAsKustomizeGivesIt(t *testing.T) {
	files := map[string]string{
		"plain/a.yaml": cm("a") + "---\n# two\n" + cm("b") + "---\n", "plain/sub/c.yml": deployment, "plain/base/kustomization.yaml": "resources: [d.yaml, ../more]\n", "plain/base/d.yaml": cm("d"),
		"plain/more/kustomization.yml": "resources: [e.yaml]\nmetadata: {name: x}\n", "plain/more/e.yaml": "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: e}}\n- {apiVersion: v1, kind: ConfigMapList, items: [{apiVersion: v1, kind: ConfigMap, metadata: {name: f, namespace: n}}]}\n",
		"values/a.yaml": "apiVersion: x.io/v1\nkind: X\nmetadata: {name: a, labels: {}, annotations: {}, creationTimestamp: null}\nspec: {t: 2020-01-01, o: 0o17, h: 0x1F, f: 1.0, e: 1e3, n: null, y: yes, s: '1', b: !!binary aGk=, m: \"a\\nb\", big: 9223372036854775807, empty: {}, none: [], at: 12:30:45, x: ~}\nstatus: {}\n",
		"notes/a.yaml":  "apiVersion: x.io/v1\nkind: X\nmetadata: {name: a, annotations: {a: 1, b: true, c: 'x', d: null, e: 1.50}}\n---\napiVersion: x.io/v1\nkind: X\nmetadata: {name: b, annotations: {}}\n---\napiVersion: x.io/v1\nkind: X\nmetadata: {name: c, annotations: null}\n",
		"notes2/a.yaml": "apiVersion: x.io/v1\nkind: X\nmetadata: {name: a, annotations: {c: [x]}}\n",
		"notes3/a.yaml": "apiVersion: x.io/v1\nkind: X\nmetadata: {name: a, annotations: x}\n",
		"merge/a.yaml":  cm("a") + "x: &x {a: '1', b: '2'}\ndata:\n  <<: *x\n  b: '3'\nz: *x\n",
		"crlf/a.yaml":   strings.ReplaceAll(cm("a")+"data:\n  k: |\n    one\n    two\n---\n"+cm("b"), "\n", "\r\n"),
		"bom/a.yaml":    "\xef\xbb\xbf" + cm("a"), "json/kustomization.yaml": "resources: [a.json]\n", "json/a.json": `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "\u00e4\n"}}`,
		"local/a.yaml": cm("a"), "local/b.yaml": "apiVersion: v1\nkind: X\nmetadata: {name: b, annotations: {config.kubernetes.io/local-config: 'true'}}\n",
		"inner/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, annotations: {internal.config.kubernetes.io/previousNames: x, a: b}}\n",
		"link/a.yaml":  "symlink:../plain/a.yaml", "link/base": "symlink:../plain/base", "link/kustomization.yaml": "resources: [a.yaml, base]\n",
		"nested/kustomization.yaml": "resources: [../prefixed, ../plain]\n", "prefixed/kustomization.yaml": "resources: [g.yaml]\nnamePrefix: x-\n", "prefixed/g.yaml": cm("g"),
		"twice/kustomization.yaml": "resources: [../plain, ../plain]\n", "cycle/kustomization.yaml": "resources: [../cycle]\n", "missing/kustomization.yaml": "resources: [nothing]\n",
		"component/kustomization.yaml": "resources: [../comp]\n", "comp/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nresources: [a.yaml]\n", "comp/a.yaml": cm("a"),
		"two/kustomization.yaml": "resources: [sub]\n", "two/sub/kustomization.yaml": "resources: [a.yaml]\n", "two/sub/Kustomization": "resources: [a.yaml]\n", "two/sub/a.yaml": cm("a"),
		"empty/kustomization.yaml": "resources: [sub]\n", "empty/sub/kustomization.yaml": "", "nothing/kustomization.yaml": "resources: [a.yaml]\n", "nothing/a.yaml": "# nothing\n",
		"separator/a.yaml": cm("a") + "--- # more\n" + cm("b"), "inline/kustomization.yaml": "resources: [a.yaml]\n", "inline/a.yaml": cm("a") + "--- {apiVersion: v1, kind: ConfigMap, metadata: {name: b}}\n",
		"generated/kustomization.yaml": "resources: [../plain]\nconfigMapGenerator: [{name: g, literals: [a=b]}]\n",
	}
	dirs := map[string]bool{}
	for name := range files {
		dirs[path.Dir(name)] = true
	}
	for dir := range maps.Keys(dirs) {
		if err := same(t, files, dir); err != nil {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

func FuzzPlain(f *testing.F) {
	f.Add(cm("a"), cm("b"))
	f.Add(deployment, "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}]\n")
	f.Add(cm("a")+"data: &a {x: y}\nz: *a\n", cm("b")+"--- # c\r\n"+cm("c"))
	f.Add(cm("a")+"data: {a: 2020-01-01, b: .5, c: 0x1, ? d : e}\n", "\xef\xbb\xbf"+cm("b"))
	f.Fuzz(func(t *testing.T, one, two string) {
		files := map[string]string{"kustomization.yaml": "resources: [a.yaml, base]\n", "a.yaml": one, "base/b.yaml": two, "base/kustomization.yaml": "resources: [b.yaml]\n"}
		if err := same(t, files, ""); err != nil {
			t.Error(err)
		}
	})
}

// Kustomize would compare each of them with all others.
func TestThousandsOfObjectsAreBuilt(t *testing.T) {
	var all strings.Builder
	const n = 5000
	for i := range n {
		all.WriteString(cm(fmt.Sprint("c", i)) + "---\n")
	}
	result, err := Build(t.Context(), Request{Tree: artifact.FromMap(map[string]string{"a.yaml": all.String()}), Labels: map[string]string{"a": "b"}})
	if err != nil || len(result.Objects) != n {
		t.Fatal(err)
	}
	if file := result.Origin(result.Objects[n-1]); file != "a.yaml" {
		t.Errorf("it comes from %q", file)
	}
}
