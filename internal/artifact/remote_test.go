package artifact

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"github.com/minio/minio-go/v7"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/s3server"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

var manifests = Key{Kind: "GitRepository", Namespace: "apps", Name: "manifests"}

// backend is the bucket "artifacts" of a server, with a prefix.
func backend(t *testing.T, s *s3server.Server) Backend {
	t.Helper()
	return backendAt(t, s.URL)
}

func backendAt(t *testing.T, url string) Backend {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", s3server.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", s3server.SecretKey)
	b, err := NewS3Backend(S3Options{Endpoint: url, Bucket: "artifacts", Prefix: "cluster-1", Region: "us-east-1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// replica opens a store with its own disk and the backend.
func replica(t *testing.T, b Backend, options ...Option) *Store {
	t.Helper()
	s, err := OpenStore(t.TempDir(), "artifacts.example:80", Retention{TTL: time.Hour, Count: 2},
		append(options, WithBackend(b))...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustPut(t *testing.T, s *Store, revision, content string, current *meta.Artifact) *meta.Artifact {
	t.Helper()
	a, err := s.Put(t.Context(), manifests, FromMap(map[string]string{"a.yaml": content}), revision, current)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// objects lists the objects in the bucket.
func objects(t *testing.T, s *s3server.Server) []string {
	t.Helper()
	var names []string
	for o := range s.Client.ListObjectsIter(t.Context(), "artifacts", minio.ListObjectsOptions{Recursive: true}) {
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		names = append(names, o.Key)
	}
	return names
}

func fetch(s *Store, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	(&Server{Store: s}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/"+path, nil))
	return w
}

func TestAReplicaServesWhatAnotherStored(t *testing.T) {
	server := s3server.New(t)
	server.MakeBucket("artifacts")
	b := backend(t, server)
	a := mustPut(t, replica(t, b), "main@sha1:1", "one", nil)
	want := []string{"cluster-1/" + a.Path, "cluster-1/" + a.Path + index}
	if got := objects(t, server); !slices.Equal(got, want) {
		t.Fatalf("the bucket has %q, want %q", got, want)
	}
	for what, path := range map[string]string{
		"by its path": a.Path, "as the latest": "gitrepository/apps/manifests/latest.tar.gz",
		"by its digest":   "gitrepository/apps/manifests/digest/" + a.Digest,
		"by its revision": "gitrepository/apps/manifests/revision/" + a.Revision,
	} {
		if w := fetch(replica(t, b), path); w.Code != http.StatusOK || w.Header().Get("ETag") != `"`+a.Digest+`"` ||
			int64(w.Body.Len()) != *a.Size {
			t.Errorf("%s: %d, %v, %d bytes", what, w.Code, w.Header(), w.Body.Len())
		}
	}
	other := replica(t, b)
	if err := other.Verify(t.Context(), manifests, a); err != nil {
		t.Error(err)
	}
	tree, err := other.Tree(manifests, *a)
	if err != nil {
		t.Fatal(err)
	}
	if content, err := tree.ReadFile("a.yaml"); err != nil || string(content) != "one" {
		t.Errorf("the tree has %q, %v", content, err)
	}
	f, err := replica(t, b).Open(*a)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	before := server.Stats()
	if again := mustPut(t, replica(t, b), "main@sha1:1", "one", a); again.Digest != a.Digest ||
		!again.LastUpdateTime.Equal(&a.LastUpdateTime) {
		t.Errorf("the second put returned %+v, want %+v", again, a)
	}
	if now := server.Stats(); now["puts"] != before["puts"] {
		t.Error("a file that the backend has was uploaded again")
	}
}

func TestALostDiskIsFilledFromTheBackend(t *testing.T) {
	server := s3server.New(t)
	server.MakeBucket("artifacts")
	s := replica(t, backend(t, server))
	a := mustPut(t, s, "main@sha1:1", "one", nil)
	for what, lose := range map[string]func() error{
		"all files are missing":  func() error { return os.RemoveAll(filepath.Join(s.dir, "gitrepository")) },
		"the sidecar is missing": func() error { return os.Remove(filepath.Join(s.dir, a.Path+index)) },
		"the archive is damaged": func() error {
			return os.WriteFile(filepath.Join(s.dir, a.Path), []byte("damaged"),
				0o600)
		},
		"the archive is truncated": func() error { return os.Truncate(filepath.Join(s.dir, a.Path), 10) },
	} {
		if err := lose(); err != nil {
			t.Fatal(err)
		}
		s.sound = map[string]stamp{} // as after a restart
		if err := s.Verify(t.Context(), manifests, a); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if w := fetch(s, a.Path); w.Code != http.StatusOK || int64(w.Body.Len()) != *a.Size {
			t.Errorf("%s: got %d, %d bytes", what, w.Code, w.Body.Len())
		}
	}
}

func TestWhatTheBackendGivesIsCompared(t *testing.T) {
	server := s3server.New(t)
	server.MakeBucket("artifacts")
	b := backend(t, server)
	a := mustPut(t, replica(t, b), "main@sha1:1", "one", nil)
	for what, damage := range map[string]map[string]string{
		"another archive":   {a.Path: "evil"},
		"a damaged sidecar": {a.Path + index: "evil"},
		"another sidecar":   {a.Path + index: "\n{}"},
	} {
		fresh := replica(t, b)
		saved := map[string]string{}
		for name, content := range damage {
			saved[name] = read(t, server, "cluster-1/"+name)
			server.Put("artifacts", map[string]string{"cluster-1/" + name: content})
		}
		if w := fetch(fresh, a.Path); w.Code != http.StatusNotFound {
			t.Errorf("%s is served: %d %q", what, w.Code, w.Body)
		}
		if err := fresh.Verify(t.Context(), manifests, a); err == nil {
			t.Errorf("%s was not detected", what)
		}
		if left, _ := filepath.Glob(filepath.Join(fresh.dir, "*", "*", "*", "*")); len(left) > 0 {
			t.Errorf("%s leaves %q", what, left)
		}
		for name, content := range saved {
			server.Put("artifacts", map[string]string{"cluster-1/" + name: content})
		}
	}
}

func read(t *testing.T, s *s3server.Server, name string) string {
	t.Helper()
	o, err := s.Client.GetObject(t.Context(), "artifacts", name, minio.GetObjectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close() // only read
	content, err := io.ReadAll(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestABackendThatIsDownStopsPuttingNotServing(t *testing.T) {
	root := t.TempDir()
	server := s3server.Serve(t, root)
	server.MakeBucket("artifacts")
	proxy := testenv.NewProxy(t, server.Endpoint)
	s := replica(t, backendAt(t, "http://"+proxy.Address()))
	a := mustPut(t, s, "main@sha1:1", "one", nil)
	if _, err := s.Collect(manifests, a); err != nil {
		t.Fatal(err)
	}
	server.Stop()
	_, err := s.Put(t.Context(), manifests, FromMap(map[string]string{"a.yaml": "two"}), "main@sha1:2", a)
	if fault.Reason(err, "") != meta.StorageOperationFailedReason ||
		!strings.Contains(err.Error(), "the storage backend did not take") || fault.As(err).Terminal ||
		fault.As(err).Hint != "Check the flags --storage-backend-s3-*, and that the bucket exists and is writable. "+
			"The last artifact stays available" {
		t.Errorf("got %v", err)
	}
	if w := fetch(s, a.Path); w.Code != http.StatusOK {
		t.Errorf("the file on disk is not served: status %d", w.Code)
	}
	if w := fetch(s, "gitrepository/apps/manifests/latest.tar.gz"); w.Code != http.StatusOK || w.Header().
		Get("ETag") != `"`+a.Digest+`"` {
		t.Errorf("the latest stored file is not served: status %d, ETag %s", w.Code, w.Header().Get("ETag"))
	}
	if err := s.Verify(t.Context(), manifests, a); err != nil {
		t.Error(err)
	}
	if _, err := s.Collect(manifests, a); err != nil {
		t.Errorf("putting an unchanged artifact needs the backend: %v", err)
	}
	back := s3server.Serve(t, root)
	proxy.SetTarget(back.Endpoint)
	if second := mustPut(t, s, "main@sha1:2", "two", a); !slices.Contains(objects(t, back), "cluster-1/"+second.Path) {
		t.Error("it does not recover")
	}
}

func TestRetentionActsOnBoth(t *testing.T) {
	server := s3server.New(t)
	server.MakeBucket("artifacts")
	b := backend(t, server)
	clock := testclock.NewFakePassiveClock(time.Now())
	lost := replica(t, b, withClock(clock))
	first := mustPut(t, lost, "main@sha1:1", "one", nil)
	second := mustPut(t, lost, "main@sha1:2", "two", first)

	clock.SetTime(clock.Now().Add(2 * time.Hour))
	s := replica(t, b, withClock(clock)) // shares only the backend with the first
	third := mustPut(t, s, "main@sha1:3", "three", second)
	if _, err := s.Collect(manifests, third); err != nil {
		t.Fatal(err)
	}
	left := objects(t, server)
	// the current one and one before it, with their sidecars
	if !slices.Contains(left, "cluster-1/"+third.Path) || len(left) != 4 {
		t.Errorf("the bucket has %q", left)
	}
	before := server.Stats()
	if _, err := s.Collect(manifests, third); err != nil {
		t.Fatal(err)
	}
	if now := server.Stats(); !maps.Equal(now, before) {
		t.Errorf("collecting again without a new artifact lists the backend: %v, then %v", before, now)
	}
	if err := s.Remove(manifests); err != nil {
		t.Fatal(err)
	}
	if left := objects(t, server); len(left) > 0 {
		t.Errorf("after the object was removed, the bucket has %q", left)
	}
}

func TestOrphansAreCollectedFromBoth(t *testing.T) {
	server := s3server.New(t)
	server.MakeBucket("artifacts")
	b := backend(t, server)
	kept := mustPut(t, replica(t, b), "main@sha1:1", "one", nil)
	gone := Key{Kind: "GitRepository", Namespace: "apps", Name: "gone"}
	if _, err := replica(t, b).Put(t.Context(), gone, FromMap(map[string]string{"a": "a"}), "main@sha1:1",
		nil); err != nil {
		t.Fatal(err)
	}
	server.Put("artifacts", map[string]string{"cluster-1/gitrepository/notes.txt": "not an artifact",
		"cluster-2/gitrepository/a/b/c.tgz": "another cluster's"})
	before := objects(t, server)
	s := replica(t, b)
	if removed, err := s.CollectOrphans("GitRepository", "", []Key{manifests}); err != nil || len(removed) > 0 {
		t.Errorf("removed %q, %v", removed, err)
	}
	if got := objects(t, server); !slices.Equal(got, before) {
		t.Errorf("a replica that may not lead left %q of %q", got, before)
	}
	removed, err := s.CollectSharedOrphans("GitRepository", "", []Key{manifests})
	if err != nil || !slices.Equal(removed, []string{"gitrepository/apps/gone"}) {
		t.Errorf("removed %q, %v", removed, err)
	}
	want := []string{"cluster-1/" + kept.Path, "cluster-1/" + kept.Path + index, "cluster-1/gitrepository/notes.txt",
		"cluster-2/gitrepository/a/b/c.tgz"}
	if got := objects(t, server); !slices.Equal(got, want) {
		t.Errorf("left %q, want %q", got, want)
	}
}

func TestTheOptionsOfABackendAreChecked(t *testing.T) {
	for _, o := range []S3Options{
		{Endpoint: "s3.example.com", Bucket: "artifacts"},
		{Endpoint: "ftp://s3.example.com", Bucket: "artifacts"},
		{Endpoint: "https://s3.example.com/path", Bucket: "artifacts"},
		{Endpoint: "https://s3.example.com", Bucket: "a"},
		{Endpoint: "https://s3.example.com"},
	} {
		if _, err := NewS3Backend(o, nil); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
}

func TestABackendIsAskedOnceForWhatManyWant(t *testing.T) {
	server := s3server.New(t)
	server.MakeBucket("artifacts")
	b := backend(t, server)
	a := mustPut(t, replica(t, b), "main@sha1:1", "one", nil)
	before, fresh := server.Stats(), replica(t, b)
	done := make(chan int, 20)
	for range cap(done) {
		go func() { done <- fetch(fresh, a.Path).Code }()
	}
	for range cap(done) {
		if code := <-done; code != http.StatusOK {
			t.Errorf("got %d", code)
		}
	}
	if gets := server.Stats()["gets"] - before["gets"]; gets != 2 {
		t.Errorf("%d requests for the file", gets)
	}
}
