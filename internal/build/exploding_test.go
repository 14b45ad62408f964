package build

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/guard"
)

// exploding are sources whose objects are much larger than their files.
var exploding = map[string]struct {
	budget int64 // 2 GiB if it is 0
	files  map[string]string
	says   string
}{
	"aliases of a long text": {files: map[string]string{
		"a.yaml": cm("a") + "data:\n  a: &a " + strings.Repeat("x", 1<<20) + "\n" + aliasesOf("a", 40_000)},
		says: "its aliases stand for more than 4 MiB of text. Use fewer aliases for long texts"},
	"aliases of a long text in a listed file": {files: map[string]string{"kustomization.yaml": listed,
		"a.yaml": cm("a") + "data:\n  a: &a " + strings.Repeat("x", 1<<20) + "\n" + aliasesOf("a", 40_000)},
		says: "its aliases stand for more than 4 MiB of text"},
	"aliases of a long text in the kustomization": {files: map[string]string{"a.yaml": cm("a"),
		"kustomization.yaml": listed + "commonAnnotations:\n  a: &a " + strings.Repeat("x", 1<<20) + "\n" +
			aliasesOf("a", 40_000)},
		says: "its aliases stand for more than 4 MiB of text"},
	"aliases of a long text in a base": {files: map[string]string{"kustomization.yaml": "resources: [base]\n",
		"base/a.yaml": cm("a"),
		"base/kustomization.yaml": listed + "commonAnnotations:\n  a: &a " + strings.Repeat("x", 1<<20) + "\n" +
			aliasesOf("a", 40_000)},
		says: "its aliases stand for more than 4 MiB of text"},
	"a JSON patch that doubles an object again and again": {files: map[string]string{"a.yaml": cm("a") + "x: {y: 1}\n",
		"kustomization.yaml": listed + "patches:\n- target: {kind: ConfigMap}\n  patch: |\n    [" +
			copyOperations(60) + "]\n"}, says: "accumulated size increase of copy"},
	"such a patch in escapes": {files: map[string]string{"a.yaml": cm("a") + "x: {y: 1}\n",
		"kustomization.yaml": listed + "patchesJson6902:\n- target: {version: v1, kind: ConfigMap, name: a}\n" +
			"  patch: |\n    [" + strings.ReplaceAll(copyOperations(60), `"copy"`, `"c\u006fpy"`) + "]\n"},
		says: "accumulated size increase of copy"},
	"a long text that a patch sets in many objects": {budget: 64 << 20, files: map[string]string{"a.yaml": many(40),
		"kustomization.yaml": listed + "patches:\n- target: {kind: ConfigMap}\n  path: p.yaml\n",
		"p.yaml":             cm("a") + "x: {z: " + strings.Repeat("x", 1<<20) + "}\n"}, says: "needs more than"},
	"a long prefix": {files: map[string]string{"a.yaml": many(300),
		"kustomization.yaml": listed + "namePrefix: " + strings.Repeat("x", 1<<20) + "\n"},
		says: "kustomization.yaml has a namePrefix of 1048576 bytes; names have up to 253"},
	"many annotations of a tenant": {budget: 64 << 20, files: map[string]string{"a.yaml": many(40),
		"kustomization.yaml": listed + "commonAnnotations: {x: " + strings.Repeat("x", 1<<20) + "}\n"},
		says: "needs more than"},
}

func aliasesOf(name string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "  k%d: *%s\n", i, name)
	}
	return b.String()
}

// copyOperations returns operations that copy a map into itself.
func copyOperations(n int) string {
	var operations []string
	for i := range n {
		operations = append(operations, fmt.Sprintf(`{"op": "copy", "from": "/x", "path": "/x/c%d"}`, i))
	}
	return strings.Join(operations, ",\n     ")
}

func many(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "---\n%sx: {y: 1}\n", cm(fmt.Sprintf("a%d", i)))
	}
	return b.String()
}

func TestObjectsThatAreMuchLargerThanTheirFilesAreRefused(t *testing.T) {
	for name, test := range exploding {
		t.Run(name, func(t *testing.T) {
			ctx := guard.WithBudget(t.Context(), guard.NewBudget(cmp.Or(test.budget, 2<<30)))
			_, err := Build(ctx, Request{Tree: artifact.FromMap(test.files)})
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("the error is %.500v, want %q", err, test.says)
			}
		})
	}
}

func TestTextsOfAllObjectsAreBounded(t *testing.T) {
	f := &filesystem{output: maxOutput}
	err := f.takeOutput("ConfigMap apps/web", []byte("{}"))
	const want = "the objects have more than 256 MiB; ConfigMap apps/web is one too many. " +
		"Look for patches and replacements that put long texts into many objects"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the error is %v", err)
	}
}

// TestAKustomizationFileTakesMemory has kustomization files of many values, which are parsed before any is used.
func TestAKustomizationFileTakesMemory(t *testing.T) {
	dense := "resources: [a.yaml]\nx: [" + strings.Repeat("0,", 100_000) + "0]\n"
	for name, files := range map[string]map[string]string{
		"entry": {"kustomization.yaml": dense, "a.yaml": cm("a")},
		"base": {"kustomization.yaml": "resources: [base]\n", "base/kustomization.yaml": dense,
			"base/a.yaml": cm("a")},
	} {
		ctx := guard.WithBudget(t.Context(), guard.NewBudget(16<<20))
		if _, err := Build(ctx, Request{Tree: artifact.FromMap(files)}); !guard.IsMemory(err) {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
}
