package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/artifact/backendtest"
	"github.com/sluice-gitops/sluice/internal/fleet"
)

func TestDirectoryContract(t *testing.T) {
	dir := t.TempDir()
	var opened []*Directory
	backendtest.Suite{
		Open: func() artifact.Backend {
			b, err := OpenDirectory(dir)
			if err != nil {
				t.Fatal(err)
			}
			opened = append(opened, b.(*Directory))
			return b
		},
		Stop: func() {
			for _, d := range opened {
				_ = d.Root.Close()
			}
		},
	}.Run(t)
}

// counted is a bucket that counts requests, and that can be away.
type counted struct {
	artifact.Backend
	mu     sync.Mutex
	calls  map[string]int
	isAway bool
}

func newCounted(t *testing.T) *counted {
	t.Helper()
	b, err := OpenDirectory(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return &counted{Backend: b, calls: map[string]int{}}
}

func (c *counted) call(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[name]++
	if c.isAway {
		return errors.New("the bucket is away")
	}
	return nil
}

func (c *counted) Put(ctx context.Context, name string, content io.Reader, size int64) error {
	if err := c.call("put"); err != nil {
		return err
	}
	return c.Backend.Put(ctx, name, content, size)
}

func (c *counted) Get(ctx context.Context, name string) (io.ReadCloser, artifact.BackendFile, error) {
	if err := c.call("get"); err != nil {
		return nil, artifact.BackendFile{}, err
	}
	return c.Backend.Get(ctx, name)
}

func (c *counted) Delete(ctx context.Context, name string) error {
	if err := c.call("delete"); err != nil {
		return err
	}
	return c.Backend.Delete(ctx, name)
}

func (c *counted) List(ctx context.Context, prefix string) ([]artifact.BackendFile, error) {
	if err := c.call("list"); err != nil {
		return nil, err
	}
	return c.Backend.List(ctx, prefix)
}

func (c *counted) setAway(isAway bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isAway = isAway
}

// testReplica returns a hub that shares a bucket with others.
func testReplica(t *testing.T, clock *testClock, b artifact.Backend, name string, clusters ...string) *Hub {
	t.Helper()
	h := newTestHub(t, clock, b).Hub
	h.Store.Replica = name
	for _, cluster := range clusters {
		h.Registry.Set(newIssuer(t).secret(cluster))
	}
	h.refresh()
	return h
}

func (h *Hub) mustAccept(t *testing.T, r fleet.Report) {
	t.Helper()
	if err := h.accept(&r); err != nil {
		t.Fatal(err)
	}
}

// TestReplicasShareABucket gives reports to two replicas. Both, and one that starts later, know the latest.
func TestReplicasShareABucket(t *testing.T) {
	ctx, clock, bucket := t.Context(), &testClock{now: start}, newCounted(t)
	a, b := testReplica(t, clock, bucket, "a", "edge-1", "edge-2"), testReplica(t, clock, bucket, "b", "edge-1",
		"edge-2")
	step := func(h *Hub) {
		t.Helper()
		if err := h.Store.flush(ctx, true); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Store.readNew(ctx, h); err != nil {
			t.Fatal(err)
		}
	}
	version := func(h *Hub, name string) (int64, time.Time) {
		e := h.clusters[name]
		if e == nil {
			return 0, time.Time{}
		}
		return e.Sequence, e.Received
	}
	a.mustAccept(t, testReport("edge-1", 1, start))
	b.mustAccept(t, testReport("edge-2", 1, start))
	clock.add(time.Minute)
	step(a)
	step(b)
	b.mustAccept(t, testReport("edge-1", 2, start)) // the other replica got the first one
	heartbeat := testReport("edge-2", 1, start)
	heartbeat.Summary = nil
	step(a)
	a.mustAccept(t, heartbeat)
	step(b)
	step(a)
	step(b)
	later := testReplica(t, clock, bucket, "c", "edge-1", "edge-2")
	if err := later.Store.Load(ctx, later); err != nil {
		t.Fatal(err)
	}
	for name, h := range map[string]*Hub{"a": a, "b": b, "c": later} {
		first, at := version(h, "edge-1")
		second, heard := version(h, "edge-2")
		if now := clock.Now(); first != 2 || second != 1 || !at.Equal(now) || !heard.Equal(now) {
			t.Errorf("replica %s has %d of %s and %d of %s", name, first, at, second, heard)
		}
	}
	before := a.version
	step(a)
	if a.version != before {
		t.Error("batches without a change are changes")
	}
}

// TestBatchesAreReplaced writes more batches than are kept.
func TestBatchesAreReplaced(t *testing.T) {
	ctx, clock, bucket := t.Context(), &testClock{now: start}, newCounted(t)
	a, b := testReplica(t, clock, bucket, "a", "edge-1"), testReplica(t, clock, bucket, "b", "edge-1")
	a.mustAccept(t, testReport("gone", 1, start)) // its Secret was deleted
	for i := range int64(maxBatches + 2) {
		clock.add(time.Second)
		a.mustAccept(t, testReport("edge-1", i+1, start))
		if err := a.Store.flush(ctx, false); err != nil {
			t.Fatal(err)
		}
	}
	names, err := a.Store.readNew(ctx, a)
	if err != nil || len(names) != maxBatches+2 {
		t.Fatalf("%d batches, %v", len(names), err)
	}
	if err := a.Store.replace(ctx, a, names); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if names, err = b.Store.readNew(ctx, b); err != nil || len(names) != 1 {
			t.Fatalf("%d batches are left, %v", len(names), err)
		}
	}
	if e := b.clusters["edge-1"]; e == nil || e.Sequence != maxBatches+2 || b.clusters["gone"] != nil {
		t.Errorf("the other replica has %+v, and of a cluster that is gone %+v", e, b.clusters["gone"])
	}
}

