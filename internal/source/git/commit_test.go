package git

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Random edits result in the same tree as with git.
func TestEditsMatchGit(t *testing.T) {
	g := testenv.NewGit(t)
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test
	// Names whose order differs between files and directories.
	names := []string{"a", "a.b", "a-b", "a0", "b", "b.yaml", "ü"}
	pick := func() string { return names[random.IntN(len(names))] }
	files := map[string]string{}
	for range 60 {
		setFile(files, path.Join(pick(), pick(), pick()), fmt.Sprint(random.Int()))
		setFile(files, pick(), fmt.Sprint(random.Int()))
	}
	g.Commit("app", files)
	v := open(t)
	for round := range 20 {
		rev := updated(t, v, Remote{URL: g.URL + "/app"}, Reference{Branch: "main"})
		changes, after := map[string]string{}, maps.Clone(files)
		for range 5 {
			if name := slices.Sorted(maps.Keys(after))[random.IntN(len(after))]; random.IntN(2) == 0 {
				changes[name] = fmt.Sprint(random.Int())
			} else {
				changes[name] = testenv.Delete
			}
			if name := path.Join(pick(), pick(), pick()+".yaml"); files[strings.SplitN(name, "/", 2)[0]] == "" &&
				files[path.Dir(name)] == "" {
				changes[name] = fmt.Sprint(random.Int())
			}
		}
		var edits []Edit
		for name, content := range changes {
			e := Edit{Path: name, Content: []byte(content)}
			if content == testenv.Delete {
				e.Content = nil
				delete(after, name)
			} else {
				after[name] = content
			}
			edits = append(edits, e)
		}
		commit, err := v.Commit(t.Context(), NewCommit{Parent: plumbing.NewHash(rev.Commit), Edits: edits,
			Author: author, Message: "edit"})
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		r, err := v.repository(Revision{Commit: commit.String()})
		if err != nil {
			t.Fatal(err)
		}
		tree, err := r.rootTree(commit)
		if err != nil {
			t.Fatal(err)
		}
		theirs := g.Commit("app", changes)
		if want := g.Run("app", "rev-parse", theirs+"^{tree}"); want != tree.String() {
			t.Fatalf("round %d: %v gives the tree %s, git's is %s", round, edits, tree, want)
		}
		files = after
	}
}

// setFile sets a file, unless a directory or a file is in the way.
func setFile(files map[string]string, name, content string) {
	for other := range files {
		if strings.HasPrefix(other, name+"/") || strings.HasPrefix(name, other+"/") {
			return
		}
	}
	files[name] = content
}

