package git

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"golang.org/x/crypto/ssh"

	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/sshkeys"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

func TestPushOverSSH(t *testing.T) {
	dir := t.TempDir()
	identity, public := sshkeys.New(t)
	write(t, filepath.Join(dir, "authorized"), public)
	g := testenv.NewGit(t, "--ssh-addr", "127.0.0.1:0", "--ssh-host-key", filepath.Join(dir, "host"),
		"--ssh-authorized-keys", filepath.Join(dir, "authorized"))
	g.Commit("app", map[string]string{"a.yaml": "1"})
	key, err := os.ReadFile(filepath.Join(dir, "host"))
	if err != nil {
		t.Fatal(err)
	}
	host, err := ssh.ParsePrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	name, port, _ := strings.Cut(strings.TrimPrefix(g.SSHURL, "ssh://git@"), ":")
	known := fmt.Appendf(nil, "[%s]:%s %s", name, port, ssh.MarshalAuthorizedKey(host.PublicKey()))
	credentials, err := auth.Git(g.SSHURL, map[string][]byte{"identity": identity, "known_hosts": known})
	if err != nil {
		t.Fatal(err)
	}
	v, remote := open(t), Remote{URL: g.SSHURL + "/app.git", Credentials: credentials}
	rev := updated(t, v, remote, Reference{Branch: "main"})
	commit := change(t, v, rev, "a.yaml", strings.Repeat("many lines\n", 100_000))
	note, err := v.AddNote(t.Context(), commit, "by SSH", author)
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Push(t.Context(), []RefUpdate{to(mainRef, rev, commit), note}, nil); err != nil {
		t.Fatal(err)
	}
	if got := g.Run("app", "rev-parse", "main"); got != commit.String() {
		t.Errorf("main is %s, want %s", got, commit)
	}
	install(t, g, "app", "pre-receive", "cat >/dev/null; echo frozen >&2; exit 1")
	rev = updated(t, v, remote, Reference{Branch: "main"})
	err = v.Push(t.Context(), []RefUpdate{to(mainRef, rev, change(t, v, rev, "a.yaml", "2"))}, nil)
	if f := fault.As(err); f == nil || !f.Terminal || !strings.Contains(err.Error(),
		"frozen. Check the branch's protection and the server's hooks, or push to another branch and open a pull "+
			"request") {
		t.Errorf("got %v", err)
	}
}

// Another view replaces the mirror between the steps. Nothing of the commit is lost.
func TestPushSurvivesReplacedMirror(t *testing.T) {
	g := testenv.NewGit(t)
	g.Commit("app", map[string]string{"a.yaml": "1", "b.yaml": "1"})
	mirrors := NewMirrors(t.TempDir())
	v, other, remote := mirrors.View("owner"), mirrors.View("other"), Remote{URL: g.URL + "/app"}
	rev := updated(t, v, remote, Reference{Branch: "main"})
	replace := func() {
		before := v.mirror.current.Load()
		before.damaged.Store(true) // as if a reader found a damaged file
		if _, err := other.Update(t.Context(), remote, Reference{Branch: "main"}, true); err != nil {
			t.Fatal(err)
		}
		if v.mirror.current.Load() == before {
			t.Fatal("the mirror was not replaced")
		}
	}
	commit := change(t, v, rev, "a.yaml", "2")
	replace()
	note, err := v.AddNote(t.Context(), commit, "note", author)
	if err != nil {
		t.Fatal(err)
	}
	replace()
	if err := v.Push(t.Context(), []RefUpdate{to(mainRef, rev, commit), note}, nil); err != nil {
		t.Fatal(err)
	}
	g.Run("app", "fsck", "--strict", "--no-dangling")
	if next := updated(t, v, remote, Reference{Branch: "main"}); next.Commit != commit.String() {
		t.Errorf("main is %s", next)
	}
	if got, err := v.Note(t.Context(), commit); err != nil || got != "note\n" {
		t.Errorf("the note is %q, %v", got, err)
	}
}

