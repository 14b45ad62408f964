package git

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// wantHint fails the test unless the error is a fault with the hint.
func wantHint(t *testing.T, what string, err error, want string) {
	t.Helper()
	if f := fault.As(err); f == nil || f.Hint != want {
		t.Errorf("%s: got %v, want the hint %q", what, err, want)
	}
}

func TestHintsOfReferenceNames(t *testing.T) {
	for _, name := range []string{"main", "refs/heads/a..b", "refs/heads/x.lock"} {
		wantHint(t, name, CheckRef(name), "Use the form refs/heads/BRANCH, with a valid name")
	}
}

func TestHintsOfReferences(t *testing.T) {
	g := testenv.NewGit(t)
	g.Commit("app", map[string]string{"a.yaml": "1"})
	g.Run("app", "tag", "tree", "main^{tree}")
	for _, c := range []struct {
		ref  Reference
		want string
	}{
		{ref: Reference{SemVer: "*"}, want: "The remote has no tag that is a version of three numbers, such as v1.2.0"},
		{ref: Reference{Tag: "tree"}, want: "Correct spec.ref: the reference points to an object of another type"},
		{ref: Reference{Commit: strings.Repeat("0a", 20)},
			want: "Check spec.ref.commit, and set spec.ref.branch to the branch of the commit"},
	} {
		_, err := open(t).Update(t.Context(), Remote{URL: g.URL + "/app"}, c.ref, false)
		wantHint(t, c.want, err, c.want)
	}
}

func TestHintsOfMirrors(t *testing.T) {
	g := testenv.NewGit(t)
	g.Commit("app", map[string]string{".sourceignore": "# " + randomText(t, 100)})
	dir := t.TempDir()
	v := NewMirrors(dir).View("owner")
	rev := updated(t, v, Remote{URL: g.URL + "/app"}, Reference{Branch: "main"})
	_, err := v.Tree(t.Context(), Revision{Commit: strings.Repeat("0a", 20)}, Options{})
	wantHint(t, "commit that was not fetched", err, "It is fetched at the next interval")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, err := v.repository(rev)
	if err != nil {
		t.Fatal(err)
	}
	_, err = (&history{ctx: ctx, objects: r.objects}).walk(plumbing.NewHash(rev.Commit),
		func(plumbing.Hash, bool) bool { return true })
	wantHint(t, "search that takes too long", err, "Raise spec.timeout")

	packs, err := filepath.Glob(filepath.Join(dir, "*", "gen-*", "objects", "pack", "*.pack"))
	if err != nil || len(packs) == 0 {
		t.Fatal("no pack", err)
	}
	for _, p := range packs {
		if err := os.Chmod(p, 0o600); err != nil {
			t.Fatal(err)
		}
		damage(t, p)
	}
	_, err = v.Tree(t.Context(), rev, Options{})
	wantHint(t, "damaged mirror", err, "The mirror is damaged; it is fetched again at the next interval")
}

// damage overwrites the end of the last object of a pack, which is the content of the only file.
func damage(t *testing.T, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i := len(data) - 60; i < len(data)-20; i++ { // the checksum follows
		data[i] ^= 0xff
	}
	write(t, file, data)
}
