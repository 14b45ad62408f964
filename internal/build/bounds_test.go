package build

import (
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/types"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/build/decrypt"
)

// bomb returns an object whose field expands to 9^depth values.
func bomb(depth int) string {
	var b strings.Builder
	b.WriteString(cm("bomb") + "x:\n- &a0 [x]\n")
	for i := 1; i <= depth; i++ {
		fmt.Fprintf(&b, "- &a%d [%s]\n", i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), 9), ","))
	}
	return b.String()
}

const (
	ouroboros = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: &a {x: *a}\n"
	listed    = "resources: [a.yaml]\n"
)

// keys returns a map with n keys.
func keys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "  k%d: ''\n", i)
	}
	return b.String()
}

func inlinePatch(text string) string { // in a kustomization
	return "|\n    " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ") + "\n"
}

// levelsOf returns kustomizations that list one another, the last one with a number of objects and further documents.
func levelsOf(levels, objects int, further ...string) map[string]string {
	files := map[string]string{}
	dir := ""
	for range levels - 1 {
		files[dir+"kustomization.yaml"] = "resources: [next]\nnamePrefix: a\n"
		dir += "next/"
	}
	files[dir+"kustomization.yaml"] = listed
	for i := range objects {
		files[dir+"a.yaml"] += "---\n" + cm(fmt.Sprint("c", i))
	}
	for _, document := range further {
		files[dir+"a.yaml"] += "---\n" + document
	}
	return files
}

const patchOfData = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {k: v}}"

func nestedTo(open, end string) string {
	return cm("a") + "x: " + strings.Repeat(open, 9000) + "1" + strings.Repeat(end, 9000) + "\n"
}

var costlySources = map[string]struct {
	files map[string]string
	says  string
}{
	"a recursive alias": {files: map[string]string{"a.yaml": ouroboros},
		says: "a.yaml, line 4: the alias *a is recursive"},
	"a recursive alias in a listed file": {files: map[string]string{"kustomization.yaml": listed,
		"a.yaml": ouroboros},
		says: "a.yaml, line 4: the alias"},
	"a recursive alias in a JSON file": {files: map[string]string{"kustomization.yaml": "resources: [a]\n",
		"a": ouroboros}, says: "a, line 4: the alias *a is recursive. Replace the alias with its content"},
	"a recursive alias in a merge key": {files: map[string]string{"a.yaml": cm("a") + "data: &a {<<: *a}\n"},
		says: "the alias *a"},
	"a recursive alias in a patch": {files: map[string]string{"kustomization.yaml": listed +
		"patches: [{path: p.yaml}]\n", "a.yaml": cm("a"), "p.yaml": ouroboros}, says: "p.yaml, line 4: the alias"},
	"in an inline patch": {files: map[string]string{"kustomization.yaml": listed +
		"patches:\n- patch: " + inlinePatch(ouroboros), "a.yaml": cm("a")},
		says: "kustomization.yaml, line 4: the alias *a is recursive. Replace the alias with its content"},
	"in an inline patchesStrategicMerge": {files: map[string]string{"kustomization.yaml": listed +
		"patchesStrategicMerge:\n- " + inlinePatch(ouroboros), "a.yaml": cm("a")}, says: "the alias"},
	"in a plugin": {files: map[string]string{"kustomization.yaml": listed +
		"transformers: [t.yaml]\n", "a.yaml": cm("a"),
		"t.yaml": "apiVersion: builtin\nkind: LabelTransformer\nmetadata: {name: t}\nlabels: &a {x: *a}\n"},
		says: "the alias"},
	"in an inline plugin": {files: map[string]string{"kustomization.yaml": listed + "transformers:\n- " +
		inlinePatch("apiVersion: builtin\nkind: LabelTransformer\nmetadata: {name: t}\nlabels: &a {x: *a}"),
		"a.yaml": cm("a")}, says: "the alias"},
	"in the kustomization": {files: map[string]string{"kustomization.yaml": listed +
		"commonLabels: &a {x: *a}\n", "a.yaml": cm("a")}, says: "kustomization.yaml cannot be read"},
	"in another encoding": {files: map[string]string{"kustomization.yaml": listed, "a.yaml": cm("b") +
		"\n---\n" + utf16(ouroboros)}, says: "the alias"},
	"aliases that expand exponentially": {files: map[string]string{"a.yaml": bomb(5)},
		says: "a.yaml, line 10: its aliases stand for more than 50000 values. Use fewer nested aliases"},
	"deep maps": {files: map[string]string{"a.yaml": nestedTo("{a: ", "}")},
		says: "a.yaml, line 4: more than 200 levels"},
	"deep lists": {files: map[string]string{"a.yaml": nestedTo("[", "]")}, says: "more than 200 levels"},
	"deep keys": {files: map[string]string{"a.yaml": cm("a") + "x:\n  " +
		strings.Repeat("? ", 3000) + "a\n"}, says: "more than 200 levels"},
	"deeper than the YAML parser allows": {files: map[string]string{"a.yaml": cm("a") + "x: " +
		strings.Repeat("[", 20000)}, says: "a.yaml is not valid YAML: line 4: exceeded max depth"},
	"nested lists of objects": {files: map[string]string{
		"a.yaml": strings.Repeat("{apiVersion: v1, kind: List, items: [", 80) + strings.Repeat("]}", 80)},
		says: "more than 4 lists of objects are nested in each other. List the objects themselves, without lists in " +
			"lists"},
	"lists whose kind is an alias": {files: map[string]string{
		"a.yaml": "{apiVersion: v1, kind: &l List, items: [" +
			strings.Repeat("{apiVersion: v1, kind: *l, items: [", 80) + strings.Repeat("]}", 81)},
		says: "more than 4 lists of objects"},
	"a map with very many keys": {files: map[string]string{"a.yaml": cm("a") + "data:\n" + keys(30_000)},
		says: "a.yaml is too large for being so deep, or its maps are too long. Split the file, or reduce its " +
			"nesting"},
}