// TestBucketAway loses no report while the bucket is away, and reads it when it is back.
func TestBucketAway(t *testing.T) {
	ctx, clock, bucket := t.Context(), &testClock{now: start}, newCounted(t)
	bucket.setAway(true)
	a := testReplica(t, clock, bucket, "a", "edge-1", "edge-2")
	if err := a.Store.Load(ctx, a); err == nil {
		t.Error("the bucket is away, and is loaded")
	}
	a.mustAccept(t, testReport("edge-1", 1, start))
	a.mustAccept(t, testReport("edge-2", 1, start))
	if err := a.Store.flush(ctx, false); err == nil {
		t.Error("the bucket is away, and is written")
	}
	a.mustAccept(t, testReport("edge-2", 2, start))
	if c, err := a.Get(ctx, "edge-1"); err != nil || c.Status != fleet.Reporting {
		t.Errorf("the cluster is %+v, %v", c, err)
	}
	if first, second := a.Store.report(errors.New("away")), a.Store.report(errors.New("away")); first > second {
		t.Errorf("it waits %s, then %s", first, second)
	}
	bucket.setAway(false)
	if err := a.Store.flush(ctx, false); err != nil {
		t.Fatal(err)
	}
	b := testReplica(t, clock, bucket, "b", "edge-1", "edge-2")
	if err := b.Store.Load(ctx, b); err != nil {
		t.Fatal(err)
	}
	if b.clusters["edge-1"].Sequence != 1 || b.clusters["edge-2"].Sequence != 2 {
		t.Errorf("it has %+v and %+v", b.clusters["edge-1"], b.clusters["edge-2"])
	}
}

// TestFilesThatAreNoBatches reads what others wrote into the bucket.
func TestFilesThatAreNoBatches(t *testing.T) {
	ctx, clock, bucket := t.Context(), &testClock{now: start}, newCounted(t)
	var future, invalid strings.Builder
	for to, e := range map[*strings.Builder]*entry{
		&future: {Name: "edge-1", Received: start.Add(24 * time.Hour), Instance: "x", Sequence: 99,
			Summary: &fleet.Summary{}},
		&invalid: {Name: "../x", Received: start, Instance: "x", Sequence: 1, Summary: &fleet.Summary{}},
	} {
		if err := compress(to, []*entry{e, nil}); err != nil {
			t.Fatal(err)
		}
	}
	for i, content := range []string{"garbage", future.String(), invalid.String()} {
		name := fmt.Sprintf("%s%d.json.gz", storePrefix, i)
		if err := bucket.Put(ctx, name, strings.NewReader(content), int64(len(content))); err != nil {
			t.Fatal(err)
		}
	}
	a := testReplica(t, clock, bucket, "a", "edge-1")
	if err := a.Store.Load(ctx, a); err != nil || len(a.clusters) != 0 {
		t.Errorf("it has %v, %v", a.clusters, err)
	}
}
