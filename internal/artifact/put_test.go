package artifact

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

func putFile(t testing.TB, s *Store, ext, content, revision string, current *meta.Artifact) *meta.Artifact {
	t.Helper()
	a, err := s.PutFile(t.Context(), webapp, ext, strings.NewReader(content), revision, current)
	must(t, err)
	return a
}

func TestPutFileStoresAFileAsItIs(t *testing.T) {
	for ext, contentType := range extensions {
		t.Run(ext, func(t *testing.T) {
			clk := newClock()
			s := openStore(t, t.TempDir(), clk)
			first := putFile(t, s, ext, "what it holds", "1.2.3", nil)
			if !strings.HasPrefix(first.Path, "gitrepository/apps/webapp/1-2-3-") ||
				!strings.HasSuffix(first.Path, ext) || *first.Size != 13 {
				t.Errorf("%+v", first)
			}
			f, err := s.Open(*first)
			must(t, err)
			b, err := io.ReadAll(f)
			must(t, errors.Join(err, f.Close()))
			if string(b) != "what it holds" {
				t.Errorf("the file contains %q", b)
			}
			before := statOf(t, s, first)
			clk.SetTime(clk.Now().Add(time.Hour))
			again := putFile(t, s, ext, "what it holds", "1.2.3", first)
			if !os.SameFile(before, statOf(t, s, again)) || !again.LastUpdateTime.Equal(&first.LastUpdateTime) {
				t.Error("the same content was written again")
			}
			next := putFile(t, s, ext, "another", "1.2.3", again)
			if next.Path == first.Path || next.Digest == first.Digest {
				t.Errorf("%+v", next)
			}
			server := newServer(t, s)
			for _, name := range []string{next.Path, webapp.dir() + "/latest" + ext} {
				resp, body := get(t, "GET", server.URL+"/"+name, nil)
				if resp.StatusCode != 200 || string(body) != "another" ||
					resp.Header.Get("Content-Type") != contentType {
					t.Errorf("%s: %d %q %v", name, resp.StatusCode, body, resp.Header)
				}
			}
			if resp, _ := get(t, "GET", server.URL+"/"+webapp.dir()+"/latest.zip", nil); resp.StatusCode != 404 {
				t.Errorf("status %d", resp.StatusCode)
			}
			removed, err := s.Collect(webapp, next)
			must(t, err)
			if len(removed) != 0 { // it was superseded only now
				t.Errorf("removed %v", removed)
			}
		})
	}
}

func TestPutFileOfADamagedOneWritesItAgain(t *testing.T) {
	s := openStore(t, t.TempDir(), newClock())
	a := putFile(t, s, ".yaml", "index", "v1", nil)
	damage(t, filepath.Join(s.dir, a.Path), 2)
	if _, err := s.Open(*a); err == nil {
		t.Error("a damaged file was opened")
	}
	must(t, s.Verify(t.Context(), webapp, putFile(t, s, ".yaml", "index", "v1", a)))
}

func TestAFailedPutFileLeavesTheOldOne(t *testing.T) {
	s := openStore(t, t.TempDir(), newClock())
	a := putFile(t, s, ".tgz", "chart", "v1", nil)
	s.maxFile = 1000
	cancelled, cancel := context.WithCancel(t.Context())
	hangs, _ := io.Pipe()
	for what, c := range map[string]struct {
		ctx     context.Context
		ext     string
		content io.Reader
		says    string
	}{
		"of a source that fails": {ctx: t.Context(), ext: ".tgz",
			content: io.MultiReader(strings.NewReader("half"), iotest.ErrReader(errors.New("cut off"))),
			says:    "cut off"},
		"of an endless source": {ctx: t.Context(), ext: ".tgz", content: endless{}, says: "more than"},
		"of another extension": {ctx: t.Context(), ext: ".exe", content: strings.NewReader("x"),
			says: "cannot store the artifact of revision v2: the extension '.exe' is not supported. Check that " +
				"--storage-path is writable and has room. It is retried automatically, and the last artifact stays " +
				"available"},
		"of a source that hangs": {ctx: cancelled, ext: ".tgz", content: io.MultiReader(&cancelling{cancel}, hangs),
			says: "canceled"},
	} {
		content := c.content
		if what == "of a source that hangs" {
			content = struct {
				io.Reader
				io.Closer
			}{content, hangs}
		}
		_, err := s.PutFile(c.ctx, webapp, c.ext, content, "v2", a)
		if fault.Reason(err, "") != meta.StorageOperationFailedReason || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v", what, err)
		}
	}
	must(t, s.Verify(t.Context(), webapp, a))
	if got := names(t, filepath.Join(s.dir, webapp.dir())); len(got) != 2 {
		t.Errorf("remaining files: %q", got)
	}
}

// endless is a reader without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// cancelling cancels a context when it is read.
type cancelling struct{ cancel func() }

func (c *cancelling) Read([]byte) (int, error) { c.cancel(); return 0, io.EOF }

func TestPutWithoutARevisionIsOfItsContent(t *testing.T) {
	clk := newClock()
	s := openStore(t, t.TempDir(), clk)
	tree := FromMap(manyFiles(100, 1))
	first := put(t, s, tree, "", nil)
	if first.Revision != "latest@"+first.Digest {
		t.Errorf("revision %s, digest %s", first.Revision, first.Digest)
	}
	before := statOf(t, s, first)
	clk.SetTime(clk.Now().Add(time.Hour))
	reads := &countingContent{Content: tree.content}
	same := func(what string, a *meta.Artifact) {
		if !reflect.DeepEqual(a, first) || !os.SameFile(before, statOf(t, s, a)) {
			t.Errorf("%s: got %+v, want %+v", what, a, first)
		}
	}
	same("again", put(t, s, NewTree(tree.root, reads), "", first))
	if reads.n.Load() != 0 {
		t.Errorf("%d files were read", reads.n.Load())
	}
	same("of other IDs", put(t, s, NewTree(withOtherIDs(tree.root), prefixed{tree.content}), "", first))
	s = openStore(t, s.dir, clk)
	same("after a restart", put(t, s, tree, "", first))
	if got := names(t, filepath.Join(s.dir, webapp.dir())); len(got) != 2 {
		t.Errorf("remaining files: %q", got)
	}
	damage(t, filepath.Join(s.dir, first.Path), 40)
	if again := put(t, s, tree, "", first); again.Revision != first.Revision ||
		s.Verify(t.Context(), webapp, again) != nil {
		t.Errorf("after damage: %+v", again)
	}
	if next := put(t, s, FromMap(manyFiles(100, 2)), "", first); next.Revision == first.Revision {
		t.Error("another content has the same revision")
	}
}

// withOtherIDs returns the same files with other IDs, like another kind of source.
func withOtherIDs(d *Dir) *Dir {
	var entries []Entry
	for _, e := range d.Entries {
		if e.Dir != nil {
			e.Dir = withOtherIDs(e.Dir)
			e.ID = e.Dir.ID
		} else {
			e.ID = "other " + e.ID
		}
		entries = append(entries, e)
	}
	return NewDir(entries)
}

type prefixed struct{ Content }

func (p prefixed) Read(id string) ([]byte, error) { return p.Content.Read(id[len("other "):]) }

// random returns bytes that cannot be compressed.
func random(size int, seed byte) []byte {
	b := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(b) // never fails
	return b
}
