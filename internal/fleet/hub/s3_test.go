package hub

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/minio/minio-go/v7"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/fleet"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/s3server"
)

// bucketName is the bucket of the replicas of a hub.
const bucketName = "fleet"

// lines is a log that tests read.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) add(_, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, text)
}

// with returns the lines that contain one of the texts, in order.
func (l *lines) with(texts ...string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all {
		if slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(line, text) }) {
			found = append(found, line)
		}
	}
	return found
}

// spaces reads spaces without end.
type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// s3Replica is a replica of a hub whose store works as in the product.
type s3Replica struct {
	*Hub
	log  *lines
	stop func()
}

// startS3Replica starts a replica that shares a bucket with others.
func startS3Replica(t *testing.T, server *s3server.Server, name string, clusters ...string) *s3Replica {
	t.Helper()
	b, err := artifact.NewS3Backend(artifact.S3Options{Endpoint: server.URL, Bucket: bucketName, Prefix: "hub",
		Region: "us-east-1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	clock := &testClock{now: time.Now()}
	r := &s3Replica{Hub: testReplica(t, clock, b, name, clusters...), log: &lines{}}
	r.Now, r.Store.Now, r.Store.Log = time.Now, time.Now, funcr.New(r.log.add, funcr.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	if err := r.Store.Load(ctx, r.Hub); err != nil {
		t.Fatal(err)
	}
	var running guard.WaitGroup
	running.Go("a replica", func() { _ = r.Store.Run(ctx, r.Hub) })
	r.stop = func() { cancel(); running.Wait() }
	t.Cleanup(r.stop)
	return r
}

// await reads as a user until a replica knows the sequence of a cluster's summary.
func (r *s3Replica) await(t *testing.T, what, cluster string, version string) {
	t.Helper()
	testenv.Eventually(t, what, func() error {
		c, err := r.Get(t.Context(), cluster)
		if err == nil && c.Summary != nil && c.Summary.Version == version {
			return nil
		}
		return fmt.Errorf("the replica has %+v, %w", c, err)
	})
}

// Lines of the log of a replica.
const (
	storageAway = "the storage of the hub does not work"
	storageBack = "the storage of the hub works again"
)

// awaitStorage waits until the log of a replica says that its storage works, or that it does not.
func (r *s3Replica) awaitStorage(t *testing.T, works bool) {
	t.Helper()
	testenv.Eventually(t, fmt.Sprintf("the storage works: %t", works), func() error { return r.saysStorage(works) })
}

// saysStorage returns an error unless the log of a replica says that its storage works, or that it does not. Each
// outage has one line, and one more when it ends: a slow machine may miss a time limit at any time.
func (r *s3Replica) saysStorage(works bool) error {
	all := r.log.with(storageAway, storageBack)
	for i, line := range all {
		if strings.Contains(line, storageAway) != (i%2 == 0) {
			return fmt.Errorf("an outage has several lines: %q", all)
		}
	}
	if works != (len(all)%2 == 0) {
		return fmt.Errorf("the log has %q", all)
	}
	return nil
}

func s3Report(cluster string, sequence int64) fleet.Report {
	r := testReport(cluster, sequence, time.Now())
	r.Summary.Version = fmt.Sprint(sequence)
	return r
}

// TestReplicasShareAnS3Bucket has three replicas that get reports of different clusters, a bucket that is away for a
// while, and replicas that start again from the bucket.
func TestReplicasShareAnS3Bucket(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", s3server.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", s3server.SecretKey)
	server := s3server.New(t, "--addr", testenv.FreeAddress(t)) // it starts again there
	server.MakeBucket(bucketName)
	began, clusters := time.Now(), []string{"edge-1", "edge-2", "edge-3"}
	var replicas []*s3Replica
	for i, cluster := range clusters {
		r := startS3Replica(t, server, fmt.Sprint(i), clusters...)
		r.mustAccept(t, s3Report(cluster, 1))
		replicas = append(replicas, r)
	}
	for i, r := range replicas {
		for _, cluster := range clusters {
			r.await(t, fmt.Sprintf("replica %d and %s", i, cluster), cluster, "1")
		}
	}
	server.Stop()
	replicas[0].mustAccept(t, s3Report("edge-1", 2))
	replicas[0].awaitStorage(t, false)
	for _, line := range replicas[0].log.with(storageAway) {
		if !strings.Contains(line, "Check --storage-path or --storage-backend-s3-*") {
			t.Errorf("the log does not say what to do: %q", line)
		}
	}
	replicas[0].await(t, "a report while the bucket is away", "edge-1", "2")
	replicas[0].await(t, "another cluster while the bucket is away", "edge-2", "1")

	server = s3server.Serve(t, server.Dir, "--addr", server.Endpoint)
	for i, r := range replicas {
		r.await(t, fmt.Sprintf("replica %d after the bucket is back", i), "edge-1", "2")
	}
	replicas[0].awaitStorage(t, true)
	replicas[1].mustAccept(t, s3Report("edge-2", 2))
	for _, r := range replicas { // what was accepted last is written before the process ends
		r.stop()
	}
	again := startS3Replica(t, server, "again", clusters...)
	for cluster, version := range map[string]string{"edge-1": "2", "edge-2": "2", "edge-3": "1"} {
		c, err := again.Get(t.Context(), cluster)
		isLate := time.Since(began) > fleet.SilentAfter // on a slow machine
		if err != nil || c.Status != fleet.Reporting && !isLate || c.Summary.Version != version {
			t.Errorf("after a restart, %s is %+v, %v", cluster, c, err)
		}
	}
}

// TestHostileObjectsInTheBucket reads objects that another writer put into the bucket.
func TestHostileObjectsInTheBucket(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", s3server.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", s3server.SecretKey)
	server := s3server.New(t)
	server.MakeBucket(bucketName)
	now := time.Now()
	packed := func(all ...*entry) string {
		t.Helper()
		var b strings.Builder
		if err := compress(&b, all); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	of := func(name string, received time.Time) *entry {
		return &entry{Name: name, Received: received, Instance: "evil", Sequence: 1 << 60,
			Summary: &fleet.Summary{Version: "evil", Time: received}}
	}
	zipped := func(r io.Reader) string {
		var b strings.Builder
		z := gzip.NewWriter(&b)
		if _, err := io.Copy(z, r); err != nil || z.Close() != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	large, many := of("edge-1", now), of("edge-1", now)
	large.Summary.Version, many.Retired = strings.Repeat("<b>", 1000), make([]string, 1000)
	objects := map[string]string{
		"not-gzip":        strings.Repeat("garbage", 1<<20),
		"not-json":        zipped(strings.NewReader("<html>")),
		"not-a-list":      zipped(strings.NewReader("{}")),
		"bomb":            zipped(io.MultiReader(strings.NewReader("["), io.LimitReader(spaces{}, 64<<20))),
		"no-name":         packed(of("../etc/passwd", now)),
		"future":          packed(of("edge-1", now.Add(24*time.Hour))),
		"future-alive":    packed(&entry{Name: "edge-1", Received: now.Add(time.Hour), Instance: "one", Sequence: 1}),
		"large-text":      packed(large),
		"many-instances":  packed(many),
		"another-cluster": packed(of("edge-9", now)),
		"soon":            packed(of("edge-2", now.Add(fleet.MaxSkew-time.Minute))),
	}
	for name, content := range objects {
		key := "hub/" + storePrefix + name + ".json.gz"
		if _, err := server.Client.PutObject(t.Context(), bucketName, key, strings.NewReader(content),
			int64(len(content)), minio.PutObjectOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	r := startS3Replica(t, server, "a", "edge-1", "edge-2")
	for name := range objects {
		if name == "soon" {
			continue // it is as one of a replica whose clock is ahead
		}
		says := storePrefix + name + ".json.gz"
		if name == "another-cluster" {
			says = `"clusters"=1 "one"="edge-9"`
		}
		if n := len(r.log.with(says)); n != 1 {
			t.Errorf("the log has %d lines about %s: %q", n, name, r.log.all)
		}
	}
	if list, err := r.List(t.Context(), "", 0); err != nil || len(list.Clusters) != 2 ||
		list.Clusters[0].Status != fleet.Expected || list.Clusters[1].Status != fleet.Reporting {
		t.Errorf("the hub has %+v, %v", list, err)
	}
	other := startS3Replica(t, server, "b", "edge-1", "edge-2")
	for _, cluster := range []string{"edge-1", "edge-2"} {
		r.mustAccept(t, s3Report(cluster, 1))
		other.await(t, "a report in spite of the hostile objects", cluster, "1")
	}
}
