package build

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/provider"

	"github.com/sluice-gitops/sluice/internal/artifact"
)

// app holds objects that refer to each other by name.
const app = `apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  template:
    spec:
      serviceAccountName: db
      containers: [{name: c, envFrom: [{secretRef: {name: s}}, {configMapRef: {name: a}}]}]
      volumes: [{name: v, configMap: {name: a}}]
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: x}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: db}
secrets: [{name: s}]
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: db}
spec: {tls: [{secretName: s}], rules: [{http: {paths: [{backend: {service: {name: db}}}]}}]}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: db}
spec: {scaleTargetRef: {apiVersion: apps/v1, kind: StatefulSet, name: db}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: db}
rules: [{apiGroups: [""], resources: [secrets], resourceNames: [s], verbs: [get]}]
`

// byKustomize builds with kustomize only, without the shortcut of plain.
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

// same returns an error if the result of a build differs from the result of kustomize.
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
		return fmt.Errorf("got\n%s\nkustomize gives\n%s", got, want)
	}
	return err
}

var plainSources = map[string]string{
	"plain/a.yaml": cm("a") + "---\n# two\n" + cm("b") + "---\n", "plain/sub/c.yml": deployment,
	"plain/base/kustomization.yaml": "resources: [d.yaml, ../more]\n", "plain/base/d.yaml": cm("d"),
	"plain/more/kustomization.yml": "resources: [e.yaml]\nmetadata: {name: x}\n",
	"plain/more/e.yaml": "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, " +
		"metadata: {name: e}}\n- {apiVersion: v1, kind: ConfigMapList, items: [{apiVersion: v1, kind: " +
		"ConfigMap, metadata: {name: f, namespace: n}}]}\n",
	"values/a.yaml": "apiVersion: x.io/v1\nkind: X\nmetadata: {name: a, labels: {}, annotations: {}, " +
		"creationTimestamp: null}\nspec: {t: 2020-01-01, o: 0o17, h: 0x1F, f: 1.0, e: 1e3, n: null, y: yes, s: " +
		"'1', b: !!binary aGk=, m: \"a\\nb\", big: 9223372036854775807, empty: {}, none: [], at: 12:30:45, x: " +
		"~}\nstatus: {}\n",
	"notes/a.yaml": "apiVersion: x.io/v1\nkind: X\nmetadata: {name: a, annotations: {a: 1, b: true, c: 'x', d: " +
		"null, e: 1.50}}\n---\napiVersion: x.io/v1\nkind: X\nmetadata: {name: b, annotations: {}}\n---\n" +
		"apiVersion: x.io/v1\nkind: X\nmetadata: {name: c, annotations: null}\n",
	"notes2/a.yaml": "apiVersion: x.io/v1\nkind: X\nmetadata: {name: a, annotations: {c: [x]}}\n",
	"notes3/a.yaml": "apiVersion: x.io/v1\nkind: X\nmetadata: {name: a, annotations: x}\n",
	"merge/a.yaml":  cm("a") + "x: &x {a: '1', b: '2'}\ndata:\n  <<: *x\n  b: '3'\nz: *x\n",
	"crlf/a.yaml":   strings.ReplaceAll(cm("a")+"data:\n  k: |\n    one\n    two\n---\n"+cm("b"), "\n", "\r\n"),
	"bom/a.yaml":    "\xef\xbb\xbf" + cm("a"), "json/kustomization.yaml": "resources: [a.json]\n",
	"json/a.json": `{"apiVersion": "v1", "kind": "ConfigMap", ` +
		`"metadata": {"name": "a"}, "data": {"k": "\u00e4\n"}}`,
	"local/a.yaml": cm("a"), "local/b.yaml": "apiVersion: v1\nkind: X\nmetadata: {name: b, annotations: " +
		"{config.kubernetes.io/local-config: 'true'}}\n",
	"inner/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, annotations: " +
		"{internal.config.kubernetes.io/previousNames: x, a: b}}\n",
	"link/a.yaml": "symlink:../plain/a.yaml", "link/base": "symlink:../plain/base",
	"link/kustomization.yaml":     "resources: [a.yaml, base]\n",
	"nested/kustomization.yaml":   "resources: [../prefixed, ../plain]\n",
	"prefixed/kustomization.yaml": "resources: [g.yaml]\nnamePrefix: x-\n", "prefixed/g.yaml": cm("g"),
	"twice/kustomization.yaml": "resources: [../plain, ../plain]\n",
	"cycle/kustomization.yaml": "resources: [../cycle]\n", "missing/kustomization.yaml": "resources: [nothing]\n",
	"component/kustomization.yaml": "resources: [../comp]\n",
	"comp/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n" +
		"resources: [a.yaml]\n", "comp/a.yaml": cm("a"),
	"two/kustomization.yaml": "resources: [sub]\n", "two/sub/kustomization.yaml": "resources: [a.yaml]\n",
	"two/sub/Kustomization": "resources: [a.yaml]\n", "two/sub/a.yaml": cm("a"),
	"empty/kustomization.yaml": "resources: [sub]\n", "empty/sub/kustomization.yaml": "",
	"nothing/kustomization.yaml": "resources: [a.yaml]\n", "nothing/a.yaml": "# nothing\n",
	"separator/a.yaml": cm("a") + "--- # more\n" + cm("b"), "inline/kustomization.yaml": "resources: [a.yaml]\n",
	"inline/a.yaml":             cm("a") + "--- {apiVersion: v1, kind: ConfigMap, metadata: {name: b}}\n",
	"housed/kustomization.yaml": "resources: [../plain, a.yaml]\nnamespace: ns\n", "housed/a.yaml": app + "---\n" +
		"apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: other, labels: {}}\nstringData: {a: b}\n",
	"housed-twice/kustomization.yaml": "resources: [a.yaml]\nnamespace: ns\n",
	"housed-twice/a.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: a}\n---\n" +
		"apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: b}\n",
	"housed-base/kustomization.yaml":  "resources: [../housed]\n",
	"rehoused/kustomization.yaml":     "resources: [../housed]\nnamespace: '1'\n",
	"housed-roles/kustomization.yaml": "resources: [a.yaml]\nnamespace: ns\n",
	"housed-roles/a.yaml": "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\n" +
		"metadata: {name: b}\nsubjects: [{kind: ServiceAccount, name: default}]\n",
	"housed-space/kustomization.yaml": "resources: [a.yaml]\nnamespace: ns\n",
	"housed-space/a.yaml":             "apiVersion: v1\nkind: Namespace\nmetadata: {name: b}\n---\n" + cm("x"),
	"housed-bad/kustomization.yaml":   "resources: [a.yaml]\nnamespace: ns\n",
	"housed-bad/a.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: null, " +
		"annotations: null}\n",
	"generated/kustomization.yaml": "resources: [../plain]\nconfigMapGenerator: [{name: g, literals: [a=b]}]\n",
}

