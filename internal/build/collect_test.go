package build

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/guard"
)

// output builds a source and returns the bytes of all texts and the number of all values of its objects.
func output(t *testing.T, files map[string]string) (f *filesystem, bytes, values int64, err error) {
	t.Helper()
	f = newFilesystem(t.Context(), artifact.FromMap(files))
	_, err = f.build(Request{})
	return f, f.output, int64(f.outputValues), err
}

func pick(r *rand.Rand, from ...string) string { return from[r.IntN(len(from))] }

// randomReplacements returns replacements, which may not fit the objects, and "" if there are none.
func randomReplacements(r *rand.Rand) string {
	var k strings.Builder
	for range r.IntN(3) {
		fmt.Fprintf(&k, "- source: {%s, fieldPath: '%s'}\n  targets:\n", pick(r, "kind: ConfigMap, name: a",
			"kind: ConfigMap, name: b", "kind: Thing, name: a"),
			pick(r, "data.a", "data.b", "data", "x", "x.y", "x.l", "x.l.0", "x.l.[n=1].v",
				"metadata.name", "data.j", "x.new"))
		for range 1 + r.IntN(2) {
			path := pick(r, "data.a", "data.b", "data.c", "x.l.*", "x.l.[n=1].v", "x.l.*.v",
				"x.l.0", "x.l.1", "x.*", "data.j.k", "data.j.l.*",
				"x.y", "metadata.labels.team", "data.j")
			options := pick(r, "", "", "create: true", "delimiter: '-', index: 9",
				"delimiter: '-', index: -1",
				"delimiter: 'o', index: 1")
			if r.IntN(2) == 0 {
				path, options = pick(r, "x.new", "x.y.new", "x.l.*.new", "data.j.new",
					"x.deep.er", "x.p.q",
					"metadata.annotations.w", "x.*.new"), "create: true"
			}
			fmt.Fprintf(&k, "  - select: {%s}\n    fieldPaths: ['%s']\n    options: {%s}\n",
				pick(r, "kind: ConfigMap",
					"kind: Thing", "name: a", "version: v1", "kind: ConfigMap, name: b"), path, options)
		}
	}
	if k.Len() == 0 {
		return ""
	}
	return "replacements:\n" + k.String()
}

// randomSource returns a source of a base, an overlay and components, and the replacements and vars of each directory.
func randomSource(r *rand.Rand) (files, growing map[string]string) {
	object := func(kind, name string) string {
		return fmt.Sprintf("---\napiVersion: v1\nkind: %s\n"+
			"metadata: {name: %s, labels: {team: t-u}}\ndata: {a: a-b, b: %s, "+
			"c: '1', j: '{\"k\": \"1<2\", \"l\": [1, 2]}', v: '%s'}\n"+
			"x: {y: {z: '1', w: q}, l: [{n: '1', v: s}, "+
			"{n: '2', v: t}]}\n", kind, name, strings.Repeat("long", 1+r.IntN(100)),
			strings.Repeat("$(V)", r.IntN(20)))
	}
	const component = "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n"
	files = map[string]string{
		"base/kustomization.yaml": "resources: [o.yaml]\n" + pick(r, "", "namePrefix: p-\n",
			"commonLabels: {team: $(V)}\n"),
		"base/o.yaml": object("ConfigMap", "a") + object("ConfigMap", "b") + object("Thing", "a"),
		"kustomization.yaml": "resources: [base, o.yaml]\n" + pick(r, "", "components: [c1]\n",
			"components: [c1, c2]\n") +
			pick(r, "", "commonAnnotations: {w: x-y, v: $(V)}\n",
				"patches: [{path: p.yaml, target: {kind: ConfigMap}}]\n",
				"patches:\n- target: {kind: ConfigMap}\n"+
					"  patch: '[{\"op\": \"move\", \"from\": \"/data/b\", \"path\": \"/data/a\"}]'\n",
				"patches:\n- target: {version: v1}\n"+
					"  patch: '[{\"op\": \"add\", \"path\": \"/x/p\", \"value\": {\"q\": \"$(V)\", \"r\": \"s\"}}]'\n",
				"configMapGenerator:\n- name: gen\n  literals: [g=literal-$(V)]\n  files: [f.txt]\n"),
		"o.yaml": object("Thing", "c"), "f.txt": "text of a file $(V)",
		"p.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: any}\n" +
			"x: {p: {q: $(V), r: 's-t'}}\n",
		"c1/kustomization.yaml": component + "nameSuffix: -r\n" + pick(r, "", "components: [../c2]\n"),
		"c2/kustomization.yaml": component +
			"nameSuffix: -s\n",
	}
	growing = map[string]string{}
	for _, dir := range []string{"base/", "", "c1/", "c2/"} {
		growing[dir] = randomReplacements(r)
	}
	if r.IntN(2) == 0 {
		growing[""] += "vars:\n- name: V\n  objref: {apiVersion: v1, kind: ConfigMap, name: a}\n" +
			"  fieldref: {fieldPath: " +
			pick(r, "data.b", "x.l[0].v", "metadata.name") + "}\nconfigurations: [refs.yaml]\n"
		files["refs.yaml"] = "varReference: [{path: data}, {path: x/p/q}, {path: metadata/annotations}, " +
			"{path: metadata/labels}]\n"
	}
	return files, growing
}

