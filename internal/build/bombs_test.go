package build

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/build/sandbox"
	"github.com/sluice-gitops/sluice/internal/guard"
)

// bounded returns children with little memory and time.
func bounded(t *testing.T) *sandbox.Pool {
	pool := sandbox.New(sandbox.Options{Argument: childArgument, Work: "runs kustomize", Timeout: 2 * time.Second,
		MaxMemory: 128 << 20, FreeMemory: kustomizeFree})
	t.Cleanup(pool.Close)
	return pool
}

func buildIn(ctx context.Context, pool *sandbox.Pool, files map[string]string, path string) (*filesystem, error) {
	f := newFilesystem(ctx, artifact.FromMap(files))
	f.pool = pool
	_, err := f.build(Request{Tree: f.tree, Path: path})
	return f, err
}

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
func ofItself() map[string]map[string]string {
	doubling := into(26, "data.x", "data.x", `delimiter: "|", index: 9999999`)
	values := cm("a") + "data: {x: abcdefgh}\nx: {y: '1'}\n"
	return map[string]map[string]string{
		"a text into itself": {"kustomization.yaml": listed + "replacements:\n" + doubling,
			"a.yaml": values},
		"by a transformer": {"a.yaml": values, "kustomization.yaml": listed +
			"transformers: [t.yaml]\n",
			"t.yaml": "apiVersion: builtin\nkind: ReplacementTransformer\nmetadata: {name: r}\n" +
				"replacements:\n" + doubling},
		"in a base": {"kustomization.yaml": "resources: [base]\nnamePrefix: p-\n",
			"base/kustomization.yaml": listed + "replacements:\n" + doubling,
			"base/a.yaml":             values},
		"a map into itself": {"a.yaml": values,
			"kustomization.yaml": listed + "replacements:\n" + into(17, "x", "x.cN",
				"create: true")},
	}
}

// ofLittle are other sources that make much of little.
func ofLittle() map[string]map[string]string {
	long := strings.Repeat("x", 100<<10)
	return map[string]map[string]string{
		"a text into a text that is JSON": {"a.yaml": cm("a") +
			"data: {x: '{\"k\": \"abcdefgh\"}'}\n",
			"kustomization.yaml": listed + "replacements:\n" + into(26, "data.x", "data.x.k",
				"create: false")},
		"aliases in a text that is JSON": {"a.yaml": cm("a") + "data:\n  y: z\n" +
			"  x: |\n    {a: &a " + long +
			", k: '', b: [" + strings.Repeat("*a, ", 10_000) + "*a]}\n",
			"kustomization.yaml": listed + "replacements:\n" + into(1, "data.y", "data.x.k",
				"create: false")},
		"many references to a var": {"a.yaml": cm("a") + "data: {x: " + long +
			"}\n---\napiVersion: v1\n" +
			"kind: ConfigMap\nmetadata: {name: b, annotations: {z: '" + strings.Repeat("$(V)",
			10_000) + "'}}\n",
			"kustomization.yaml": listed + "vars:\n- name: V\n" +
				"  objref: {apiVersion: v1, kind: ConfigMap, name: a}\n" +
				"  fieldref: {fieldPath: data.x}\n"},
		"a generated text in many fields": {"a.yaml": many(200),
			"f.txt": strings.Repeat(long, 20),
			"kustomization.yaml": listed + "configMapGenerator:\n- name: g\n  files: [f.txt]\n" +
				"replacements:\n" +
				"- source: {kind: ConfigMap, name: g, fieldPath: 'data.f\\.txt'}\n" +
				"  targets:\n  - select: {kind: ConfigMap}\n" +
				"    fieldPaths: [x.y]\n    options: {create: true}\n"},
		"a transformer's patch for many objects": {"a.yaml": many(2000),
			"kustomization.yaml": listed + "transformers: [t.yaml]\n",
			"t.yaml": "apiVersion: builtin\nkind: PatchTransformer\nmetadata: {name: p}\n" +
				"target: {kind: ConfigMap}\n" +
				"patch: |\n  " + "apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: a}\n" +
				"  x: {" + strings.Join(numbered("k%d: v", 2000), ", ") + "}\n"},
	}
}