// Each of these inputs is small, and would crash the process, exhaust its memory or keep it busy for minutes.
func TestWhatCostsMoreThanItsLengthIsRefused(t *testing.T) {
	for reason, c := range costlySources {
		t.Run(reason, func(t *testing.T) {
			_, err := Build(t.Context(), Request{Tree: artifact.FromMap(c.files)})
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %.300v, want it to say %q", err, c.says)
			}
		})
	}
	_, err := Build(t.Context(), Request{Tree: artifact.FromMap(map[string]string{"a.yaml": cm("a")}),
		Patches: []types.Patch{{Patch: ouroboros}}})
	if err == nil || !strings.Contains(err.Error(), "the alias") {
		t.Errorf("in spec.patches: %v", err)
	}
	s, keys := vault(t)
	_, err = Build(t.Context(), Request{Tree: artifact.FromMap(map[string]string{"a.yaml": s.Encrypt("binary",
		bomb(5))}), Decryption: keys})
	if err == nil || !strings.Contains(err.Error(), "a.yaml") {
		t.Errorf("encrypted: %v", err)
	}
	if _, err := (&decrypt.Keys{}).File(t.Context(), "a.yaml",
		[]byte(strings.Replace(s.Encrypt("yaml", secretNamed("a")), "name: a", "name: &a\n    x: *a", 1))); err == nil {
		t.Error("a recursive alias in an encrypted file was accepted")
	}
}

// utf16 returns the text in UTF-16 with a byte order mark.
func utf16(text string) string {
	out := []byte{0xff, 0xfe}
	for _, c := range []byte(text) {
		out = append(out, c, 0)
	}
	return string(out)
}

func TestWhatIsUsualIsNotRefused(t *testing.T) {
	for reason, manifest := range map[string]string{
		"anchors and merges":  cm("a") + "data: &d {a: b}\nx: {<<: *d, c: d}\ny: [*d, *d]\n",
		"a few thousand keys": cm("a") + "data:\n" + keys(5000),
		"many levels":         cm("a") + "x: " + strings.Repeat("{a: ", 100) + "1" + strings.Repeat("}", 100) + "\n",
		"a list in a list": "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ConfigMapList\n" +
			"  items:\n  - " + strings.ReplaceAll(strings.TrimSpace(cm("a")), "\n", "\n    ") + "\n",
		"an empty list":        cm("a") + "---\napiVersion: v1\nkind: List\nitems: []\n",
		"a large file":         cm("a") + "data: {k: '" + strings.Repeat("x", 1<<20) + "'}\n",
		"stars and ampersands": cm("a") + "data: {k: 'a && b * c', l: \"&a *a\"}\n",
	} {
		result, err := Build(t.Context(), Request{Tree: artifact.FromMap(map[string]string{"a.yaml": manifest})})
		if err != nil || len(result.Objects) != 1 {
			t.Errorf("%s: %.300v", reason, err)
		}
	}
}

