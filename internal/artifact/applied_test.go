package artifact

import (
	"context"
	"io"
	"net/http"
	"os"
	"testing"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/guard"
)

// gated is a transport whose requests wait until release is closed.
type gated struct{ arrived, release chan struct{} }

func newGated() gated { return gated{arrived: make(chan struct{}, 10), release: make(chan struct{})} }

func (g gated) RoundTrip(r *http.Request) (*http.Response, error) {
	g.arrived <- struct{}{}
	<-g.release
	return http.DefaultTransport.RoundTrip(r)
}

// gatedBackend is a backend whose downloads wait until release is closed.
type gatedBackend struct {
	Backend
	gated
}

func (b gatedBackend) Get(context.Context, string) (io.ReadCloser, BackendFile, error) {
	b.arrived <- struct{}{}
	<-b.release
	return nil, BackendFile{}, os.ErrNotExist
}

// TestSlowDownloadDelaysNoOtherArtifact keeps an artifact whose host, or whose storage backend, does not answer yet.
func TestSlowDownloadDelaysNoOtherArtifact(t *testing.T) {
	remote, _, server := serving(t, map[string]string{"a": "x"})
	slow, err := remote.Put(t.Context(), rendered, FromMap(map[string]string{"slow": "x"}), "v1", nil)
	must(t, err)
	slow.URL = server.URL + "/" + slow.Path
	for name, connect := range map[string]func(*Fetcher, gated){
		"host":    func(f *Fetcher, g gated) { f.External = &http.Client{Transport: g} },
		"backend": func(f *Fetcher, g gated) { WithBackend(gatedBackend{gated: g})(f.Store) },
	} {
		t.Run(name, func(t *testing.T) {
			store := openStore(t, t.TempDir(), newClock())
			quick := put(t, store, FromMap(map[string]string{"quick": "y"}), "v1", nil)
			f, g := &Fetcher{Store: store, Client: http.DefaultClient}, newGated()
			s := NewPromotableStore(t.TempDir(), f)
			none := func(string) bool { return false }
			must(t, s.Add(t.Context(), "quick", webapp, *quick, none))
			f.External = http.DefaultClient
			connect(f, g)
			group := guard.NewGroup("adding a slow artifact")
			group.Go(func() error { return s.Add(t.Context(), "slow", rendered, *slow, none) })
			<-g.arrived
			if _, err := s.Tree("quick", quick.Digest); err != nil {
				t.Error(err)
			}
			if _, err := s.Tree("slow", slow.Digest); err == nil {
				t.Error("the slow artifact is kept already")
			}
			if s.kept.Get(ownedBy("quick", quick.Digest)) == nil || len(s.List("slow", rendered)) != 0 {
				t.Error("not only the quick artifact is recorded")
			}
			must(t, s.Drop("quick", webapp, meta.Artifact{}))
			must(t, s.Forget("quick"))
			close(g.release)
			must(t, group.Wait())
			if _, err := s.Tree("slow", slow.Digest); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestOwnersShareARetainedArchive keeps the same artifact for two owners at once, and forgets both.
func TestOwnersShareARetainedArchive(t *testing.T) {
	_, a, _ := serving(t, map[string]string{"a": "x"})
	dir, g := t.TempDir(), newGated()
	f := &Fetcher{Client: &http.Client{Transport: g}}
	s := NewAppliedStore(dir, f)
	group := guard.NewGroup("keeping an artifact")
	for _, owner := range []string{"one", "two"} {
		group.Go(func() error { return s.Keep(t.Context(), owner, Applied{Source: webapp, Artifact: *a}) })
	}
	<-g.arrived
	close(g.release)
	must(t, group.Wait())
	f.DropTrees()
	for i, owner := range []string{"one", "two"} {
		if files := filesIn(t, dir); len(files) != 3-i {
			t.Errorf("before %d are forgotten: files %v", i+1, files)
		}
		if _, err := s.Tree(owner); err != nil {
			t.Error(err)
		}
		must(t, s.Forget(owner))
	}
	if files := filesIn(t, dir); len(files) != 0 {
		t.Errorf("files %v are left", files)
	}
}

// TestRetainedArchiveIsNotReadByDigest has an ExternalArtifact with the digest of an artifact that is retained for
// another source.
func TestRetainedArchiveIsNotReadByDigest(t *testing.T) {
	_, a, server := serving(t, map[string]string{"secret": "x"})
	dir := t.TempDir()
	f := &Fetcher{Client: http.DefaultClient}
	s := NewAppliedStore(dir, f)
	must(t, s.Keep(t.Context(), "own", Applied{Source: webapp, Artifact: *a}))
	server.Close()
	claimed := meta.Artifact{Digest: a.Digest, URL: "http://host.invalid/x.tar.gz", Revision: "v1"}
	if err := s.Keep(t.Context(), "other", Applied{Source: rendered, Artifact: claimed}); err == nil {
		t.Error("an artifact was kept that the source does not have")
	}
	if tree, err := s.Tree("other"); err == nil {
		t.Errorf("the tree of another object was returned: %v", tree)
	}
	f.DropTrees()
	if _, err := s.Tree("own"); err != nil {
		t.Error(err)
	}
	if files := filesIn(t, dir); len(files) != 2 {
		t.Errorf("files %v", files)
	}
}

// filesIn returns the names of the files in a directory.
func filesIn(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