// ofManyParts are sources whose parts are small, but too many for one another.
func ofManyParts() map[string]map[string]string {
	large := cm("a") + "data:\n" + keys(4000)
	return map[string]map[string]string{
		"patches of a large object": {"kustomization.yaml": listed + "patches:\n" +
			strings.Repeat("- {patch: '"+patchOfData+"'}\n", 6000), "a.yaml": large},
		"patches with a target": {"kustomization.yaml": listed + "patches:\n" +
			strings.Repeat("- {target: {kind: ConfigMap}, patch: '"+patchOfData+"'}\n", 6000), "a.yaml": large},
		"fields of a replacement": {"kustomization.yaml": listed + "replacements:\n" +
			"- source: {kind: ConfigMap, name: a, fieldPath: data.k1}\n  targets:\n" +
			"  - select: {kind: ConfigMap}\n    fieldPaths: [" + strings.Repeat("data.k2,", 400_000) + "]\n",
			"a.yaml": large},
		"many levels of many objects": levelsOf(100, 4000),
		"a JSON patch that copies, for many objects": {"a.yaml": many(2_000),
			"kustomization.yaml": listed + "patches:\n- target: {kind: ConfigMap}\n  patch: |\n    [" +
				copyOperations(12) + "]\n"},
		"a long patch for many objects": {"a.yaml": many(300),
			"kustomization.yaml": listed + "patches:\n- target: {kind: ConfigMap}\n  path: p.yaml\n",
			"p.yaml":             cm("a") + "x: {z: [" + strings.Repeat("1,", 40_000) + "1]}\n"},
		"a target with a large program": {"a.yaml": many(4000), "kustomization.yaml": listed + "patches:\n" +
			strings.Repeat("- {target: {name: '(?:a?){1000}'}, patch: '[]'}\n", 300)},
		"a recursive alias in a patch of a plugin": {"kustomization.yaml": listed + "transformers: [t.yaml]\n",
			"a.yaml": cm("a"), "t.yaml": "apiVersion: builtin\nkind: PatchTransformer\nmetadata: {name: t}\n" +
				"target: {kind: ConfigMap}\npatch: " + strings.ReplaceAll(inlinePatch(ouroboros), "\n    ", "\n  ")},
	}
}

func numbered(format string, n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(format, i))
	}
	return all
}

var ended = regexp.MustCompile(`^kustomize cannot build the source: it (uses more than 128 MiB of memory|did not ` +
	`finish within 2s) with \d+ kustomization files?, .*\. Look for what multiplies`)

// TestBombsEndInTheirChild builds sources of which kustomize makes far more than they are.
func TestBombsEndInTheirChild(t *testing.T) {
	pool := bounded(t)
	all := ofItself()
	maps.Copy(all, ofLittle())
	maps.Copy(all, ofManyParts())
	for name, files := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			_, err := buildIn(guard.WithBudget(t.Context(), guard.NewBudget(2<<30)), pool, files, "")
			if err == nil || !ended.MatchString(err.Error()) {
				t.Errorf("after %s, the error is %.700v", time.Since(began), err)
			}
		})
	}
}

func TestEndsOfChildrenAreExplained(t *testing.T) {
	f := newFilesystem(t.Context(), artifact.FromMap(nil))
	f.pool = bounded(t)
	f.extent = extent{files: 1, documents: 20, patches: 1, replacements: 300, images: 2}
	const what, with = "kustomize cannot build the source: ", " with 1 kustomization file, 20 YAML documents, " +
		"1 patch, 300 replacements, 2 images. Look for what multiplies: patches, images, replacements and vars for " +
		"many objects, texts that are put into themselves, and bases that are listed more than once. Write the " +
		"fields into the objects, or split the source into several Kustomizations"
	for ended, want := range map[sandbox.Ended]string{
		{Kind: sandbox.OutOfTime}:     what + "it did not finish within 2s" + with,
		{Kind: sandbox.OutOfMemory}:   what + "it uses more than 128 MiB of memory" + with,
		{Kind: sandbox.TooMuchOutput}: "an object has more than 256 MiB. Look for what multiplies",
		{Kind: sandbox.Crashed, Detail: "exit status 2"}: what + "its process ended (exit status 2). Run 'kustomize " +
			"build' to reproduce it. Other builds are not affected",
		{Kind: sandbox.Killed}: what + "its process was killed from outside. The container has probably too little " +
			"memory: it is tried again. If it happens often, raise the memory limit of the controller",
	} {
		f.hasTimedOut = false
		err := f.explainEnded(&ended)
		if !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
		if isAgain := guard.IsWaitingForMemory(err) || f.hasTimedOut; isAgain !=
			(ended.Kind == sandbox.Killed || ended.Kind == sandbox.OutOfTime) {
			t.Errorf("%v is built again: %v", err, isAgain)
		}
	}
}