// TestNothingGrowsBeyondItsBound compares what kustomize makes of random replacements and vars with their bound. Most
// sources fail to build, as their paths do not fit together.
func TestNothingGrowsBeyondItsBound(t *testing.T) {
	built := 0
	for seed := range uint64(seeds) {
		r := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a seed repeats a test
		files, growing := randomSource(r)
		_, bytes, values, err := output(t, files)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for dir, more := range growing {
			files[dir+"kustomization.yaml"] += more
		}
		f, grownBytes, grownValues, err := output(t, files)
		if err != nil {
			continue
		}
		built++
		bound, err := f.growing.measure.Bound()
		if err != nil {
			t.Fatal(err)
		}
		if grownBytes-bytes > bound.Bytes || grownValues-values > bound.Values {
			t.Fatalf("seed %d: kustomize added %d bytes and %d values, the bound is %+v for\n%s",
				seed, grownBytes-bytes,
				grownValues-values, bound, files)
		}
	}
	if built < seeds/20 {
		t.Errorf("only %d of %d sources were built", built, seeds)
	}
	t.Logf("%d sources were built", built)
}

// seeds is the number of sources that are built at random.
const seeds = 800

// TestUsualReplacementsTakeLittleMemory has 300 objects with 40 replacements of names and images, and a var.
func TestUsualReplacementsTakeLittleMemory(t *testing.T) {
	var objects, k strings.Builder
	for i := range 300 {
		fmt.Fprintf(&objects, "---\napiVersion: apps/v1\nkind: Deployment\n"+
			"metadata: {name: d%d, labels: {app: d%d}}\n"+
			"spec: {template: {spec: {containers: [{name: app, image: 'app:1', args: ['--host=$(HOST)']}, "+
			"{name: log, image: 'log:1'}]}}}\n", i, i)
	}
	k.WriteString("resources: [o.yaml, c.yaml, n.yaml]\nvars:\n- name: HOST\n" +
		"  objref: {apiVersion: v1, kind: ConfigMap, name: c}\n" +
		"  fieldref: {fieldPath: data.host}\nreplacements:\n")
	for i := range 40 {
		fmt.Fprintf(&k, "- source: {kind: ConfigMap, name: c, fieldPath: data.image}\n  targets:\n"+
			"  - select: {kind: Deployment, name: d%d}\n"+
			"    fieldPaths: ['spec.template.spec.containers.[name=app].image']\n"+
			"    options: {delimiter: ':', index: 1}\n"+
			"  - select: {kind: Deployment}\n    fieldPaths: [metadata.annotations.host%d]\n"+
			"    options: {create: true}\n",
			i, i%4)
		k.WriteString("- source: {kind: ConfigMap, name: c, fieldPath: data.host}\n  targets:\n" +
			"  - select: {kind: ConfigMap, name: e}\n    fieldPaths: [data.host]\n")
	}
	files := map[string]string{"kustomization.yaml": k.String(), "o.yaml": objects.String(),
		"c.yaml": cm("c") + "data: {host: h.example, image: '7'}\n---\n" + cm("e") + "data: {host: ''}\n",
		"n.yaml": "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: n}\n" +
			"spec: {podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}\n---\n" + // not a JSON patch
			cm("d") + "data: {dashboard: '" + strings.Repeat("x", 100<<10) + "'}\n"}
	f, _, _, err := output(t, files)
	if err != nil {
		t.Fatal(err)
	}
	bound, err := f.growing.measure.Bound()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the bound is %+v, %d MiB; %d MiB in all", bound, f.added>>20, f.needs()>>20)
	if limit := int64(300 << 20); f.added > limit {
		t.Errorf("the replacements take %d MiB, want at most %d", f.added>>20, limit>>20)
	}
}

