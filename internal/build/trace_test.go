package build

import (
	"maps"
	"testing"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/testenv/allocation"
)

var tracedSource = map[string]string{
	"base/kustomization.yaml": "resources: [a.yaml]\nconfigMapGenerator: [{name: g, files: [data.txt]}]\n",
	"base/a.yaml":             cm("a"),
	"base/data.txt":           "x", "base/unused.yaml": cm("u"),
	"other/kustomization.yaml": "resources: [../base/a.yaml]\n",
	"app/kustomization.yaml":   "resources: [../base]\n", "plain/b.yaml": cm("b"), "plain/sub/c.yaml": cm("c"),
	"readme.md":                 "x",
	"linked/kustomization.yaml": "resources: [link]\n", "linked/link": "symlink:../base",
	"broken/kustomization.yaml": "resources: [missing.yaml]\n", "invalid/x.yaml": "a: [\n",
	"plugin/kustomization.yaml": "resources: [../base/a.yaml]\ntransformers: [l.yaml]\n",
	"plugin/l.yaml": "apiVersion: builtin\nkind: LabelTransformer\nmetadata: {name: l}\n" +
		"labels: {a: b}\nfieldSpecs: [{path: metadata/labels, create: true}]\n",
}

var tracedChanges = map[string]struct {
	path      string
	change    map[string]string
	unchanged bool
}{
	"nothing": {path: "app", unchanged: true},
	"an unrelated file": {path: "app",
		change: map[string]string{"readme.md": "y", "plain/b.yaml": cm("z")}, unchanged: true},
	"an unrelated file, generated": {path: "plain",
		change: map[string]string{"readme.md": "y", "base/a.yaml": cm("z")}, unchanged: true},
	"an unrelated directory": {path: "plain", change: map[string]string{"new/a.yaml": cm("n")}, unchanged: true},
	"a file that a base does not refer to": {path: "app",
		change: map[string]string{"base/unused.yaml": "?", "base/more.yaml": "?"}, unchanged: true},
	"a file of a base": {path: "app", change: map[string]string{"base/a.yaml": cm("z")}},
	"a kustomization of a base": {path: "app",
		change: map[string]string{"base/kustomization.yaml": "resources: []\n"}},
	"a generator's file": {path: "app", change: map[string]string{"base/data.txt": "y"}},
	"a plugin's configuration": {path: "plugin",
		change: map[string]string{"plugin/l.yaml": tracedSource["plugin/l.yaml"] + "# more\n"}},
	"a scanned file": {path: "plain",
		change: map[string]string{"plain/sub/c.yaml": cm("z")}},
	"a new file where all are scanned": {path: "plain",
		change: map[string]string{"plain/sub/d.yaml": cm("d")}},
	"a new directory where all are scanned": {path: "plain",
		change: map[string]string{"plain/more/d.yaml": cm("d")}},
	"a scanned file that went away": {path: "plain", change: map[string]string{"plain/b.yaml": ""}},
	"a kustomization where there was none": {path: "plain",
		change: map[string]string{"plain/kustomization.yaml": "resources: [b.yaml]\n"}},
	"a kustomization below": {path: "plain",
		change: map[string]string{"plain/sub/kustomization.yaml": "resources: [c.yaml]\n"}},
	"a second kustomization file": {path: "app",
		change: map[string]string{"base/kustomization.yml": "resources: []\n"}},
	"a file that went away":   {path: "app", change: map[string]string{"base/a.yaml": ""}},
	"the path that went away": {path: "app", change: map[string]string{"app/kustomization.yaml": ""}},
	"a symlink that leads elsewhere": {path: "linked",
		change: map[string]string{"linked/link": "symlink:../other"}},
	"a file behind a symlink": {path: "linked", change: map[string]string{"base/a.yaml": cm("z")}},
	"a file that did not matter, by a symlink": {path: "linked", change: map[string]string{"base/unused.yaml": "?"},
		unchanged: true},
	"the missing file of a failure": {path: "broken",
		change: map[string]string{"broken/missing.yaml": cm("m")}},
	"another file than the cause of a failure": {path: "broken",
		change: map[string]string{"broken/other.yaml": cm("m")}, unchanged: true},
	"the file that was not valid": {path: "invalid",
		change: map[string]string{"invalid/x.yaml": cm("x")}},
	"the path that was not there": {path: "nowhere",
		change: map[string]string{"nowhere/x.yaml": cm("x")}},
	"another path than the one that is not": {path: "nowhere", change: map[string]string{"app/x.yaml": cm("x")},
		unchanged: true},
	"a component that was missing and ignored": {path: "app",
		change: map[string]string{"comp/kustomization.yaml": "kind: Component\n"}},
}

func TestTraceKnowsWhatWasRead(t *testing.T) {
	for reason, c := range tracedChanges {
		t.Run(reason, func(t *testing.T) {
			result, _ := Build(t.Context(), Request{Tree: artifact.FromMap(tracedSource), Path: c.path,
				Components: []string{"../comp"}, IgnoreMissingComponents: true})
			next := maps.Clone(tracedSource)
			for k, v := range c.change {
				next[k] = v
				if v == "" {
					delete(next, k)
				}
			}
			if got := result.Trace.Unchanged(unreadable(artifact.FromMap(next))); got != c.unchanged {
				t.Errorf("unchanged: %v, want %v", got, c.unchanged)
			}
		})
	}
}

// unreadable returns the same tree with unreadable files, except for symlinks: a comparison must not read files.
func unreadable(tree *artifact.Tree) *artifact.Tree {
	links := byID{}
	_ = tree.Walk(func(name string, e *artifact.Entry) error {
		if target, err := tree.ReadLink(name); err == nil {
			links[e.ID] = []byte(target)
		}
		return nil
	})
	return artifact.NewTree(tree.Root(), onlyLinks{links})
}

type onlyLinks struct{ byID }

func (c onlyLinks) Read(id string) ([]byte, error) {
	b, ok := c.byID[id]
	if !ok {
		panic("a file was read")
	}
	return b, nil
}

func (c onlyLinks) Size(string) (int64, error) { panic("a size was asked for") }

// TestATraceIsComparedWithFewAllocations compares what a commit did not touch: each Kustomization of a source does that
// for each commit.
func TestATraceIsComparedWithFewAllocations(t *testing.T) {
	const mostOfLook = 3
	result, err := Build(t.Context(), Request{Tree: artifact.FromMap(tracedSource), Path: "app"})
	if err != nil {
		t.Fatal(err)
	}
	next := maps.Clone(tracedSource)
	next["elsewhere.yaml"] = cm("z")
	tree, most := artifact.FromMap(next), mostOfLook*len(result.Trace.looks)
	if n := allocation.PerRun(func() {
		if !result.Trace.Unchanged(tree) {
			t.Error("the build has changed")
		}
	}); n > float64(most) {
		t.Errorf("%.0f allocations, want at most %d", n, most)
	}
}