func TestWhatIsOnlyListedComesOutAsKustomizeGivesIt(t *testing.T) {
	files := plainSources
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

func TestNamespaceOfPlainObjectsIsSetWithoutKustomize(t *testing.T) {
	for text, want := range map[string]bool{app: true, app +
		"---\napiVersion: v1\nkind: Namespace\nmetadata: {name: n}\n": false} {
		f := newFilesystem(t.Context(), artifact.FromMap(map[string]string{"a.yaml": text}))
		k, err := f.prepare(Request{Tree: f.tree, TargetNamespace: "ns"})
		if err != nil {
			t.Fatal(err)
		}
		if _, ok, err := f.plain(f.root, k); ok != want || err != nil {
			t.Errorf("plain: %t, %v", ok, err)
		}
	}
}

// Each duplicate could cause all files to be read again, and list the locations of all others.
func TestThousandsOfDuplicatesAreToldBriefly(t *testing.T) {
	for name, content := range map[string]string{
		"of one":  strings.Repeat(cm("a")+"---\n", 3000),
		"of many": strings.Repeat(cm("a")+"---\n"+cm("b")+"---\n"+cm("c")+"---\n", 1000),
	} {
		_, err := Build(t.Context(), Request{
			Tree: artifact.FromMap(map[string]string{"kustomization.yaml": listed, "a.yaml": content})})
		if err == nil || len(err.Error()) > 4000 ||
			!strings.Contains(err.Error(), "a is declared twice: in a.yaml, line 1, and in a.yaml, line ") ||
			!strings.Contains(err.Error(), "more places") {
			t.Errorf("%s: %.1000v", name, err)
		}
	}
}

func FuzzPlain(f *testing.F) {
	f.Add(cm("a"), cm("b"))
	f.Add(deployment, "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}]\n")
	f.Add(cm("a")+"data: &a {x: y}\nz: *a\n", cm("b")+"--- # c\r\n"+cm("c"))
	f.Add(cm("a")+"data: {a: 2020-01-01, b: .5, c: 0x1, ? d : e}\n", "\xef\xbb\xbf"+cm("b"))
	f.Fuzz(func(t *testing.T, one, two string) {
		files := map[string]string{"kustomization.yaml": "resources: [a.yaml, base]\n", "a.yaml": one,
			"base/b.yaml": two, "base/kustomization.yaml": "resources: [b.yaml]\n"}
		err := same(t, files, "")
		if err == nil {
			return
		}
		// kustomize refuses a reference whose fields have another type, and the API server does so as well; another
		// file may be what explains that error, but not if a file is alone
		for _, text := range []string{one, two} {
			alone := map[string]string{"kustomization.yaml": "resources: [a.yaml]\n", "a.yaml": text}
			if strings.Contains(fmt.Sprint(same(t, alone, "")), "updating name reference") {
				return
			}
		}
		t.Error(err)
	})
}

// Kustomize would compare each object with all others.
func TestThousandsOfObjectsAreBuilt(t *testing.T) {
	var all strings.Builder
	const n = 5000
	for i := range n {
		all.WriteString(cm(fmt.Sprint("c", i)) + "---\n")
	}
	result, err := Build(t.Context(), Request{Tree: artifact.FromMap(map[string]string{"a.yaml": all.String()}),
		Labels: map[string]string{"a": "b"}})
	if err != nil || len(result.Objects) != n {
		t.Fatal(err)
	}
	if file := result.Origin(result.Objects[n-1]); file != "a.yaml" {
		t.Errorf("it comes from %q", file)
	}
}

// TestJSONOfPlainObjectsIsThatOfKustomize compares the short way from YAML to JSON with kustomize's own, for random
// documents of scalars that YAML reads in unusual ways.
func TestJSONOfPlainObjectsIsThatOfKustomize(t *testing.T) {
	scalars := []string{"1", "-0", "+1", "007", "0o17", "0x1F", "0b11", "1_000", "1e3", "1.", ".5", ".inf",
		"-.INF", ".nan", "12345678901234567890", "1.7976931348623159e308", "true", "True", "yes", "on", "~",
		"null", "", "2001-01-01", "2001-12-14t21:59:43.10-05:00", "12:30:45", "a", "a: b", "a #b", "- a", "é",
		"\u0085", "\u2028", "😀", "\ufeffa", " a ", "a\nb", "a\n\n", "\ta", "a\tb", "'", "\"", "\\", "!a", "&a",
		"*a", "%a", "@a", "`a`", "<<", "=", "{a", "[a"}
	tags := []string{"", "", "", "", "", "!!str ", "!!int ", "!!float ", "!!bool ", "!!null ", "!!binary ",
		"!!timestamp ", "!own "}
	factory := provider.NewDefaultDepProvider().GetResourceFactory()
	const seed, documents = 35, 3000
	random, compared := rand.New(rand.NewPCG(seed, seed)), 0
	scalar := func() string {
		text := scalars[random.IntN(len(scalars))]
		switch random.IntN(4) {
		case 0:
			quoted, err := json.Marshal(text)
			if err != nil {
				t.Fatal(err)
			}
			text = string(quoted)
		case 1:
			text = "'" + strings.ReplaceAll(text, "'", "''") + "'"
		case 2:
			text = "|-\n    " + strings.ReplaceAll(text, "\n", "\n    ")
		}
		return tags[random.IntN(len(tags))] + text
	}
	for range documents {
		text := cm("a") + "data:\n"
		for i := range 1 + random.IntN(3) {
			text += fmt.Sprintf("  k%d: %s\n", i, scalar())
		}
		if random.IntN(2) == 0 {
			text += "x: &x\n- " + scalar() + "\ny: *x\n"
		}
		resources, err := factory.SliceFromBytes([]byte(text))
		if err != nil {
			continue // kustomize cannot read it
		}
		for _, r := range resources {
			want, refused := r.MarshalJSON()
			got, err := asJSON(r)
			if (err == nil) != (refused == nil) || string(got) != string(want) {
				t.Fatalf("%s\nis %s (%v)\nwant %s (%v)", text, got, err, want, refused)
			}
			compared++
		}
	}
	if compared < documents/4 {
		t.Errorf("%d of %d documents were compared", compared, documents)
	}
	t.Logf("%d documents were compared", compared)
}