// TestAComponentOfManyApplicationsTakesLittleMemory has 70 applications that use the same two components.
func TestAComponentOfManyApplicationsTakesLittleMemory(t *testing.T) {
	const component = "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nreplacements:\n" +
		"- source: {kind: ConfigMap, name: a, fieldPath: %s}\n  targets:\n  - select: {kind: ConfigMap}\n" +
		"    fieldPaths: [%s]\n    options: {%s}\n"
	files := map[string]string{
		"c1/kustomization.yaml": fmt.Sprintf(component, "data.host", "data.url", "delimiter: /, index: 2"),
		"c2/kustomization.yaml": fmt.Sprintf(component, "metadata.labels", "metadata.annotations", "create: true"),
	}
	root := "resources:\n"
	for i := range 70 {
		dir := fmt.Sprintf("app%d", i)
		root += "- " + dir + "\n"
		files[dir+"/kustomization.yaml"] = fmt.Sprintf("resources: [o.yaml]\nnamePrefix: app%d-\n"+
			"components: [../c1, ../c2]\n", i)
		files[dir+"/o.yaml"] = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {app: x, team: y}}\n" +
			"data: {host: h.example, url: 'https://host/path'}\n"
	}
	files["kustomization.yaml"] = root
	f, _, _, err := output(t, files)
	if err != nil {
		t.Fatal(err)
	}
	if limit := int64(100 << 20); f.added > limit {
		t.Errorf("the replacements take %d MiB, want at most %d", f.added>>20, limit>>20)
	}
	t.Logf("%d MiB", f.added>>20)
}

// multiplied is a source of which kustomize would make far more, and the error.
type multiplied struct {
	files map[string]string
	says  string
}

const tooLarge = "needs more than"

const tooMuch = "replacements and vars may add more than 256 MiB to the objects. " +
	"Look for long texts that are put into many fields, and for fields that are both a source and a target"

// into returns replacements of ConfigMap a into all ConfigMaps. N in the path is their number.
func into(n int, source, path, options string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "- source: {kind: ConfigMap, name: a, fieldPath: %s}\n  targets:\n"+
			"  - select: {kind: ConfigMap}\n"+
			"    fieldPaths: [%s]\n    options: {%s}\n", source, strings.ReplaceAll(path,
			"N", fmt.Sprint(i)), options)
	}
	return b.String()
}

// ofItself are sources that copy fields into themselves.
func ofItself() map[string]multiplied {
	doubling := into(26, "data.x", "data.x", `delimiter: "|", index: 9999999`)
	values := cm("a") + "data: {x: abcdefgh}\nx: {y: '1'}\n"
	return map[string]multiplied{
		"a text into itself": {map[string]string{"kustomization.yaml": listed + "replacements:\n" + doubling,
			"a.yaml": values}, tooMuch},
		"by files": {map[string]string{"a.yaml": values, "r.yaml": doubling,
			"kustomization.yaml": listed + "replacements: [{path: r.yaml}]\n"}, tooMuch},
		"by a transformer": {map[string]string{"a.yaml": values, "kustomization.yaml": listed +
			"transformers: [t.yaml]\n",
			"t.yaml": "apiVersion: builtin\nkind: ReplacementTransformer\nmetadata: {name: r}\n" +
				"replacements:\n" + doubling},
			tooMuch},
		"in a base": {map[string]string{"kustomization.yaml": "resources: [base]\nnamePrefix: p-\n",
			"base/kustomization.yaml": listed + "replacements:\n" + doubling,
			"base/a.yaml":             values}, tooMuch},
		"in a component after the objects": {map[string]string{"kustomization.yaml": listed +
			"components: [c]\n",
			"a.yaml": values,
			"c/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\n" +
				"kind: Component\n" +
				"replacements:\n" + doubling}, tooMuch},
		"a map into itself": {map[string]string{"a.yaml": values,
			"kustomization.yaml": listed + "replacements:\n" + into(17, "x", "x.cN",
				"create: true")}, tooMuch},
		"a map that a transformer brings into itself": {map[string]string{"a.yaml": cm("a"),
			"kustomization.yaml": listed + "transformers: [p.yaml, t.yaml]\n",
			"p.yaml": "apiVersion: builtin\nkind: PatchStrategicMergeTransformer\nmetadata: {name: p}\n" +
				"patches: '{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, x: {y: \"1\"}}'\n",
			"t.yaml": "apiVersion: builtin\nkind: ReplacementTransformer\nmetadata: {name: r}\nreplacements:\n" +
				into(25, "x", "x.cN", "create: true")}, tooMuch},
		"a map into itself by a wildcard": {map[string]string{"a.yaml": values + "m: {q: {y: '1'}}\n",
			"kustomization.yaml": listed + "replacements:\n" + into(17, "m.q", "m.*.cN",
				"create: true")}, tooMuch},
	}
}

