package artifact

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

func TestFetchGivesTheTree(t *testing.T) {
	files := manyFiles(50, 1)
	s, a, _ := serving(t, files)
	for reason, f := range map[string]*Fetcher{
		"from the store":            {Store: s},
		"over HTTP":                 {Client: http.DefaultClient},
		"over HTTP, another's":      {Store: openStore(t, t.TempDir(), newClock()), Client: http.DefaultClient},
		"from the store, restarted": {Store: openStore(t, s.dir, newClock())},
	} {
		t.Run(reason, func(t *testing.T) {
			tree, err := f.Fetch(t.Context(), webapp, *a)
			must(t, err)
			if !maps.Equal(contents(t, tree), files) {
				t.Error("the tree has other contents")
			}
			if again, err := f.Fetch(t.Context(), webapp, *a); err != nil || again != tree {
				t.Errorf("the second fetch returned another tree: %v", err)
			}
		})
	}
}

func TestFetchRefusesInWordsThatHelp(t *testing.T) {
	_, a, server := serving(t, map[string]string{"a": "x"})
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for reason, c := range map[string]struct {
		change func(a *meta.Artifact)
		says   string
	}{
		"another digest": {change: func(a *meta.Artifact) { a.Digest = "sha256:" + strings.Repeat("0", 64) },
			says: "has the digest " + a.Digest},
		"an unknown algorithm": {change: func(a *meta.Artifact) { a.Digest = "md5:00" }, says: "no known algorithm"},
		"not there": {change: func(a *meta.Artifact) { a.URL = server.URL + "/gitrepository/apps/webapp/x.tar.gz" },
			says: "status 404"},
		"no server": {change: func(a *meta.Artifact) {
			a.URL = strings.Replace(gone.URL, "http://", "http://user:secret@", 1) + "/x?token=secret"
		}, says: "refused"},
		"an invalid URL": {change: func(a *meta.Artifact) { a.URL = "http://a b/?token=secret" },
			says: "URL) is not a URL. It is retried. If the artifact is lost or damaged, the source stores it again"},
	} {
		t.Run(reason, func(t *testing.T) {
			b := *a
			c.change(&b)
			_, err := (&Fetcher{Client: http.DefaultClient}).Fetch(t.Context(), webapp, b)
			if fault.Reason(err, "") != meta.ArtifactFailedReason || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got error %v, want it to contain %q", err, c.says)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the error contains a secret: %v", err)
			}
		})
	}
}

func TestConsumersShareOneDownload(t *testing.T) {
	s, a, _ := serving(t, manyFiles(50, 1))
	const consumers = 20
	var downloads atomic.Int32
	begun, proceed := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if downloads.Add(1) == 1 {
			close(begun)
		}
		<-proceed
		(&Server{Store: s}).ServeHTTP(w, r)
	}))
	defer server.Close()
	a.URL = server.URL + "/" + a.Path
	f := &Fetcher{Client: http.DefaultClient}

	impatient, cancel := context.WithCancel(t.Context())
	gaveUp := make(chan error)
	go func() {
		_, err := f.Fetch(impatient, webapp, *a)
		gaveUp <- err
	}()
	<-begun
	cancel()
	if err := <-gaveUp; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	var wg sync.WaitGroup
	for range consumers {
		wg.Go(func() {
			if _, err := f.Fetch(t.Context(), webapp, *a); err != nil {
				t.Error(err)
			}
		})
	}
	close(proceed)
	wg.Wait()
	if n := downloads.Load(); n != 1 {
		t.Errorf("%d downloads", n)
	}
}

func TestABoundedNumberOfTreesIsKept(t *testing.T) {
	r := &recent{}
	small := FromMap(map[string]string{"a": "x"})
	for i := range 3 * keptTrees {
		r.keep(webapp, strings.Repeat("x", i), small)
	}
	if r.trees.Len() != keptTrees || r.get(webapp, strings.Repeat("x", 3*keptTrees-1)) == nil ||
		r.get(webapp, "") != nil {
		t.Errorf("%d trees are cached", r.trees.Len())
	}
	huge := NewTree(small.root, sized(keptMemory()-entryBytes))
	r.keep(webapp, "huge", huge)
	if r.get(webapp, "huge") != huge || r.trees.Len() != 1 {
		t.Errorf("%d trees are cached, including the huge one", r.trees.Len())
	}
	r.keep(webapp, "too huge", NewTree(small.root, sized(keptMemory())))
	if r.trees.Len() != 0 {
		t.Errorf("%d trees are cached", r.trees.Len())
	}
}

func TestTreesInMemoryDoNotPileUp(t *testing.T) {
	s := openStore(t, t.TempDir(), newClock())
	lazy := NewTree(FromMap(map[string]string{"lazy": "x"}).root, sized(0))
	mixed, err := Compose(Layer{Tree: lazy, From: ".", To: "."}, Layer{Tree: FromMap(map[string]string{"merged": "x"}),
		From: ".", To: "."})
	must(t, err)
	for what, c := range map[string]struct {
		tree *Tree
		held bool
	}{"in memory": {tree: FromMap(map[string]string{"a": "x"}), held: false},
		"partly in memory": {tree: mixed, held: false},
		"lazy":             {tree: lazy, held: true}} {
		s.register(webapp, meta.Artifact{Digest: "sha256:" + what}, c.tree)
		if held := s.registered(webapp, "sha256:"+what) != nil; held != c.held {
			t.Errorf("%s: cached %v", what, held)
		}
		if got, err := s.Tree(webapp, meta.Artifact{Digest: "sha256:" + what}); err != nil || got != c.tree {
			t.Errorf("%s is not cached: %v", what, err)
		}
	}
}

// sized is content that reports a size.
type sized int64

func (s sized) Size(string) (int64, error)  { return int64(s), nil }
func (s sized) Read(string) ([]byte, error) { return nil, errors.ErrUnsupported }

// TestAbsentArtifactIsNoFailureAtOnce covers the start over statuses of another server, whose artifacts are gone.
func TestAbsentArtifactIsNoFailureAtOnce(t *testing.T) {
	_, a, server := serving(t, map[string]string{"a": "x"})
	absent := *a
	absent.URL = server.URL + "/gitrepository/apps/webapp/x.tar.gz"
	clock := clocktesting.NewFakeClock(time.Now())
	f := &Fetcher{Client: http.DefaultClient, Clock: clock}
	for n, step := range []struct {
		wait        time.Duration
		isTemporary bool
	}{{isTemporary: true}, {wait: 59 * time.Second, isTemporary: true}, {wait: time.Second}, {wait: time.Hour}} {
		clock.Step(step.wait)
		_, err := f.Fetch(t.Context(), webapp, absent)
		got := fault.As(err)
		if got == nil || got.Reason != meta.ArtifactFailedReason || got.Temporary != step.isTemporary {
			t.Errorf("step %d: %+v, want temporary %v", n, got, step.isTemporary)
		}
	}
	damaged := *a
	damaged.Digest = "sha256:" + strings.Repeat("0", 64)
	if _, err := f.Fetch(t.Context(), webapp, damaged); fault.As(err) == nil || fault.As(err).Temporary {
		t.Errorf("a damaged artifact is expected to pass: %v", err)
	}
	if _, err := f.Fetch(t.Context(), webapp, *a); err != nil {
		t.Error(err)
	}
}