// If the answer to a push is lost, the result is read from the remote.
func TestInterruptedPush(t *testing.T) {
	for name, c := range map[string]struct {
		arrives, raced bool
	}{"after it was accepted": {arrives: true}, "before it was accepted": {}, "after another push": {raced: true}} {
		t.Run(name, func(t *testing.T) {
			g := testenv.NewGit(t)
			first := g.Commit("app", map[string]string{"a.yaml": "1"})
			upstream, err := url.Parse(g.URL)
			if err != nil {
				t.Fatal(err)
			}
			proxy := httputil.NewSingleHostReverseProxy(upstream)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "git-receive-pack") {
					testenv.FullDuplex(proxy).ServeHTTP(w, r)
					return
				}
				if c.arrives {
					proxy.ServeHTTP(httptest.NewRecorder(), r)
				}
				if c.raced {
					g.Commit("app", map[string]string{"b.yaml": "1"})
				}
				panic(http.ErrAbortHandler)
			}))
			t.Cleanup(server.Close)
			v := open(t)
			rev := updated(t, v, Remote{URL: server.URL + "/app"}, Reference{Branch: "main"})
			commit := change(t, v, rev, "a.yaml", "2")
			err = v.Push(t.Context(), []RefUpdate{to(mainRef, rev, commit)}, nil)
			f := fault.As(err)
			switch {
			case c.arrives && err != nil, c.raced && !errors.Is(err, ErrRaced):
				t.Errorf("got %v", err)
			case !c.arrives && (f == nil || f.Terminal):
				t.Errorf("got %v, want a fault that is not terminal", err)
			case !c.arrives && !c.raced && g.Run("app", "rev-parse", "main") != first:
				t.Error("the branch changed")
			}
		})
	}
}

func TestPushToUnreachableRemote(t *testing.T) {
	g := testenv.NewGit(t)
	g.Commit("app", map[string]string{"a.yaml": "1"})
	v := open(t)
	rev := updated(t, v, Remote{URL: g.URL + "/app"}, Reference{Branch: "main"})
	commit := change(t, v, rev, "a.yaml", "2")
	g.Stop()
	err := v.Push(t.Context(), []RefUpdate{to(mainRef, rev, commit)}, nil)
	if f := fault.As(err); f == nil || f.Terminal || errors.Is(err, ErrRaced) ||
		!strings.Contains(err.Error(), "connection refused") {
		t.Errorf("got %v", err)
	}
}

func TestPushSendsNewObjectsOnly(t *testing.T) {
	g := testenv.NewGit(t)
	files := map[string]string{"x": randomText(t, 5000), "y": randomText(t, 5000)}
	for i := range 200 {
		files[fmt.Sprintf("dir-%d/file-%d.yaml", i%10, i)] = randomText(t, 2000)
	}
	g.Commit("app", files)
	v := open(t)
	rev := updated(t, v, Remote{URL: g.URL + "/app"}, Reference{Branch: "main"})
	first, err := v.Commit(t.Context(), NewCommit{
		Parent: plumbing.NewHash(rev.Commit), Author: author, Message: "swap",
		Edits: []Edit{{Path: "x", Content: []byte(files["y"])}, {Path: "y", Content: []byte(files["x"])},
			{Path: "dir-3/file-3.yaml", Content: []byte(files["dir-3/file-3.yaml"] + "\n# more")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	// the remote has the previous content, but not at the same path
	second, err := v.Commit(t.Context(), NewCommit{
		Parent: first, Author: author, Message: "swap back",
		Edits: []Edit{{Path: "x", Content: []byte(files["x"])}, {Path: "y", Content: []byte(files["y"])}},
	})
	if err != nil {
		t.Fatal(err)
	}
	before := g.Stats()
	if err := v.Push(t.Context(), []RefUpdate{to(mainRef, rev, second)}, nil); err != nil {
		t.Fatal(err)
	}
	if sent, size := g.Stats()["bytesReceived"]-before["bytesReceived"], int64(len(files["x"])); sent > 5*size {
		t.Errorf("sent %d bytes for a changed line and two moved files of %d bytes", sent, size)
	}
	g.Run("app", "fsck", "--strict", "--no-dangling")
	for _, name := range []string{"x", "y", "dir-3/file-3.yaml"} {
		want := files[name]
		if name != "x" && name != "y" {
			want += "\n# more"
		}
		if got := g.Run("app", "cat-file", "-p", "main:"+name); got != want {
			t.Errorf("%s differs from the commit", name)
		}
	}
}
