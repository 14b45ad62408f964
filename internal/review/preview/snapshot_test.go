package preview

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/cluster/risk"
)

// snapshot returns the snapshot of files.
func snapshot(t testing.TB, files map[string]string) *Snapshot {
	t.Helper()
	all := map[string]artifact.File{}
	for name, content := range files {
		all[name] = artifact.File{Mode: 0o644, Data: []byte(content)}
	}
	tree, err := artifact.NewMemory(all)
	if err != nil {
		t.Fatal(err)
	}
	return newSnapshot("test", tree)
}

func TestMerge(t *testing.T) {
	t.Parallel()
	base := snapshot(t, map[string]string{"a/x": "1", "a/y": "1", "a/z": "1", "gone": "1", "deleted": "1", "b/c": "1"})
	from := snapshot(t, map[string]string{"a/x": "2", "a/y": "1", "a/z": "1", "new": "1", "deleted": "1", "b/c": "1"})
	to := snapshot(t, map[string]string{"a/x": "1", "a/y": "3", "a/z": "1", "gone": "1", "added/d": "1"})
	var conflicts []string
	merged := merge("", base.tree.Root(), from.tree.Root(), to.tree.Root(), &conflicts)
	want := snapshot(t, map[string]string{"a/x": "2", "a/y": "3", "a/z": "1", "new": "1", "added/d": "1"})
	if got := changedFiles(merged, want.tree.Root()); len(got)+len(conflicts) > 0 {
		t.Errorf("differs in %v, conflicts %v", got, conflicts)
	}
	if got := changedFiles(from.tree.Root(), merged); fmt.Sprint(got) != "[a/y added/d b/c deleted]" {
		t.Errorf("changed files %v", got)
	}
	to = snapshot(t, map[string]string{"a/x": "3"})
	merge("", base.tree.Root(), from.tree.Root(), to.tree.Root(), &conflicts)
	if !slices.Contains(conflicts, "a/x") {
		t.Errorf("conflicts %v", conflicts)
	}
	err := conflictError("main", "next", slices.Repeat([]string{"f"}, 7))
	if !strings.Contains(err.Error(), "f, f, f, f, f and 2 more") {
		t.Error(err)
	}
}

func TestTreeLeavesOutIgnoredFiles(t *testing.T) {
	t.Parallel()
	s := snapshot(t, map[string]string{"a/.sourceignore": "x.yaml", "a/x.yaml": "1", "a/y.yaml": "1", "b/z.yaml": "1"})
	spec := "/b"
	for rules, want := range map[*string]string{nil: "a/.sourceignore a/y.yaml b/z.yaml", &spec: "a/x.yaml a/y.yaml"} {
		tree, err := s.Tree(checkout{ignore: rules})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		_ = tree.Walk(func(name string, e *artifact.Entry) error {
			if e.Dir == nil {
				names = append(names, name)
			}
			return nil
		})
		if got := strings.Join(names, " "); strings.ReplaceAll(got, "a/.sourceignore ", "") !=
			strings.ReplaceAll(want, "a/.sourceignore ", "") {
			t.Errorf("files %s, want %s", got, want)
		}
	}
}

// TestReach checks that a build is taken as reached by all files that it may read, and not by others.
func TestReach(t *testing.T) {
	t.Parallel()
	s := snapshot(t, map[string]string{
		"apps/web/kustomization.yaml": "resources: [../../base, own.yaml]\n" +
			"configMapGenerator: [{name: c, files: [k=../../shared/f.txt]}]\n",
		"apps/web/own.yaml":            "a: 1",
		"base/kustomization.yaml":      "resources: [deep]\n",
		"base/deep/kustomization.yaml": "resources: [x.yaml]\ngenerators: [../gen.yaml]\n",
		"base/deep/x.yaml":             "a: 1", "base/gen.yaml": "apiVersion: builtin\nfiles: [../shared/g.txt]\n",
		"shared/f.txt": "1", "shared/g.txt": "1", "other/x.yaml": "a: 1", "comp/c.yaml": "a: 1",
		"plain/sub/kustomization.yaml": "resources: [../../base]\n", "plain/a.yaml": "a: 1",
	})
	r := newReach(s.tree)
	for changed, want := range map[string]string{
		"apps/web/own.yaml": "web", "base/deep/x.yaml": "web plain", "shared/f.txt": "web", "shared/g.txt": "web plain",
		"other/x.yaml": "", "comp/c.yaml": "component", "plain/new.yaml": "plain", "apps/web/new.yaml": "web",
		"base/Kustomization": "web plain", "README.md": "",
	} {
		var got []string
		files := newChangeSet([]string{changed})
		if r.touches("./apps/web", nil, files) {
			got = append(got, "web")
		}
		if r.touches("plain", nil, files) {
			got = append(got, "plain")
		}
		if r.touches("other2", []string{"../comp"}, files) {
			got = append(got, "component")
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s reaches %v, want %q", changed, got, want)
		}
		if !r.touches("", nil, files) {
			t.Errorf("%s does not reach a build of the root", changed)
		}
	}
}