// vast is content of files that are far larger than memory. Reading one fails the test.
type vast struct {
	artifact.Content
	size map[string]int64
	t    *testing.T // nil where they may be read
}

func (v vast) Size(id string) (int64, error) {
	if n, ok := v.size[id]; ok {
		return n, nil
	}
	return v.Content.Size(id)
}

func (v vast) Read(id string) ([]byte, error) {
	if _, ok := v.size[id]; ok && v.t != nil {
		v.t.Error("a vast file was read")
	}
	return v.Content.Read(id)
}

// vastTree returns a tree whose files have the given sizes in bytes.
func vastTree(t *testing.T, files map[string]string, size int64, names ...string) *artifact.Tree {
	tree := artifact.FromMap(files)
	v := vast{Content: contentOf(tree), size: map[string]int64{}, t: t}
	for _, name := range names {
		if id, err := tree.ID(name); err == nil {
			v.size[id] = size
		}
	}
	return artifact.NewTree(tree.Root(), v)
}

func TestStrayFilesAreNotRead(t *testing.T) {
	files := map[string]string{"app/a.yaml": cm("a"), "app/video.mp4": "1", "app/dump.sql": "2", "model.bin": "3",
		"other/huge.yaml": "4", "listed/kustomization.yaml": "resources: [a.yaml]\n", "listed/a.yaml": cm("a"),
		"listed/huge.yaml": "5"}
	tree := vastTree(t, files, 4<<30, "app/video.mp4", "app/dump.sql", "model.bin", "other/huge.yaml",
		"listed/huge.yaml")
	for _, dir := range []string{"app", "listed"} {
		if result, err := Build(t.Context(), Request{Tree: tree, Path: dir}); err != nil || len(result.Objects) != 1 {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

func TestFilesThatAreTooLargeAreNamedAndNotRead(t *testing.T) {
	for reason, files := range map[string]map[string]string{
		"a manifest":   {"huge.yaml": "x", "a.yaml": cm("a")},
		"a listed one": {"kustomization.yaml": "resources: [huge.yaml]\n", "huge.yaml": "x"},
		"a generator's input": {"kustomization.yaml": "configMapGenerator: [{name: g, files: [huge.yaml]}]\n",
			"huge.yaml": "x"},
		"a patch": {"kustomization.yaml": "resources: [a.yaml]\npatches: [{path: huge.yaml}]\n",
			"huge.yaml": "x", "a.yaml": cm("a")},
	} {
		_, err := Build(t.Context(), Request{Tree: vastTree(t, files, 100<<20, "huge.yaml")})
		if err == nil || !strings.Contains(err.Error(), "huge.yaml has 100 MiB; a build reads files of up to 16 "+
			"MiB. Leave it out with .sourceignore or spec.ignore, or split it") {
			t.Errorf("%s: %v", reason, err)
		}
	}
	_, err := Build(t.Context(), Request{Tree: vastTree(t, map[string]string{"kustomization.yaml": "x"}, 100<<20,
		"kustomization.yaml")})
	if err == nil || !strings.Contains(err.Error(), "kustomization.yaml has 100 MiB; a build reads files of up "+
		"to 16 MiB. Leave it out with .sourceignore or spec.ignore, or split it") {
		t.Errorf("a kustomization: %v", err)
	}
}

func TestABuildReadsSoMuchInAll(t *testing.T) {
	files, names := map[string]string{}, []string{}
	for i := range 9 {
		name := fmt.Sprintf("%d.yaml", i)
		files[name], names = cm(fmt.Sprint("c", i)), append(names, name)
	}
	_, err := Build(t.Context(), Request{Tree: vastTree(nil, files, 10<<20, names...)})
	if err == nil || !strings.Contains(err.Error(), "reads more than 64 MiB; 6.yaml is one file too many. Split "+
		"it into several Kustomizations, and look for bases that refer to the same bases more than once") {
		t.Errorf("got %v", err)
	}
}

func TestABuildReadsSoManyFiles(t *testing.T) {
	l := limits{reads: maxReads}
	if err := l.take("a.yaml", 1); err == nil || err.Error() != "the build reads more than 100000 files, some of them "+
		"over and over. Look for bases that refer to the same bases more than once" || l.exceeded == nil {
		t.Errorf("got %v", err)
	}
}