func TestEditsThatAreRefused(t *testing.T) {
	g := testenv.NewGit(t)
	module := g.Commit("module", map[string]string{"a": "1"})
	g.Commit("app", map[string]string{"a.yaml": "1", "dir/b.yaml": "1", "link": testenv.Symlink("a.yaml"),
		"module": testenv.Submodule(module)})
	v := open(t)
	rev := updated(t, v, Remote{URL: g.URL + "/app"}, Reference{Branch: "main"})
	for name, edits := range map[string][]Edit{
		"empty path": {{Path: "", Content: []byte("x")}}, "absolute path": {{Path: "/a.yaml", Content: []byte("x")}},
		"path out of repository": {{Path: "dir/../../a.yaml", Content: []byte("x")}},
		"directory":              {{Path: "dir", Content: []byte("x")}},
		"removed directory":      {{Path: "dir", Content: nil}},
		"trailing slash":         {{Path: "dir/", Content: []byte("x")}},
		"symbolic link":          {{Path: "link", Content: []byte("x")}},
		"submodule":              {{Path: "module", Content: []byte("x")}},
		"in submodule":           {{Path: "module/a", Content: []byte("x")}},
		"below symbolic link":    {{Path: "link/a", Content: []byte("x")}},
		"below file":             {{Path: "a.yaml/b", Content: []byte("x")}},
		".git":                   {{Path: ".git/config", Content: []byte("x")}},
		".git on Windows":        {{Path: "dir/GIT~1/hooks/x", Content: []byte("x")}},
		".git on macOS":          {{Path: ".g\u200cit/config", Content: []byte("x")}},
		".git as NTFS stream":    {{Path: ".git::$INDEX_ALLOCATION/config", Content: []byte("x")}},
		"two edits":              {{Path: "a.yaml", Content: []byte("x")}, {Path: "a.yaml", Content: []byte("y")}},
		"file and directory":     {{Path: "new", Content: []byte("x")}, {Path: "new/file", Content: []byte("x")}},
		"too deep":               {{Path: strings.Repeat("d/", maxDepth) + "x", Content: []byte("x")}},
		"empty name":             {{Path: "dir//b.yaml", Content: []byte("x")}},
	} {
		_, err := v.Commit(t.Context(), NewCommit{Parent: plumbing.NewHash(rev.Commit), Edits: edits, Author: author,
			Message: "x"})
		if f := fault.As(err); f == nil || !f.Terminal || f.Hint != "Edit regular files of the repository only" {
			t.Errorf("%s: got %v", name, err)
		}
	}
	for name, edits := range map[string][]Edit{"no edits": nil,
		"same content":            {{Path: "a.yaml", Content: []byte("1")}},
		"removal of missing file": {{Path: "dir/gone.yaml", Content: nil}}} {
		if _, err := v.Commit(t.Context(), NewCommit{Parent: plumbing.NewHash(rev.Commit), Edits: edits, Author: author,
			Message: "x"}); !errors.Is(err, ErrUnchanged) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := v.Commit(t.Context(), NewCommit{Parent: plumbing.NewHash(rev.Commit),
		Edits:  []Edit{{Path: "a.yaml", Content: nil}},
		Author: author, Message: " \n"}); fault.As(err) == nil ||
		fault.As(err).Hint != "Correct spec.git.commit.messageTemplate" {
		t.Errorf("a commit without a message: %v", err)
	}
}

func TestEncodeCleansTexts(t *testing.T) {
	c := NewCommit{
		Author: Signature{Name: "A <evil> U\nThor.", Email: "a@b>\ncommitter x", When: time.Unix(-5, 0).
			In(time.FixedZone("", -5400))},
		Message: "\r\nfix\x00 \xffit\r\n\r\n",
	}
	data, err := c.encode(plumbing.ZeroHash)
	if err != nil {
		t.Fatal(err)
	}
	const who = "A evil UThor <a@bcommitter x> 0 -0130\n"
	if want := "tree " + plumbing.ZeroHash.String() + "\nauthor " + who + "committer " + who +
		"\nfix ?it\n"; string(data) != want {
		t.Errorf("got\n%q, want\n%q", data, want)
	}
	if text := cleanMessage(strings.Repeat("ü", maxMessage)); len(text) > maxMessage+4 {
		t.Errorf("the message has %d bytes", len(text))
	}
}

func TestNotesMatchGit(t *testing.T) {
	g := testenv.NewGit(t)
	var commits []string
	for i := range 4 {
		commits = append(commits, g.Commit("app", map[string]string{"a.yaml": fmt.Sprint(i)}))
	}
	noted := commits[1]
	g.Run("app", "notes", "--ref", NotesRef, "add", "-m", "by git", noted)
	v, remote := open(t), Remote{URL: g.URL + "/app"}
	write := func(commit, text string) {
		t.Helper()
		note, err := v.AddNote(t.Context(), plumbing.NewHash(commit), text, author)
		if err != nil {
			t.Fatal(err)
		}
		if err := v.Push(t.Context(), []RefUpdate{note}, nil); err != nil {
			t.Fatal(err)
		}
	}
	updated(t, v, remote, Reference{Branch: "main"})
	write(noted, "by Sluice")
	write(noted, "by Sluice") // adds it only once
	many := RefUpdate{Name: NotesRef, Old: v.mirror.notes, New: v.mirror.notes}
	for i := range maxFlatNotes + 20 {
		w := &writer{from: v.mirror.current.Load()}
		var err error
		if many.New, err = w.note(many.New, plumbing.NewHash(fmt.Sprintf("%040x", i*7919)), fmt.Sprintf("note %d\n", i),
			author); err != nil {
			t.Fatal(err)
		}
		if err := v.store(t.Context(), w, many.New); err != nil {
			t.Fatal(err)
		}
	}
	if err := v.Push(t.Context(), []RefUpdate{many}, nil); err != nil {
		t.Fatal(err)
	}
	write(noted, "by Sluice, later")
	if got := g.Run("app", "notes", "--ref", NotesRef, "show",
		noted); got != "by git\n\nby Sluice\n\nby Sluice, later" {
		t.Errorf("git shows %q", got)
	}
	if got := strings.Count(g.Run("app", "notes", "--ref", NotesRef, "list"), "\n") + 1; got != maxFlatNotes+21 {
		t.Errorf("git lists %d notes", got)
	}
	g.Run("app", "notes", "--ref", NotesRef, "add", "-m", "by git", commits[2]) // git may move all notes
	updated(t, v, remote, Reference{Branch: "main"})
	for commit, want := range map[string]string{noted: "by git\n\nby Sluice\n\nby Sluice, later\n",
		commits[2]: "by git\n", fmt.Sprintf("%040x", 7919): "note 1\n", commits[3]: ""} {
		if got, err := v.Note(t.Context(), plumbing.NewHash(commit)); err != nil || got != want {
			t.Errorf("the note of %s is %q, %v; want %q", commit, got, err, want)
		}
	}
	g.Run("app", "fsck", "--strict", "--no-dangling")
}
