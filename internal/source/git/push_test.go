package git

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

var author = Signature{Name: "Sluice", Email: "sluice@example.com", When: time.Unix(1_700_000_000, 0).UTC()}

const mainRef = "refs/heads/main"

// change creates a commit that edits one file of a revision.
func change(t *testing.T, v *View, rev Revision, path, content string) plumbing.Hash {
	t.Helper()
	hash, err := v.Commit(t.Context(), NewCommit{
		Parent: plumbing.NewHash(rev.Commit), Edits: []Edit{{Path: path, Content: []byte(content)}}, Author: author,
		Message: "Change " + path,
	})
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

// to returns an update of a reference from a revision to a commit.
func to(ref string, rev Revision, commit plumbing.Hash) RefUpdate {
	return RefUpdate{Name: ref, Old: plumbing.NewHash(rev.Commit), New: commit}
}

func TestPushCommitWithNote(t *testing.T) {
	g := testenv.NewGit(t)
	g.Commit("app", map[string]string{"a.yaml": "a: 1\n", "deep/er/b.yaml": "b: 1\n",
		"run.sh": testenv.Executable("true")})
	mirrors := NewMirrors(t.TempDir())
	v, remote, ref := mirrors.View("owner"), Remote{URL: g.URL + "/app"}, Reference{Branch: "main"}
	rev := updated(t, v, remote, ref)
	commit, err := v.Commit(t.Context(), NewCommit{
		Parent: plumbing.NewHash(rev.Commit),
		Edits: []Edit{
			{Path: "deep/er/b.yaml", Content: []byte("b: 2\n")}, {Path: "new/dir/c.yaml", Content: []byte("c: 1\n")},
			{Path: "a.yaml", Content: nil},
			{Path: "run.sh", Content: []byte("false")},
		},
		Author: author, Committer: Signature{Name: "Bot", Email: "bot@example.com", When: author.When},
		Message: "Update\r\n\r\nall of it\n\n",
	})
	if err != nil {
		t.Fatal(err)
	}
	note, err := v.AddNote(t.Context(), commit, "why: so", author)
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Push(t.Context(), []RefUpdate{to(mainRef, rev, commit), note}, nil); err != nil {
		t.Fatal(err)
	}
	if got := g.Run("app", "rev-parse", "main"); got != commit.String() {
		t.Errorf("main is %s, want %s", got, commit)
	}
	if got := g.Run("app", "ls-tree", "-r", "--format=%(objectmode) %(path)",
		"main"); got != "100644 deep/er/b.yaml\n100644 new/dir/c.yaml\n100755 run.sh" {
		t.Errorf("the tree contains\n%s", got)
	}
	if got := g.Run("app", "log", "-1", "--format=%an <%ae> %at, %cn <%ce>: %B",
		"main"); got != "Sluice <sluice@example.com> 1700000000, Bot <bot@example.com>: Update\n\nall of it" {
		t.Errorf("the log is %q", got)
	}
	if got := g.Run("app", "notes", "--ref", NotesRef, "show", commit.String()); got != "why: so" {
		t.Errorf("the note is %q", got)
	}
	g.Run("app", "fsck", "--strict", "--no-dangling")

	before := g.Stats()
	if next := updated(t, v, remote, ref); next.Commit != commit.String() {
		t.Errorf("the update returns %s", next)
	}
	if text, err := v.Note(t.Context(), commit); err != nil || text != "why: so\n" {
		t.Errorf("the note is %q, %v", text, err)
	}
	if after := g.Stats(); after["fetches"] != before["fetches"] {
		t.Error("the pushed commit was fetched")
	}
}

func TestUpdateFetchesNotes(t *testing.T) {
	g := testenv.NewGit(t)
	g.Commit("app", map[string]string{"a.yaml": "a: 1\n"})
	remote, ref := Remote{URL: g.URL + "/app"}, Reference{Branch: "main"}
	writer, reader := open(t), open(t)
	updated(t, reader, remote, ref)
	commits := map[plumbing.Hash]string{}
	for i := range 3 {
		rev := updated(t, writer, remote, ref)
		commit := change(t, writer, rev, "a.yaml", fmt.Sprintf("a: %d\n", i+2))
		text := fmt.Sprintf("note %d\n", i)
		note, err := writer.AddNote(t.Context(), commit, text, author)
		if err != nil {
			t.Fatal(err)
		}
		if err := writer.Push(t.Context(), []RefUpdate{to(mainRef, rev, commit), note}, nil); err != nil {
			t.Fatal(err)
		}
		commits[commit] = text
	}
	updated(t, reader, remote, ref)
	before := g.Stats()
	for commit, text := range commits {
		if got, err := reader.Note(t.Context(), commit); err != nil || got != text {
			t.Errorf("the note of %s is %q, %v; want %q", commit, got, err, text)
		}
	}
	if got, err := reader.Note(t.Context(), plumbing.NewHash(strings.Repeat("1", 40))); err != nil || got != "" {
		t.Errorf("a commit without a note: got %q, %v", got, err)
	}
	if after := g.Stats(); after["advertisements"] != before["advertisements"] ||
		after["fetches"] != before["fetches"] {
		t.Error("reading fetched notes needs requests")
	}
}

func TestConcurrentPushesLoseNothing(t *testing.T) {
	g := testenv.NewGit(t)
	g.Commit("app", map[string]string{"a.yaml": "0"})
	remote, ref := Remote{URL: g.URL + "/app"}, Reference{Branch: "main"}
	const pushers, each = 3, 4
	var wg sync.WaitGroup
	for p := range pushers {
		v := NewMirrors(t.TempDir()).View("owner")
		wg.Go(func() {
			for i := range each {
				if err := pushUntilAccepted(t.Context(), v, remote, ref,
					fmt.Sprintf("p%d/f%d.yaml", p, i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := strings.Count(g.Run("app", "ls-tree", "-r", "--name-only", "main"), ".yaml"); got != pushers*each+1 {
		t.Errorf("got %d files: a change is lost", got)
	}
	if got := g.Run("app", "rev-list", "--count", "main"); got != fmt.Sprint(pushers*each+1) {
		t.Errorf("got %s commits", got)
	}
	if got := strings.Count(g.Run("app", "notes", "--ref", NotesRef, "list"), "\n") + 1; got < pushers*each {
		t.Errorf("got %d notes", got)
	}
	g.Run("app", "fsck", "--strict", "--no-dangling")
}

func pushUntilAccepted(ctx context.Context, v *View, remote Remote, ref Reference, path string) error {
	for {
		rev, err := v.Update(ctx, remote, ref, true)
		if err != nil {
			return err
		}
		commit, err := v.Commit(ctx, NewCommit{Parent: plumbing.NewHash(rev.Commit),
			Edits: []Edit{{Path: path, Content: []byte(path)}}, Author: author, Message: path})
		if err != nil {
			return err
		}
		note, err := v.AddNote(ctx, commit, path, author)
		if err != nil {
			return err
		}
		if err := v.Push(ctx, []RefUpdate{to(mainRef, rev, commit), note}, nil); !errors.Is(err, ErrRaced) {
			return err
		}
	}
}

func TestPushOverwritesOnlyExpectedCommits(t *testing.T) {
	for name, c := range map[string]struct {
		update func(rev Revision, other, commit plumbing.Hash) RefUpdate // other is the current commit of the branch
		want   string                                                    // part of the error
		raced  bool
	}{
		"other push": {update: func(rev Revision, _, commit plumbing.Hash) RefUpdate {
			return to(mainRef, rev, commit)
		}, want: "changed by another push. The push is retried on top of the current commit", raced: true},
		"other history": {update: func(_ Revision, other, commit plumbing.Hash) RefUpdate {
			return RefUpdate{Name: mainRef, Old: other, New: commit}
		}, want: "Push to another branch"},
		"existing branch instead of new": {update: func(_ Revision, _, commit plumbing.Hash) RefUpdate {
			return RefUpdate{Name: mainRef, New: commit}
		}, want: "changed by another push", raced: true},
		"force": {update: func(_ Revision, _, commit plumbing.Hash) RefUpdate {
			return RefUpdate{Name: mainRef, New: commit, Force: true}
		}, want: ""},
		"force with expected commit": {update: func(_ Revision, other, commit plumbing.Hash) RefUpdate {
			return RefUpdate{Name: mainRef, Old: other, New: commit, Force: true}
		}, want: ""},
		"force with other commit": {update: func(rev Revision, _, commit plumbing.Hash) RefUpdate {
			u := to(mainRef, rev, commit)
			u.Force = true
			return u
		}, want: "changed by another push", raced: true},
		"new branch": {update: func(_ Revision, _, commit plumbing.Hash) RefUpdate {
			return RefUpdate{Name: "refs/heads/update/app", New: commit}
		}, want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := testenv.NewGit(t)
			g.Commit("app", map[string]string{"a.yaml": "1"})
			v := open(t)
			rev := updated(t, v, Remote{URL: g.URL + "/app"}, Reference{Branch: "main"})
			commit := change(t, v, rev, "a.yaml", "2")
			other := plumbing.NewHash(g.Commit("app", map[string]string{"a.yaml": "3"}))
			update := c.update(rev, other, commit)
			err := v.Push(t.Context(), []RefUpdate{update}, nil)
			if c.want == "" {
				if err != nil || g.Run("app", "rev-parse", update.Name) != commit.String() {
					t.Errorf("the commit was not pushed: %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrRaced) != c.raced ||
				fault.As(err) == nil {
				t.Errorf("got %v", err)
			}
			if got := g.Run("app", "rev-parse", "main"); got != other.String() {
				t.Errorf("main is %s", got)
			}
		})
	}
}

func TestPushNamesTheLockOfAReference(t *testing.T) {
	g := testenv.NewGit(t)
	g.Commit("app", map[string]string{"a.yaml": "1"})
	v := open(t)
	rev := updated(t, v, Remote{URL: g.URL + "/app"}, Reference{Branch: "main"})
	commit := change(t, v, rev, "a.yaml", "2")
	lock := filepath.Join(g.Root, "app.git", "refs", "heads", "main.lock")
	if err := os.WriteFile(lock, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := v.Push(t.Context(), []RefUpdate{to(mainRef, rev, commit)}, nil)
	if !errors.Is(err, ErrRaced) || !strings.Contains(err.Error(), "the server reports: failed to update ref). "+
		"The push is retried on top of the current commit") {
		t.Errorf("got %v", err)
	}
	if err := os.Remove(lock); err != nil {
		t.Fatal(err)
	}
	if err := v.Push(t.Context(), []RefUpdate{to(mainRef, rev, commit)}, nil); err != nil {
		t.Errorf("after the lock was removed: %v", err)
	}
}

func TestPushErrorQuotesServer(t *testing.T) {
	g := testenv.NewGit(t)
	for name, hook := range map[string]string{"pre-receive": "cat >/dev/null; echo 'frozen until Monday; token " +
		"hunter2' >&2; exit 1", "update": "case $1 in refs/notes/*) exit 0;; esac; echo 'main is protected'; exit 1"} {
		t.Run(name, func(t *testing.T) {
			first := g.Commit(name, map[string]string{"a.yaml": "1"})
			install(t, g, name, name, hook)
			v := open(t)
			rev := updated(t, v, Remote{URL: g.URL + "/" + name,
				Credentials: Credentials{Username: "me", Password: "hunter2"}}, Reference{Branch: "main"})
			commit := change(t, v, rev, "a.yaml", "2")
			note, err := v.AddNote(t.Context(), commit, "note", author)
			if err != nil {
				t.Fatal(err)
			}
			err = v.Push(t.Context(), []RefUpdate{to(mainRef, rev, commit), note}, nil)
			f := fault.As(err)
			if f == nil || !f.Terminal || errors.Is(err, ErrRaced) || strings.Contains(err.Error(), "hunter2") {
				t.Fatalf("got %v", err)
			}
			want := map[string]string{"pre-receive": "frozen until Monday; token ***. Check the branch's " +
				"protection and the server's hooks, or push to another branch and open a pull request",
				"update": "main is protected"}[name]
			if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), mainRef) {
				t.Errorf("the error does not quote the hook: %v", err)
			}
			if got := g.Run(name, "for-each-ref", "--format=%(objectname) %(refname)"); got != first+" "+mainRef {
				t.Errorf("the remote has\n%s", got)
			}
		})
	}
}

// install installs a hook in a repository.
func install(t *testing.T, g *testenv.Git, repo, name, script string) {
	t.Helper()
	file := filepath.Join(g.Root, repo+".git", "hooks", name)
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil { //nolint:gosec // git runs it
		t.Fatal(err)
	}
}

func TestHooksSeePushOptions(t *testing.T) {
	g := testenv.NewGit(t)
	g.Commit("app", map[string]string{"a.yaml": "1"})
	remote := Remote{URL: g.URL + "/app"}
	v := open(t)
	rev := updated(t, v, remote, Reference{Branch: "main"})
	commit := change(t, v, rev, "a.yaml", "2")
	options := map[string]string{"ci.skip": "", "merge_request.title": "Update = all"}
	err := v.Push(t.Context(), []RefUpdate{to(mainRef, rev, commit)}, options)
	if f := fault.As(err); f == nil || !f.Terminal || !strings.Contains(f.Error(),
		"does not support push options. Remove spec.git.push.options") {
		t.Errorf("a server without push options: %v", err)
	}
	g.Run("app", "config", "receive.advertisePushOptions", "true")
	seen := filepath.Join(t.TempDir(), "seen")
	install(t, g, "app", "pre-receive", fmt.Sprintf(
		"cat >/dev/null; echo \"$GIT_PUSH_OPTION_COUNT|$GIT_PUSH_OPTION_0|$GIT_PUSH_OPTION_1\" >%s", seen))
	if err := v.Push(t.Context(), []RefUpdate{to(mainRef, rev, commit)}, options); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(seen); err != nil || string(got) != "2|ci.skip|merge_request.title=Update = all\n" {
		t.Errorf("the hook got %q, %v", got, err)
	}
	for name, value := range map[string]string{"": "x", "a\nb": "", "a": strings.Repeat("x", maxOption)} {
		if err := v.Push(t.Context(), []RefUpdate{to(mainRef, rev, commit)},
			map[string]string{name: value}); err == nil || !strings.Contains(err.Error(), "Correct "+
			"spec.git.push.options: name and value must be one line of at most 1024 bytes") {
			t.Errorf("option %q: %v", name, err)
		}
	}
}