// TestMarkdownIsBounded checks that a comment about many objects keeps its table and what is risky, and escapes text.
func TestMarkdownIsBounded(t *testing.T) {
	t.Parallel()
	r := &Result{From: "main", To: "a`b"}
	o := newOwner("Kustomization", typesName("flux-system", "<b>|@all"))
	for n := range 500 {
		object := Object{Object: risk.Object{Action: risk.Configured, Kind: "ConfigMap", Name: fmt.Sprint("c", n)},
			Diff: strings.Repeat("~ data.a: ``` 1\n", 100), Level: risk.Low}
		if n == 499 {
			object.Level = risk.High
			object.Findings = []risk.Finding{{Rule: "r", Level: risk.High, Message: "<script>"}}
		}
		o.Objects = append(o.Objects, object)
	}
	o.Level, r.Level, r.Owners = risk.High, risk.High, []*Owner{o}
	text := r.Markdown(60_000)
	for _, want := range []string{"500 configured, risk high", "c499", "left out", "&lt;b&gt;\\|&#64;all",
		"**high** `r`"} {
		if !strings.Contains(text, want) {
			t.Errorf("the comment has no %q", want)
		}
	}
	if len(text) > 60_000 || strings.Contains(text, "<script>") || strings.Count(text, "```")%2 != 0 ||
		strings.Count(text, "<details>") != strings.Count(text, "</details>") {
		t.Errorf("%d bytes:\n%.2000s", len(text), text)
	}
}

func TestSameRepository(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"https://github.com/o/r", "https://me:x@GitHub.com/o/r.git", "git@github.com:o/r.git",
		"ssh://git@github.com/o/r/"} {
		if !SameRepository("https://github.com/o/r.git", url) {
			t.Errorf("%s is another repository", url)
		}
	}
	if SameRepository("https://github.com/o/r2", "https://github.com/o/r") || SameRepository("", "") {
		t.Error("different repositories are the same")
	}
}

// TestInOrder checks that owners come after those that they depend on, also in a cycle.
func TestInOrder(t *testing.T) {
	t.Parallel()
	named := func(name string) *Owner { return newOwner("K", typesName("n", name)) }
	a, b, c := named("a"), named("b"), named("c")
	a.dependsOn, b.dependsOn, c.dependsOn = []risk.Owner{c.Owner}, []risk.Owner{a.Owner}, []risk.Owner{c.Owner}
	var names []string
	for _, o := range inOrder([]*Owner{b, a, c}) {
		names = append(names, o.Name)
	}
	if got := strings.Join(names, " "); got != "c a b" {
		t.Errorf("order %s", got)
	}
}

func FuzzReferences(f *testing.F) {
	f.Add("resources: [../base, a.yaml]\nconfigMapGenerator: [{files: [k=v.txt]}]", "b/x")
	f.Add("resources: [kustomization.yaml, '=', '..', /]", "a/kustomization.yaml")
	f.Fuzz(func(t *testing.T, content, changed string) {
		s := snapshot(t, map[string]string{"a/kustomization.yaml": content, "b/x": "1",
			"b/kustomization.yaml": content})
		newReach(s.tree).touches("a", []string{content}, newChangeSet([]string{changed}))
	})
}

func typesName(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}
