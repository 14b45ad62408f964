package differential

import (
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/source/git"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// The git row: repositories that the git binary made, with random histories, as their trees are read by the product and
// by git; and commits that the product made and pushed, as git reads them.

// gitFiles is a tree: contents by path, with "x " or "- " in front for the mode.
type gitFiles map[string]string

var everything = "" // no file is ignored

// randomFiles returns changes of files: new ones, changed ones, moved ones, deleted ones, and some that git treats in a
// special way.
func randomFiles(r *rand.Rand, before gitFiles) map[string]string {
	names := []string{"a", "b.yaml", "UPPER", "with space", "dash-", "ümlaut", "dot.", "0", "a.b", "a-b", "a0",
		"日本"}
	changes := map[string]string{}
	taken := func(path string) bool {
		for other := range maps.Keys(before) {
			if strings.HasPrefix(other, path+"/") || strings.HasPrefix(path, other+"/") {
				return true
			}
		}
		for other := range changes {
			if strings.HasPrefix(other, path+"/") || strings.HasPrefix(path, other+"/") {
				return true
			}
		}
		return false
	}
	for range 1 + r.IntN(6) {
		depth := 1 + r.IntN(4)
		parts := make([]string, depth)
		for i := range parts {
			parts[i] = names[r.IntN(len(names))]
		}
		path := strings.Join(parts, "/")
		if taken(path) {
			continue
		}
		content := fmt.Sprintf("%d\n%s", r.Int(), strings.Repeat("line\n", r.IntN(40)))
		switch r.IntN(5) {
		case 0:
			content = testenv.Executable(content)
		case 1:
			content = testenv.Symlink(parts[0])
		}
		changes[path] = content
	}
	if paths := slices.Sorted(maps.Keys(before)); len(paths) > 3 && r.IntN(2) == 0 {
		changes[paths[r.IntN(len(paths))]] = testenv.Delete
	}
	return changes
}

// run runs git in a bare repository.
func run(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"--git-dir", dir, "-c", "core.quotePath=false"}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git %s: %v", strings.Join(args, " "), err)
	}
	return string(out)
}

// filesByGit returns the files and links of a commit below paths, all without any, as the git binary has them.
func filesByGit(t *testing.T, dir, commit string, paths ...string) gitFiles {
	t.Helper()
	files := gitFiles{}
	listing := run(t, dir, append([]string{"ls-tree", "-r", "-z", commit}, paths...)...)
	for line := range strings.SplitSeq(listing, "\x00") {
		about, path, found := strings.Cut(line, "\t")
		if !found {
			continue
		}
		words := strings.Fields(about)
		if words[0] == "160000" {
			continue
		}
		files[path] = map[string]string{"100644": "- ", "100755": "x ", "120000": "l "}[words[0]] +
			run(t, dir, "cat-file", "blob", words[2])
	}
	return files
}

