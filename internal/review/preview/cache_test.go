package preview

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-billy/v5/memfs"
	"github.com/go-git/go-billy/v5/util"
	git "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage/memory"

	"github.com/sluice-gitops/sluice/internal/cluster/risk"
)

const (
	applied = "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: %s, namespace: " +
		"flux-system}\nspec: {interval: 1h, path: ./%s, prune: %t, targetNamespace: n%d, suspend: %t, " +
		"sourceRef: {kind: GitRepository, name: fleet}%s}\n"
	component = "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n"
	configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c%d}\ndata: {a: \"%d\", b: \"${x:=1}\"}\n"
	secret    = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {password: p%d}\n"
	set       = "apiVersion: fluxcd.controlplane.io/v1\nkind: ResourceSet\nmetadata: {name: r, namespace: apps}\n" +
		"spec:\n  inputs: [{n: \"%d\"}]\n  resources:\n" +
		"  - {apiVersion: v1, kind: ConfigMap, metadata: {name: << inputs.n >>}}\n"
)

// generator makes repositories and changes of them.
type generator struct{ *rand.Rand }

func (g generator) app(name string) string {
	more := []string{"", "", ", postBuild: {substitute: {x: \"2\"}}",
		", postBuild: {substituteFrom: [{kind: ConfigMap, name: c1}]}", ", components: [../../component]"}[g.IntN(5)]
	return fmt.Sprintf(applied, name, "apps/"+name, g.IntN(4) > 0, g.IntN(3), g.IntN(8) == 0, more)
}

// file returns a name and a content of a file of an application.
func (g generator) file(app string) (name, content string) {
	dir := "apps/" + app + "/"
	switch g.IntN(7) {
	case 0:
		return dir + "kustomization.yaml", []string{"resources: [a.yaml, ../../base]\n", "resources: [a.yaml]\n" +
			"configMapGenerator: [{name: g, files: [../../shared/f.txt]}]\n", "resources: [b.yaml]\n"}[g.IntN(3)]
	case 1:
		return dir + "s.yaml", fmt.Sprintf(secret, g.IntN(3))
	case 2: // in few, as each render starts a process
		return "apps/app0/set.yaml", fmt.Sprintf(set, g.IntN(3))
	case 3:
		return dir + ".sourceignore", []string{"b.yaml\n", "s.yaml\n"}[g.IntN(2)]
	case 4:
		return dir + "a.yaml", "a: [broken\n"
	}
	return dir + []string{"a.yaml", "b.yaml"}[g.IntN(2)], fmt.Sprintf(configMap, g.IntN(3), g.IntN(5))
}

// change returns the files of a change; an empty one is removed.
func (g generator) change() map[string]string {
	out := map[string]string{}
	for range 1 + g.IntN(3) {
		app := fmt.Sprint("app", g.IntN(8))
		switch g.IntN(8) {
		case 0:
			out["clusters/"+app+".yaml"] = g.app(app)
		case 1:
			out["clusters/"+app+".yaml"] = ""
		case 2:
			out["base/kustomization.yaml"] = "resources: [x.yaml]\nnamePrefix: p" + fmt.Sprint(g.IntN(3)) + "-\n"
		case 3:
			out["shared/f.txt"] = fmt.Sprint(g.IntN(5))
		case 4:
			out["component/kustomization.yaml"] = component +
				"commonAnnotations: {k: v" + fmt.Sprint(g.IntN(3)) + "}\n"
		case 5:
			out["clusters/config.yaml"] = fmt.Sprintf(configMap, 1, g.IntN(3))
		default:
			name, content := g.file(app)
			if g.IntN(5) == 0 {
				content = ""
			}
			out[name] = content
		}
	}
	return out
}

// history is a repository in memory.
type history struct {
	*testing.T
	repo *git.Repository
	work *git.Worktree
}

func newHistory(t *testing.T) *history {
	t.Helper()
	repo, err := git.Init(memory.NewStorage(), memfs.New())
	if err != nil {
		t.Fatal(err)
	}
	work, err := repo.Worktree()
	if err != nil {
		t.Fatal(err)
	}
	return &history{t, repo, work}
}

// commit commits files, and returns the commit.
func (h *history) commit(files map[string]string) plumbing.Hash {
	h.Helper()
	for name, content := range files {
		err := util.WriteFile(h.work.Filesystem, name, []byte(content), 0o644)
		if content == "" {
			err = h.work.Filesystem.Remove(name)
			_, _ = h.work.Remove(name) // it may not exist
		} else if err == nil {
			_, err = h.work.Add(name)
		}
		if err != nil && content != "" {
			h.Fatal(err)
		}
	}
	hash, err := h.work.Commit("change", &git.CommitOptions{AllowEmptyCommits: true,
		Author: &object.Signature{Name: "a", Email: "a@example.com", When: time.Unix(1, 0)}})
	if err != nil {
		h.Fatal(err)
	}
	return hash
}

// previewed returns the preview of a change as JSON.
func (h *history) previewed(from, to plumbing.Hash, cache *Cache, keyless bool) string {
	h.Helper()
	r := &Repository{repo: h.repo, Cache: cache}
	o := Options{Rules: risk.Default(), Strict: true, Keyless: keyless, Cache: cache}
	var err error
	if o.From, o.To, err = r.Snapshots(from.String(), to.String()); err != nil {
		h.Fatal(err)
	}
	result, err := Run(h.Context(), o)
	if err != nil {
		return err.Error()
	}
	slices.Sort(result.Notes)
	text, err := json.MarshalIndent(result, "", " ")
	if err != nil {
		h.Fatal(err)
	}
	return string(text)
}

// TestCachedPreviewsAreEqual previews generated changes, some of which are merged, with a cache and without one.
func TestCachedPreviewsAreEqual(t *testing.T) {
	t.Parallel()
	g := generator{rand.New(rand.NewPCG(1, 2))}
	h := newHistory(t)
	files := map[string]string{"clusters/root.yaml": fmt.Sprintf(applied, "root", "clusters", true, 0, false, ""),
		"base/kustomization.yaml": "resources: [x.yaml]\n", "base/x.yaml": fmt.Sprintf(configMap, 9, 1),
		"shared/f.txt": "1", "component/kustomization.yaml": component}
	for n := range 8 {
		app := fmt.Sprint("app", n)
		files["clusters/"+app+".yaml"], files["apps/"+app+"/a.yaml"] = g.app(app), fmt.Sprintf(configMap, 0, 0)
	}
	main := h.commit(files)
	caches := map[bool]*Cache{true: {}, false: {}}
	changed := 0
	for range 30 {
		if err := h.work.Reset(&git.ResetOptions{Commit: main, Mode: git.HardReset}); err != nil {
			t.Fatal(err)
		}
		change := g.change()
		next := h.commit(change)
		keyless := g.IntN(2) == 0
		want := h.previewed(main, next, nil, keyless)
		if got := h.previewed(main, next, caches[keyless], keyless); got != want {
			t.Fatalf("%q: with the cache\n%s\nwithout\n%s", slices.Sorted(maps.Keys(change)), got, want)
		}
		if strings.Contains(want, `"action"`) {
			changed++
		}
		if g.IntN(3) == 0 {
			main = next
		}
	}
	if used := caches[true].builds.Len(); changed < 10 || used < 5 {
		t.Errorf("%d changes change objects, %d Kustomizations are kept: the test proves little", changed, used)
	}
}
