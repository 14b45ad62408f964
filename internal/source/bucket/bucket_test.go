package bucket

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/s3server"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

func open(t testing.TB, dir string) *Cache {
	t.Helper()
	c, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// update lists the bucket, fetches what changed, and returns the tree and its revision.
func update(t testing.TB, c *Cache, r Remote, prefix string, spec *string) (*artifact.Tree, string) {
	t.Helper()
	l, err := c.List(t.Context(), r, prefix, spec)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := c.Tree(t.Context(), r, l)
	if err != nil {
		t.Fatal(err)
	}
	return tree, l.Revision()
}

// files returns the content of all files of a tree.
func files(t testing.TB, tree *artifact.Tree) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := tree.ReadFile(name)
		all[name] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// requestsSince returns how many list, get and other requests the server has answered since before.
func requestsSince(s *s3server.Server, before map[string]int64) (lists, gets, others int64) {
	now := s.Stats()
	others = now["heads"] + now["others"] + now["puts"] - before["heads"] - before["others"] - before["puts"]
	return now["lists"] - before["lists"], now["gets"] - before["gets"], others
}

func TestTreeFetchesOnlyChangedObjects(t *testing.T) {
	s := s3server.New(t)
	s.Put("apps", map[string]string{"a.yaml": "a", "dir/b.yaml": "b", "dir/sub/c.yaml": "c", ".sourceignore": "*.md",
		"README.md": "no"})
	c, r := open(t, t.TempDir()), remoteOf(t, s, "apps")
	want := map[string]string{"a.yaml": "a", "dir/b.yaml": "b", "dir/sub/c.yaml": "c", ".sourceignore": "*.md"}

	before := s.Stats()
	tree, first := update(t, c, r, "", nil)
	if got := files(t, tree); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if lists, gets, others := requestsSince(s, before); lists != 1 || gets != 4 || others != 0 {
		t.Errorf("first update: %d lists, %d gets, %d others", lists, gets, others)
	}

	before = s.Stats()
	if _, again := update(t, c, r, "", nil); again != first {
		t.Errorf("the revision of unchanged objects is %s, was %s", again, first)
	}
	if lists, gets, others := requestsSince(s, before); lists != 1 || gets != 0 || others != 0 {
		t.Errorf("unchanged: %d lists, %d gets, %d others", lists, gets, others)
	}

	before = s.Stats()
	s.Put("apps", map[string]string{"dir/b.yaml": "changed", "a.yaml": testenv.Delete})
	before["puts"]++ // by the test itself
	before["heads"]++
	next, second := update(t, c, r, "", nil)
	if lists, gets, others := requestsSince(s, before); second == first || lists != 1 || gets != 1 || others != 0 {
		t.Errorf("after a change: %d lists, %d gets, %d others, revision %s", lists, gets, others, second)
	}
	delete(want, "a.yaml")
	want["dir/b.yaml"] = "changed"
	if got := files(t, next); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got, err := tree.ReadFile("dir/b.yaml"); err != nil || string(got) != "b" {
		t.Errorf("the previous tree has %q, %v", got, err)
	}
}

func TestCacheSurvivesRestart(t *testing.T) {
	s, dir := s3server.New(t), t.TempDir()
	s.Put("apps", map[string]string{"a.yaml": "a", "b.yaml": "b"})
	r := remoteOf(t, s, "apps")
	first, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	update(t, first, r, "", nil)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	before := s.Stats()
	update(t, open(t, dir), r, "", nil)
	if _, gets, _ := requestsSince(s, before); gets != 0 {
		t.Errorf("%d objects were fetched again", gets)
	}

	s.Put("other", map[string]string{"a.yaml": "a", "b.yaml": "b"}) // the same ETags
	before = s.Stats()
	update(t, open(t, dir), remoteOf(t, s, "other"), "", nil)
	if _, gets, _ := requestsSince(s, before); gets != 2 {
		t.Errorf("%d objects of another bucket were fetched, want 2", gets)
	}
}

func TestDamagedContentIsFetchedAgain(t *testing.T) {
	for name, damage := range map[string]func(file string) error{
		"missing content":   os.Remove,
		"truncated content": func(file string) error { return os.Truncate(file, 0) },
		"replaced content":  func(file string) error { return os.WriteFile(file, []byte("evil!"), 0o600) },
		"damaged index":     func(file string) error { return os.WriteFile(indexOf(file), []byte("{}"), 0o600) },
		"missing index":     func(file string) error { return os.Remove(indexOf(file)) },
		"leftover temporary file": func(file string) error {
			return os.WriteFile(filepath.Join(filepath.Dir(indexOf(file)), ".tmp-1"), nil, 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, dir := s3server.New(t), t.TempDir()
			s.Put("apps", map[string]string{"a.yaml": "alpha", "b.yaml": "beta!"})
			c, r := open(t, dir), remoteOf(t, s, "apps")
			tree, _ := update(t, c, r, "", nil)
			contents, err := filepath.Glob(filepath.Join(dir, contents, "*"))
			if err != nil || len(contents) != 2 {
				t.Fatalf("%v, %v", contents, err)
			}
			if err := damage(contents[0]); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"a.yaml", "b.yaml"} { // a damaged content must not be returned
				if b, err := tree.ReadFile(name); err == nil &&
					string(b) != map[string]string{"a.yaml": "alpha", "b.yaml": "beta!"}[name] {
					t.Errorf("%s reads as %q", name, b)
				}
			}
			tree, _ = update(t, c, r, "", nil)
			if got := files(t, tree); !maps.Equal(got, map[string]string{"a.yaml": "alpha", "b.yaml": "beta!"}) {
				t.Errorf("got %v", got)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, ".tmp-*")); len(left) > 0 {
				t.Errorf("left %v", left)
			}
		})
	}
}