// filesOf returns the files and links of a tree.
func filesOf(t *testing.T, tree *artifact.Tree) gitFiles {
	t.Helper()
	files := gitFiles{}
	err := tree.Walk(func(name string, e *artifact.Entry) error {
		if e.Dir != nil {
			return nil
		}
		if e.Mode&fs.ModeSymlink != 0 {
			target, err := tree.ReadLink(name)
			files[name] = "l " + target
			return err
		}
		content, err := tree.ReadFile(name)
		files[name] = "- " + string(content)
		if e.Mode&0o100 != 0 {
			files[name] = "x " + string(content)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// wantFiles compares trees.
func wantFiles(t *testing.T, what string, got, want gitFiles) {
	t.Helper()
	if difference := filesDiffer(got, want); difference != "" {
		t.Errorf("%s: %s", what, difference)
	}
}

// filesDiffer returns how trees differ, or "".
func filesDiffer(got, want gitFiles) string {
	var out []string
	for _, path := range slices.Sorted(maps.Keys(want)) {
		if content, ok := got[path]; !ok || content != want[path] {
			out = append(out, fmt.Sprintf("%q is %.60q, want %.60q", path, content, want[path]))
		}
	}
	for path := range got {
		if _, ok := want[path]; !ok {
			out = append(out, fmt.Sprintf("%q is not in git's tree", path))
		}
	}
	return strings.Join(out, "\n")
}

// TestGitTrees fetches random histories step by step: commits, force pushes, moved and annotated tags, packed and
// repacked repositories, by one view that has what it fetched before, and by a new one.
func TestGitTrees(t *testing.T) {
	t.Parallel()
	g := testenv.NewGit(t)
	repositories := 0
	histories(func(t *testing.T, h []gitStep) string {
		repositories++
		return fetchHistory(t, g, fmt.Sprintf("tree-%d", repositories), h)
	}).run(t)
}

// gitStep is a part of a history: a commit, what happens to the repository after it, and a tag that moves.
type gitStep struct {
	files     map[string]string
	then      string            // "", "repack", "gc", or "force" to push forced without a parent
	forced    map[string]string // by path
	annotated bool
}

// histories compares histories by compare.
func histories(compare func(*testing.T, []gitStep) string) comparison[[]gitStep] {
	return comparison[[]gitStep]{
		quick: 12, full: 120, compare: compare,
		generate: func(r *rand.Rand) (h []gitStep) {
			before := gitFiles{}
			for range 6 {
				s := gitStep{files: randomFiles(r, before), annotated: chance(r, 2),
					then: pick(r, "", "", "force", "repack", "gc")}
				maps.Copy(before, s.files)
				if s.then == "force" {
					s.forced = randomFiles(r, gitFiles{})
					before = maps.Clone(s.forced)
				}
				maps.DeleteFunc(before, func(_, content string) bool { return content == testenv.Delete })
				h = append(h, s)
			}
			return h
		},
		smaller: smallerHistories,
		show: func(h []gitStep) string {
			var out strings.Builder
			for i, s := range h {
				fmt.Fprintf(&out, "step %d: commit %q", i, s.files)
				if s.then != "" {
					fmt.Fprintf(&out, ", %s %q", s.then, s.forced)
				}
				fmt.Fprintf(&out, ", annotated tag: %t\n", s.annotated)
			}
			return out.String()
		},
	}
}

// smallerHistories returns histories without a step, without what follows a commit, or without a file.
func smallerHistories(h []gitStep) (all [][]gitStep) {
	change := func(i int, by func(*gitStep)) {
		next := slices.Clone(h)
		by(&next[i])
		all = append(all, next)
	}
	for i, s := range h {
		if len(h) > 1 {
			all = append(all, slices.Delete(slices.Clone(h), i, i+1))
		}
		if s.then != "" {
			change(i, func(s *gitStep) { s.then, s.forced = "", nil })
		}
		if s.annotated {
			change(i, func(s *gitStep) { s.annotated = false })
		}
		for _, path := range slices.Sorted(maps.Keys(s.files)) {
			if len(s.files) > 1 {
				change(i, func(s *gitStep) { s.files = without(s.files, path) })
			}
		}
		for _, path := range slices.Sorted(maps.Keys(s.forced)) {
			if len(s.forced) > 1 {
				change(i, func(s *gitStep) { s.forced = without(s.forced, path) })
			}
		}
	}
	return all
}

func without(files map[string]string, path string) map[string]string {
	files = maps.Clone(files)
	delete(files, path)
	return files
}

// fetchHistory makes a history with git, and returns how the trees that the product fetches differ from git's.
func fetchHistory(t *testing.T, g *testenv.Git, repo string, h []gitStep) string {
	t.Helper()
	kept := git.NewMirrors(t.TempDir()).View("kept")
	dir := filepath.Join(g.Root, repo+".git")
	const tag = "refs/tags/moved"
	for step, s := range h {
		g.Commit(repo, s.files)
		switch s.then {
		case "force":
			g.ForcePush(repo, "refs/heads/main", s.forced)
		case "repack":
			run(t, dir, "repack", "-q", "-a", "-d")
		case "gc":
			run(t, dir, "gc", "-q", "--prune=now")
		}
		commit := strings.TrimSpace(run(t, dir, "rev-parse", "main"))
		if s.annotated {
			run(t, dir, "-c", "user.name=T", "-c", "user.email=t@t", "tag", "-f", "-a", "-m", "t", "moved", commit)
		} else {
			run(t, dir, "update-ref", tag, commit)
		}
		want := filesByGit(t, dir, commit)
		fresh := git.NewMirrors(t.TempDir()).View("fresh")
		for name, ref := range map[string]git.Reference{"branch": {Branch: "main"}, "tag": {Tag: "moved"},
			"name": {Name: tag}, "commit": {Commit: commit}} {
			for which, view := range map[string]*git.View{"kept": kept, "fresh": fresh} {
				tree, err := fetch(t, view, g.URL+"/"+repo, ref, commit, git.Options{Ignore: &everything})
				difference := fmt.Sprint(err)
				if err == nil {
					difference = filesDiffer(filesOf(t, tree), want)
				}
				if difference != "" {
					return fmt.Sprintf("step %d, %s, %s: %s", step, name, which, difference)
				}
			}
		}
	}
	return ""
}

// TestHistoriesShrink shrinks histories that a made-up fault refuses to the one file that the fault needs.
func TestHistoriesShrink(t *testing.T) {
	t.Parallel()
	links := func(_ *testing.T, h []gitStep) string {
		for _, s := range h {
			for _, content := range s.files {
				if strings.HasPrefix(content, testenv.Symlink("")) {
					return "a link"
				}
			}
		}
		return ""
	}
	c := histories(links)
	shrunk := 0
	for seed := range uint64(20) {
		h := c.generate(rand.New(rand.NewPCG(seed, 1)))
		if links(t, h) == "" {
			continue
		}
		shrunk++
		if small, _ := c.shrink(t, h, "a link"); len(small) != 1 || len(small[0].files) != 1 || small[0].then != "" {
			t.Errorf("seed %d ends as\n%s", seed, c.show(small))
		}
	}
	if shrunk == 0 {
		t.Error("no history has a link")
	}
}

// treeOf updates a view, and returns the tree of the commit that the reference must resolve to.
func treeOf(t *testing.T, what string, view *git.View, url string, ref git.Reference, commit string,
	options git.Options) *artifact.Tree {
	t.Helper()
	tree, err := fetch(t, view, url, ref, commit, options)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	return tree
}

// fetch is treeOf with an error.
func fetch(t *testing.T, view *git.View, url string, ref git.Reference, commit string,
	options git.Options) (*artifact.Tree, error) {
	t.Helper()
	revision, err := view.Update(t.Context(), git.Remote{URL: url}, ref, true)
	if err != nil {
		return nil, err
	}
	if revision.Commit != commit {
		return nil, fmt.Errorf("got %s, want %s", revision, commit)
	}
	return view.Tree(t.Context(), revision, options)
}

// TestGitSparse compares the directories of a sparse checkout with those of git ls-tree.
func TestGitSparse(t *testing.T) {
	t.Parallel()
	g := testenv.NewGit(t)
	for seed := range casesOf(10) {
		r := rand.New(rand.NewPCG(uint64(seed), 12))
		repo := fmt.Sprintf("sparse-%d", seed)
		files := map[string]string{}
		for i := range 30 {
			files[fmt.Sprintf("%c/%c/%d.yaml", 'a'+rune(r.IntN(3)), 'a'+rune(r.IntN(4)), i)] = fmt.Sprintf("i: %d\n", i)
			files[fmt.Sprintf("%d.yaml", i)] = "top: 1\n"
		}
		commit := g.Commit(repo, files)
		directories := []string{fmt.Sprintf("%c", 'a'+rune(r.IntN(3)))}
		if r.IntN(2) == 0 {
			directories = append(directories, fmt.Sprintf("%c/%c", 'a'+rune(r.IntN(3)), 'a'+rune(r.IntN(4))))
		}
		view := git.NewMirrors(t.TempDir()).View("sparse")
		of := filepath.Join(g.Root, repo+".git")
		if missing := slices.IndexFunc(directories, func(dir string) bool {
			return len(filesByGit(t, of, commit, dir)) == 0
		}); missing >= 0 { // git matches nothing, and here it is an error, as in Flux
			refusesDirectory(t, view, g.URL+"/"+repo, directories, directories[missing])
			continue
		}
		tree := treeOf(t, repo, view, g.URL+"/"+repo, git.Reference{Branch: "main"}, commit,
			git.Options{Ignore: &everything, Directories: directories})
		wantFiles(t, fmt.Sprint(repo, directories), filesOf(t, tree), filesByGit(t, of, commit, directories...))
	}
}

// refusesDirectory checks that a sparse checkout of a directory that does not exist is refused.
func refusesDirectory(t *testing.T, view *git.View, url string, directories []string, missing string) {
	t.Helper()
	revision, err := view.Update(t.Context(), git.Remote{URL: url}, git.Reference{Branch: "main"}, true)
	if err != nil {
		t.Fatal(err)
	}
	_, err = view.Tree(t.Context(), revision, git.Options{Ignore: &everything, Directories: directories})
	if err == nil || !strings.Contains(err.Error(), "'"+missing+"' of spec.sparseCheckout does not exist") {
		t.Errorf("%v: got %v, want a refusal of %s", directories, err, missing)
	}
}

// TestGitShallowServer fetches from a repository that is itself a shallow clone, which git makes.
func TestGitShallowServer(t *testing.T) {
	t.Parallel()
	g := testenv.NewGit(t)
	r := rand.New(rand.NewPCG(1, 13))
	before := gitFiles{}
	for range 6 {
		g.Commit("deep", randomFiles(r, before))
		before = filesByGit(t, filepath.Join(g.Root, "deep.git"), "main")
	}
	shallow := filepath.Join(g.Root, "shallow.git")
	deep := "file://" + filepath.Join(g.Root, "deep.git")
	if out, err := exec.Command("git", "clone", "-q", "--bare", "--depth", "2", deep, shallow).
		CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	view := git.NewMirrors(t.TempDir()).View("shallow")
	for range 3 {
		commit := strings.TrimSpace(run(t, shallow, "rev-parse", "main"))
		tree := treeOf(t, "shallow", view, g.URL+"/shallow", git.Reference{Branch: "main"}, commit,
			git.Options{Ignore: &everything})
		wantFiles(t, "shallow", filesOf(t, tree), filesByGit(t, shallow, commit))
		g.Commit("shallow", map[string]string{fmt.Sprintf("n%d", r.Int()): "a: 1\n"})
	}
}

// TestGitSubmodules compares the files of a tree with submodules with those of git clone --recurse-submodules.
func TestGitSubmodules(t *testing.T) {
	t.Parallel()
	g := testenv.NewGit(t)
	for seed := range casesOf(4) {
		r := rand.New(rand.NewPCG(uint64(seed), 14))
		root := fmt.Sprintf("sub-%d", seed)
		leaf := g.Commit(root+"/leaf", map[string]string{"leaf.yaml": fmt.Sprintf("leaf: %d\n", r.Int())})
		middle := g.Commit(root+"/middle", map[string]string{"m/middle.yaml": "m: 1\n",
			"deps/leaf":   testenv.Submodule(leaf),
			".gitmodules": "[submodule \"leaf\"]\n\tpath = deps/leaf\n\turl = ../leaf\n"})
		g.Commit(root+"/leaf", map[string]string{"leaf.yaml": "later: 1\n"})
		commit := g.Commit(root+"/top", map[string]string{"top.yaml": "t: 1\n", "vendor/m": testenv.Submodule(middle),
			"other": testenv.Submodule(leaf),
			".gitmodules": "[submodule \"m\"]\n\tpath = vendor/m\n\turl = ../middle\n" +
				"[submodule \"o\"]\n\tpath = other\n\turl = ../leaf\n"})
		clone := filepath.Join(t.TempDir(), "clone")
		cmd := exec.Command("git", "-c", "protocol.allow=always", "clone", "-q", "--recurse-submodules",
			g.URL+"/"+root+"/top", clone)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		want := gitFiles{}
		if err := filepath.WalkDir(clone, func(path string, d fs.DirEntry, err error) error {
			name, _ := filepath.Rel(clone, path)
			if err != nil || d.IsDir() && d.Name() == ".git" {
				return cmpErr(err, fs.SkipDir)
			}
			if d.Type().IsRegular() && d.Name() != ".git" && d.Name() != ".gitmodules" {
				content, err := os.ReadFile(path)
				want[filepath.ToSlash(name)] = "- " + string(content)
				return err
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		view := git.NewMirrors(t.TempDir()).View("sub")
		tree := treeOf(t, root, view, g.URL+"/"+root+"/top", git.Reference{Branch: "main"}, commit,
			git.Options{Ignore: &everything, Submodules: true})
		got := filesOf(t, tree)
		maps.DeleteFunc(got, func(name, _ string) bool { return filepath.Base(name) == ".gitmodules" })
		wantFiles(t, root, got, want)
	}
}

// cmpErr returns the first error that is not nil.
func cmpErr(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// TestGitPushes commits random edits and notes and pushes them, to be read and checked by git.
func TestGitPushes(t *testing.T) {
	t.Parallel()
	g := testenv.NewGit(t)
	for seed := range casesOf(6) {
		repo := fmt.Sprintf("push-%d", seed)
		t.Run(repo, func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(seed), 15))
			dir := filepath.Join(g.Root, repo+".git")
			g.Commit(repo, randomFiles(r, gitFiles{}))
			view := git.NewMirrors(t.TempDir()).View("push")
			notes := map[string]string{}
			for range 5 {
				if r.IntN(3) == 0 { // another person pushes
					g.Commit(repo, randomFiles(r, filesByGit(t, dir, "main")))
				}
				pushRandom(t, view, git.Remote{URL: g.URL + "/" + repo}, dir, r, notes)
			}
			run(t, dir, "fsck", "--full", "--strict")
			for commit, text := range notes {
				if got := run(t, dir, "notes", "--ref", git.NotesRef, "show", commit); got != text {
					t.Errorf("the note of %s is %q, want %q", commit, got, text)
				}
			}
		})
	}
}

// pushRandom pushes a commit with random edits and a note, and compares its tree with what git has.
func pushRandom(t *testing.T, view *git.View, remote git.Remote, dir string, r *rand.Rand, notes map[string]string) {
	t.Helper()
	revision, err := view.Update(t.Context(), remote, git.Reference{Branch: "main"}, true)
	if err != nil {
		t.Fatal(err)
	}
	want := filesByGit(t, dir, revision.Commit)
	var edits []git.Edit
	for path, content := range randomFiles(r, want) {
		if path == "always" {
			continue // it is edited below
		}
		mode := "- "
		if old, ok := want[path]; ok {
			if mode = old[:2]; mode == "l " {
				continue // links are not edited
			}
		}
		if content == testenv.Delete {
			edits = append(edits, git.Edit{Path: path})
			delete(want, path)
			continue
		}
		edits = append(edits, git.Edit{Path: path, Content: []byte(content)})
		want[path] = mode + content
	}
	edits = append(edits, git.Edit{Path: "always", Content: fmt.Appendf(nil, "%d\n", r.Int())})
	want["always"] = "- " + string(edits[len(edits)-1].Content)
	author := git.Signature{Name: "Sluice", Email: "sluice@example.com", When: time.Unix(1_700_000_000, 0)}
	commit, err := view.Commit(t.Context(), git.NewCommit{Parent: plumbing.NewHash(revision.Commit), Edits: edits,
		Author: author, Message: "random"})
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("note %d\n", r.Int())
	note, err := view.AddNote(t.Context(), commit, text, author)
	if err != nil {
		t.Fatal(err)
	}
	if err := view.Push(t.Context(), []git.RefUpdate{{Name: "refs/heads/main", Old: plumbing.NewHash(revision.Commit),
		New: commit}, note}, nil); err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(run(t, dir, "rev-parse", "main")); got != commit.String() {
		t.Fatalf("main is %s, want %s", got, commit)
	}
	wantFiles(t, "pushed", filesByGit(t, dir, "main"), want)
	notes[commit.String()] = text
}
