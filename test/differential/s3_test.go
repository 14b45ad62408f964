package differential

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/sluice-gitops/sluice/internal/source/bucket"
	"github.com/sluice-gitops/sluice/internal/testenv/s3server"
)

// objectStore is an S3 server.
type objectStore struct {
	endpoint string
	client   *minio.Client
}

// objectStores returns two S3 servers that have no code in common: versitygw, which the playground runs, and gofakes3.
func objectStores(t *testing.T) map[string]objectStore {
	t.Helper()
	gateway := s3server.New(t)
	other := httptest.NewServer(gofakes3.New(s3mem.New()).Server())
	t.Cleanup(other.Close)
	endpoint := strings.TrimPrefix(other.URL, "http://")
	client, err := minio.New(endpoint, &minio.Options{Region: "us-east-1",
		Creds: credentials.NewStaticV4(s3server.AccessKey, s3server.SecretKey, "")})
	if err != nil {
		t.Fatal(err)
	}
	return map[string]objectStore{"versitygw": {gateway.Endpoint, gateway.Client}, "gofakes3": {endpoint, client}}
}

// contents are the objects of a bucket, and how a source reads them.
type contents struct {
	objects map[string]string
	prefix  string
	ignore  *string
}

// TestBucketsOfS3ServersGiveTheSame puts the same objects into buckets of two S3 servers, and compares the revisions
// and the files that a Bucket reads.
func TestBucketsOfS3ServersGiveTheSame(t *testing.T) {
	t.Parallel()
	stores, n := objectStores(t), 0
	comparison[contents]{
		quick: 25, full: 400,
		generate: func(r *rand.Rand) contents {
			in := contents{objects: map[string]string{}, prefix: pick(r, "", "", "a/", "deploy", "none/")}
			for range r.IntN(12) {
				// Not empty: gofakes3 wants the header Content-Length, which the client leaves out of an empty upload.
				in.objects[filePath(r)] = pick(r, "x", "y\n", strings.Repeat("text\n", 1+r.IntN(5000)), "\x00\xff")
			}
			maps.DeleteFunc(in.objects, func(name, _ string) bool { // versitygw stores objects as files
				return slices.ContainsFunc(slices.Collect(maps.Keys(in.objects)), func(other string) bool {
					return strings.HasPrefix(other, name+"/")
				})
			})
			if chance(r, 3) {
				in.objects[".sourceignore"] = ignoreRule(r) + "\n"
			}
			if chance(r, 3) {
				rule := ignoreRule(r)
				in.ignore = &rule
			}
			return in
		},
		compare: func(t *testing.T, in contents) string {
			n++
			name := fmt.Sprintf("bucket-%d", n)
			a, b := readBucket(t, stores["versitygw"], name, in), readBucket(t, stores["gofakes3"], name, in)
			if a == b {
				return ""
			}
			return "versitygw gives " + a + "\ngofakes3 gives " + b
		},
		smaller: func(in contents) (all []contents) {
			for _, name := range slices.Sorted(maps.Keys(in.objects)) {
				without := maps.Clone(in.objects)
				delete(without, name)
				all = append(all, contents{without, in.prefix, in.ignore})
			}
			return all
		},
		show: func(in contents) string { return fmt.Sprintf("%q below %q", in.objects, in.prefix) },
	}.run(t)
}

// TestMissingBucketsOfS3ServersGiveTheSame has a bucket that does not exist.
func TestMissingBucketsOfS3ServersGiveTheSame(t *testing.T) {
	t.Parallel()
	for name, store := range objectStores(t) {
		if got := read(t, store, "missing", contents{}); got != "BucketOperationFailed" {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

// readBucket fills a new bucket, and returns what a source reads from it.
func readBucket(t *testing.T, store objectStore, name string, in contents) string {
	t.Helper()
	if err := store.client.MakeBucket(t.Context(), name, minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	for key, content := range in.objects {
		if _, err := store.client.PutObject(t.Context(), name, key, strings.NewReader(content), int64(len(content)),
			minio.PutObjectOptions{}); err != nil {
			t.Fatalf("object %q: %v", key, err)
		}
	}
	return read(t, store, name, in)
}

// read returns the revision and the files that a source reads, or the reason why it does not.
func read(t *testing.T, store objectStore, name string, in contents) string {
	t.Helper()
	keys, err := bucket.KeysFrom(map[string][]byte{"accesskey": []byte(s3server.AccessKey),
		"secretkey": []byte(s3server.SecretKey)})
	if err != nil {
		t.Fatal(err)
	}
	remote, err := bucket.NewS3(bucket.S3{Endpoint: store.endpoint, Bucket: name, Region: "us-east-1", Insecure: true,
		Keys: keys, Transport: http.DefaultTransport})
	if err != nil {
		t.Fatal(err)
	}
	cache, err := bucket.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close() //nolint:errcheck // it is read only
	listing, err := cache.List(t.Context(), remote, in.prefix, in.ignore)
	if err != nil {
		return reasonOf(err)
	}
	tree, err := cache.Tree(t.Context(), remote, listing)
	if err != nil {
		return reasonOf(err)
	}
	return fmt.Sprintf("%s %q", listing.Revision(), filesOf(t, tree))
}