func indexOf(content string) string {
	return filepath.Join(filepath.Dir(filepath.Dir(content)), indexFile)
}

func TestListAppliesPrefixAndRules(t *testing.T) {
	s := s3server.New(t)
	s.Put("apps", map[string]string{
		".sourceignore": "/dev/secret.yaml\n*.png\n", "dev/a.yaml": "a", "dev/secret.yaml": "s", "dev/logo.png": "p",
		"development.yaml": "d",
		"prod/a.yaml":      "a", "prod/.sourceignore": "b.yaml", "prod/b.yaml": "b", "prod/sub/b.yaml": "b",
	})
	s.Put("plain", map[string]string{"a.yaml": "a"})
	spec := func(s string) *string { return &s }
	for name, c := range map[string]struct {
		bucket, prefix string
		spec           *string
		want           []string
	}{
		"no prefix": {bucket: "apps", prefix: "", spec: nil,
			want: []string{".sourceignore", "dev/a.yaml", "development.yaml", "prod/.sourceignore", "prod/a.yaml"}},
		"prefix with rules at the top": {bucket: "apps", prefix: "dev/", spec: nil, want: []string{"dev/a.yaml"}},
		"prefix of a name": {bucket: "apps", prefix: "dev", spec: nil,
			want: []string{"dev/a.yaml", "development.yaml"}},
		"prefix without rules at the top": {bucket: "plain", prefix: "a", spec: nil, want: []string{"a.yaml"}},
		"rules of the spec": {bucket: "apps", prefix: "dev/", spec: spec("/dev/a.yaml\n!*.png"),
			want: []string{"dev/logo.png"}},
		"prefix without objects": {bucket: "apps", prefix: "none/", spec: nil, want: nil},
	} {
		t.Run(name, func(t *testing.T) {
			tree, _ := update(t, open(t, t.TempDir()), remoteOf(t, s, c.bucket), c.prefix, c.spec)
			if got := slices.Sorted(maps.Keys(files(t, tree))); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestTreeHasTheIDOfItsArchive(t *testing.T) {
	s := s3server.New(t)
	s.Put("apps", map[string]string{"a.yaml": "a", "dir/b.yaml": "b", "dir.d/c": "c", "dir-1/c": "c"})
	tree, _ := update(t, open(t, t.TempDir()), remoteOf(t, s, "apps"), "", nil)
	same := artifact.FromMap(map[string]string{"a.yaml": "a", "dir/b.yaml": "b", "dir.d/c": "c", "dir-1/c": "c"})
	if tree.Root().ID != same.Root().ID {
		t.Errorf("the ID differs from that of a tree with the same files, so a restart would store it again")
	}
}

func TestLimits(t *testing.T) {
	s := s3server.New(t)
	s.Put("apps", map[string]string{"a": "12345", "b/c/d": "12345", ".sourceignore": "x"})
	for message, l := range map[string]limits{
		"lists more than 2 objects. Set spec.prefix, or use a separate bucket for the files to " +
			"deploy": {listed: 2, names: 200, bytes: 100, depth: 9},
		"exceed 10 bytes in total. Exclude objects with spec.prefix, spec.ignore or a .sourceignore " +
			"object": {listed: 9, names: 200, bytes: 10, depth: 9},
		"names and ETags of the objects in the bucket exceed 80 bytes in total. Set spec.prefix, or use a separate " +
			"bucket for the files to deploy": {listed: 9, names: 80, bytes: 100, depth: 9},
		"nested deeper than 1 directories": {listed: 9, names: 200, bytes: 100, depth: 1},
	} {
		c := open(t, t.TempDir())
		c.limits = l
		if _, err := c.List(t.Context(), remoteOf(t, s, "apps"), "", nil); err == nil ||
			!strings.Contains(err.Error(), message) {
			t.Errorf("got %v, want %q", err, message)
		}
	}
}

func TestListErrors(t *testing.T) {
	s := s3server.New(t)
	s.Put("apps", map[string]string{"a": "1"})
	wrong, err := KeysFrom(map[string][]byte{"accesskey": []byte(s3server.AccessKey),
		"secretkey": []byte("s3cr3t-typo")})
	if err != nil {
		t.Fatal(err)
	}
	down := s3server.New(t)
	down.Stop()
	for name, c := range map[string]struct {
		remote          Remote
		reason, message string
	}{
		"missing bucket": {remote: remoteOf(t, s, "none"), reason: "BucketOperationFailed",
			message: "cannot list the bucket 'none': NoSuchBucket"},
		"wrong key": {remote: newS3(t, S3{Endpoint: s.Endpoint, Bucket: "apps", Region: "us-east-1", Insecure: true,
			Keys: wrong}), reason: "AuthenticationFailed", message: "SignatureDoesNotMatch"},
		"no key": {remote: newS3(t, S3{Endpoint: s.Endpoint, Bucket: "apps", Region: "us-east-1", Insecure: true,
			Keys: NoKeys()}), reason: "AuthenticationFailed", message: "AccessDenied: Access Denied. Check the " +
			"credentials, or set spec.secretRef if it is not set. They must allow to list the bucket and to read " +
			"its objects"},
		"stopped server": {remote: remoteOf(t, down, "apps"), reason: "BucketOperationFailed",
			message: "connection refused"},
		"TLS to HTTP": {remote: newS3(t, S3{Endpoint: s.Endpoint, Bucket: "apps", Region: "us-east-1", Keys: NoKeys()}),
			reason:  "BucketOperationFailed",
			message: "the endpoint answered plain HTTP. Use an endpoint with TLS, or set spec.insecure: true"},
	} {
		_, err := open(t, t.TempDir()).List(t.Context(), c.remote, "", nil)
		if fault.Reason(err, "") != c.reason || !strings.Contains(fmt.Sprint(err), c.message) ||
			strings.Contains(fmt.Sprint(err), "s3cr3t") {
			t.Errorf("%s: got %v, want %s with %q", name, err, c.reason, c.message)
		}
	}
}

// counting counts the objects that are fetched from a bucket.
type counting struct {
	Remote
	gets atomic.Int64
}

func (c *counting) Get(ctx context.Context, o Object) (io.ReadCloser, error) {
	c.gets.Add(1)
	return c.Remote.Get(ctx, o)
}

func TestFailedTreeKeepsFetchedObjects(t *testing.T) {
	s := s3server.New(t)
	s.Put("apps", map[string]string{"a": "1", "b": "2", "c": "3"})
	c, r := open(t, t.TempDir()), &counting{Remote: remoteOf(t, s, "apps")}
	l, err := c.List(t.Context(), r, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Put("apps", map[string]string{"c": "other"}) // between the listing and the fetch
	if _, err := c.Tree(t.Context(), r, l); err == nil ||
		!strings.Contains(err.Error(), "it changed after it was listed. The bucket is listed again and the fetch "+
			"retried") {
		t.Fatalf("got %v", err)
	}
	missing := int64(3 - len(c.index(r).Objects))
	r.gets.Store(0)
	tree, _ := update(t, c, r, "", nil)
	if got := files(t, tree); got["c"] != "other" {
		t.Errorf("got %v", got)
	}
	if n := r.gets.Load(); n != missing {
		t.Errorf("%d objects were fetched, want %d", n, missing)
	}
}

func TestCanceledListingFails(t *testing.T) {
	s := s3server.New(t)
	s.Put("apps", map[string]string{"a": "1"})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := open(t, t.TempDir()).List(ctx, remoteOf(t, s, "apps"), "", nil); err == nil {
		t.Error("a canceled listing returned an empty bucket")
	}
}
