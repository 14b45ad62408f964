package build

import (
	"maps"
	"testing"

	"github.com/sluice-gitops/sluice/internal/artifact"
)

func TestTraceKnowsWhatWasRead(t *testing.T) {
	base := map[string]string{
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
	for reason, c := range map[string]struct {
		path      string
		change    map[string]string
		unchanged bool
	}{
		"nothing": {"app", nil, true},
		"an unrelated file": {"app",
			map[string]string{"readme.md": "y", "plain/b.yaml": cm("z")}, true},
		"an unrelated file, generated": {"plain",
			map[string]string{"readme.md": "y", "base/a.yaml": cm("z")}, true},
		"an unrelated directory": {"plain", map[string]string{"new/a.yaml": cm("n")}, true},
		"a file that a base does not refer to": {"app",
			map[string]string{"base/unused.yaml": "?", "base/more.yaml": "?"}, true},
		"a file of a base": {"app", map[string]string{"base/a.yaml": cm("z")}, false},
		"a kustomization of a base": {"app",
			map[string]string{"base/kustomization.yaml": "resources: []\n"}, false},
		"a generator's file": {"app", map[string]string{"base/data.txt": "y"}, false},
		"a plugin's configuration": {"plugin",
			map[string]string{"plugin/l.yaml": base["plugin/l.yaml"] + "# more\n"}, false},
		"a scanned file":                        {"plain", map[string]string{"plain/sub/c.yaml": cm("z")}, false},
		"a new file where all are scanned":      {"plain", map[string]string{"plain/sub/d.yaml": cm("d")}, false},
		"a new directory where all are scanned": {"plain", map[string]string{"plain/more/d.yaml": cm("d")}, false},
		"a scanned file that went away":         {"plain", map[string]string{"plain/b.yaml": ""}, false},
		"a kustomization where there was none": {"plain",
			map[string]string{"plain/kustomization.yaml": "resources: [b.yaml]\n"}, false},
		"a kustomization below": {"plain",
			map[string]string{"plain/sub/kustomization.yaml": "resources: [c.yaml]\n"}, false},
		"a second kustomization file": {"app",
			map[string]string{"base/kustomization.yml": "resources: []\n"}, false},
		"a file that went away":   {"app", map[string]string{"base/a.yaml": ""}, false},
		"the path that went away": {"app", map[string]string{"app/kustomization.yaml": ""}, false},
		"a symlink that leads elsewhere": {"linked",
			map[string]string{"linked/link": "symlink:../other"}, false},
		"a file behind a symlink":                  {"linked", map[string]string{"base/a.yaml": cm("z")}, false},
		"a file that did not matter, by a symlink": {"linked", map[string]string{"base/unused.yaml": "?"}, true},
		"the missing file of a failure": {"broken",
			map[string]string{"broken/missing.yaml": cm("m")}, false},
		"another file than the cause of a failure": {"broken", map[string]string{"broken/other.yaml": cm("m")}, true},
		"the file that was not valid":              {"invalid", map[string]string{"invalid/x.yaml": cm("x")}, false},
		"the path that was not there":              {"nowhere", map[string]string{"nowhere/x.yaml": cm("x")}, false},
		"another path than the one that is not":    {"nowhere", map[string]string{"app/x.yaml": cm("x")}, true},
		"a component that was missing and ignored": {"app",
			map[string]string{"comp/kustomization.yaml": "kind: Component\n"}, false},
	} {
		t.Run(reason, func(t *testing.T) {
			result, _ := Build(t.Context(), Request{Tree: artifact.FromMap(base), Path: c.path,
				Components: []string{"../comp"}, IgnoreMissingComponents: true})
			next := maps.Clone(base)
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