// ofLittle are other sources that make much of little.
func ofLittle() map[string]multiplied {
	long := strings.Repeat("x", 100<<10)
	return map[string]multiplied{
		"a text into a text that is JSON": {map[string]string{"a.yaml": cm("a") +
			"data: {x: '{\"k\": \"abcdefgh\"}'}\n",
			"kustomization.yaml": listed + "replacements:\n" + into(26, "data.x", "data.x.k",
				"create: false")}, tooMuch},
		"aliases in a text that is JSON": {map[string]string{"a.yaml": cm("a") + "data:\n  y: z\n" +
			"  x: |\n    {a: &a " + long +
			", k: '', b: [" + strings.Repeat("*a, ", 10_000) + "*a]}\n",
			"kustomization.yaml": listed + "replacements:\n" + into(1, "data.y", "data.x.k",
				"create: false")}, tooMuch},
		"a text of many levels": {map[string]string{"a.yaml": cm("a") + "data:\n  y: z\n  x: |\n" +
			"    {\"k\": \"\", \"l\":\n    " +
			strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + "}\n",
			"kustomization.yaml": listed + "replacements:\n" + into(1, "data.y", "data.x.k",
				"create: false")}, tooMuch},
		"a field as a whole and in part": {map[string]string{"a.yaml": cm("a") +
			"data: {x: '{}', y: '{k: 1}'}\n",
			"kustomization.yaml": listed + "replacements:\n" + into(1, "data.y", "data.x",
				"create: false") +
				into(1, "data.y", "data.x.k", "create: false")},
			"replacements write the field \"x\" as a whole, and also a part of its text. " +
				"What the text is made of is not known before. Write the parts only, or use a patch"},
		"an entry of a list as a whole and in part": {map[string]string{"a.yaml": cm("a") +
			"data: {x: ['{}'], y: '{k: 1}'}\n",
			"kustomization.yaml": listed + "replacements:\n" + into(1, "data.y", "data.x.0",
				"create: false") +
				into(1, "data.y", "data.x.0.k", "create: false")},
			"replacements write the field \"x\" as a whole, and also a part of its text. " +
				"What the text is made of is not known before. Write the parts only, or use a patch"},
		"too many targets": {map[string]string{"a.yaml": many(1500),
			"kustomization.yaml": listed + "replacements:\n" + into(1500, "kind", "x.z",
				"create: false")},
			"the replacements would take too long: they have too many targets for so many objects. " +
				"Give the kind of objects in each 'select', or split the source into several Kustomizations"},
		"many references to a var": {map[string]string{"a.yaml": cm("a") + "data: {x: " + long +
			"}\n---\napiVersion: v1\n" +
			"kind: ConfigMap\nmetadata: {name: b, annotations: {z: '" + strings.Repeat("$(V)",
			10_000) + "'}}\n",
			"kustomization.yaml": listed + "vars:\n- name: V\n" +
				"  objref: {apiVersion: v1, kind: ConfigMap, name: a}\n" +
				"  fieldref: {fieldPath: data.x}\n"}, tooMuch},
		"a generated text in many fields": {map[string]string{"a.yaml": many(200),
			"f.txt": strings.Repeat(long, 20),
			"kustomization.yaml": listed + "configMapGenerator:\n- name: g\n  files: [f.txt]\n" +
				"replacements:\n" +
				"- source: {kind: ConfigMap, name: g, fieldPath: 'data.f\\.txt'}\n" +
				"  targets:\n  - select: {kind: ConfigMap}\n" +
				"    fieldPaths: [x.y]\n    options: {create: true}\n"}, tooMuch},
		"labels for many objects": {map[string]string{"a.yaml": many(2000), "kustomization.yaml": listed +
			"commonAnnotations: {" + strings.Join(numbered("k%d: v", 2000), ", ") + "}\n"}, tooLarge},
		"a transformer's patch for many objects": {map[string]string{"a.yaml": many(2000),
			"kustomization.yaml": listed + "transformers: [t.yaml]\n",
			"t.yaml": "apiVersion: builtin\nkind: PatchTransformer\nmetadata: {name: p}\n" +
				"target: {kind: ConfigMap}\n" +
				"patch: |\n  " + "apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: a}\n" +
				"  x: {" + strings.Join(numbered("k%d: v", 2000), ", ") + "}\n"}, tooLarge},
	}
}

// TestWhatGrowsInKustomizeIsRefused has sources that would take far more memory than the budget.
func TestWhatGrowsInKustomizeIsRefused(t *testing.T) {
	all := ofItself()
	maps.Copy(all, ofLittle())
	for name, test := range all {
		t.Run(name, func(t *testing.T) {
			ctx := guard.WithBudget(t.Context(), guard.NewBudget(96<<20))
			_, err := Build(ctx, Request{Tree: artifact.FromMap(test.files)})
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("the error is %.500v, want %q", err, test.says)
			}
		})
	}
}

func numbered(format string, n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(format, i))
	}
	return all
}
