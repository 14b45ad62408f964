package guard

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// acquire acquires a lease in a goroutine. It returns once the request waits.
func acquire(ctx context.Context, t *testing.T, b *Budget, bytes int64) chan error {
	t.Helper()
	before, done := b.Waiting(), make(chan error, 1)
	go func() {
		_, err := b.Acquire(ctx, "testing", bytes)
		done <- err
	}()
	for b.Waiting() == before {
		runtime.Gosched()
	}
	return done
}

func mustAcquire(ctx context.Context, t *testing.T, b *Budget, bytes int64) *Lease {
	t.Helper()
	l, err := b.Acquire(ctx, "testing", bytes)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestWorkWaitsForItsShareInOrder(t *testing.T) {
	ctx, b := context.Background(), NewBudget(1000)
	b.wait = time.Hour
	first := mustAcquire(ctx, t, b, 900)
	large := acquire(ctx, t, b, 600)
	next := acquire(ctx, t, b, 500)
	small := mustAcquire(ctx, t, b, 10) // does not queue
	first.Shrink(400)
	first.Release()
	first.Release()
	if err := <-large; err != nil {
		t.Fatal(err)
	}
	if b.Used() != 610 || b.Waiting() != 1 {
		t.Errorf("%d bytes used, %d requests wait", b.Used(), b.Waiting())
	}
	small.Release()
	b.give("", 600) // what the large one has
	if err := <-next; err != nil || b.Used() != 500 {
		t.Errorf("%v, %d bytes used", err, b.Used())
	}
}

func TestWorkThatWaitsTooLongSaysSo(t *testing.T) {
	b := NewBudget(100 << 20)
	defer mustAcquire(context.Background(), t, b, 90<<20).Release()
	b.wait = time.Nanosecond
	_, err := b.Acquire(context.Background(), "the build", 50<<20)
	f := fault.As(err)
	if f == nil || f.Reason != ReasonWaitingForMemory || f.Terminal || f.RetryAfter == 0 || !IsMemory(err) ||
		!strings.Contains(err.Error(), "the build needs 50.0 MiB of memory, which other work uses. It is "+
			"retried. If it happens often, raise the memory limit of the controller") {
		t.Errorf("the error is %v", err)
	}
	b.wait = time.Hour
	ctx, cancel := context.WithCancel(context.Background())
	waiting := acquire(ctx, t, b, 50<<20)
	cancel()
	if err := <-waiting; !errors.Is(err, context.Canceled) || b.Waiting() != 0 || b.Used() != 90<<20 {
		t.Errorf("%v, %d waiting, %d bytes used", err, b.Waiting(), b.Used())
	}
	_, err = b.Acquire(ctx, "the build", 101<<20)
	if f := fault.As(err); f == nil || f.Reason != ReasonTooLarge || !f.Terminal {
		t.Errorf("the error is %v", err)
	}
}

func TestGrowingLeasesDoNotWaitForEachOther(t *testing.T) {
	ctx, b := context.Background(), NewBudget(1000)
	b.wait = time.Hour
	x, y := mustAcquire(ctx, t, b, 500), mustAcquire(ctx, t, b, 500)
	grown := make(chan error, 1)
	go func() { grown <- x.Grow(ctx, 400) }()
	for b.Waiting() == 0 {
		runtime.Gosched()
	}
	if err := y.Grow(ctx, 400); fault.Reason(err, "") != ReasonWaitingForMemory {
		t.Errorf("the error of the second lease is %v", err)
	}
	y.Release()
	if err := <-grown; err != nil || x.Bytes() != 900 || b.Used() != 900 {
		t.Errorf("%v, the lease has %d bytes, %d are used", err, x.Bytes(), b.Used())
	}
}

func TestNoOwnerTakesAllMemory(t *testing.T) {
	b := NewBudget(1000)
	b.wait = time.Hour
	hostile, other := WithOwner(context.Background(), "hostile"), WithOwner(context.Background(), "other")
	held := mustAcquire(hostile, t, b, 700)
	waiting := acquire(hostile, t, b, 100)
	mustAcquire(other, t, b, 250).Release() // passes the request that waits for its owner's share
	held.Release()
	if err := <-waiting; err != nil {
		t.Error(err)
	}
	if _, err := b.Acquire(other, "testing", 751); fault.Reason(err, "") != ReasonTooLarge ||
		fault.As(err).Hint != "Make it smaller, or raise the memory limit of the controller" {
		t.Errorf("the error is %v", err)
	}
}

// TestLeasesOfOneOwnerThatGrowStopNoOther has an owner with a lease that waits for more while others need some.
func TestLeasesOfOneOwnerThatGrowStopNoOther(t *testing.T) {
	hostile, other := WithOwner(context.Background(), "hostile"), WithOwner(context.Background(), "other")
	for name, c := range map[string]struct{ held, more, third, small int64 }{
		"waits for its own share": {held: 700, more: 60, third: 1, small: 210},
		"waits for all memory":    {held: 600, more: 140, third: 300, small: 20},
	} {
		b := NewBudget(1000)
		b.wait = time.Hour
		large := mustAcquire(hostile, t, b, c.held-10)
		lease := mustAcquire(hostile, t, b, 10)
		mustAcquire(WithOwner(context.Background(), "third"), t, b, c.third)
		grown := make(chan error, 1)
		go func() { grown <- lease.Grow(hostile, c.more) }()
		for b.Waiting() == 0 {
			runtime.Gosched()
		}
		small := mustAcquire(other, t, b, 1)
		if err := small.Grow(other, c.small); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		small.Release()
		large.Release()
		if err := <-grown; err != nil {
			t.Errorf("%s: afterwards: %v", name, err)
		}
	}
}

func TestMemoryReturnsWhenItsOwnerIsUnreachable(t *testing.T) {
	b := NewBudget(1000)
	b.wait = time.Hour
	owner := &struct{ data []byte }{make([]byte, 100)}
	HoldWhile(mustAcquire(context.Background(), t, b, 900), owner)
	shrunk := false
	b.OnPressure(func() { shrunk = true })
	runtime.KeepAlive(owner)
	l := mustAcquire(context.Background(), t, b, 800) // collects the garbage
	if !shrunk || l.Bytes() != 800 {
		t.Errorf("shrunk: %v, %d bytes", shrunk, l.Bytes())
	}
}

func TestMemoryLimitFollowsTheCgroup(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	machine := file("MemFree: 1 kB\nMemTotal: 4194304 kB\n")
	const none = 1<<63 - 1
	for name, c := range map[string]struct {
		files   fstest.MapFS
		goLimit int64
		want    int64
	}{
		"cgroup 2": {files: fstest.MapFS{"sys/fs/cgroup/memory.max": file("1073741824\n")},
			goLimit: none, want: 1 << 30},
		"cgroup 1": {files: fstest.MapFS{"sys/fs/cgroup/memory/memory.limit_in_bytes": file("536870912\n")},
			goLimit: none, want: 512 << 20},
		"nested": {files: fstest.MapFS{"proc/self/cgroup": file("0::/a/b\n"),
			"sys/fs/cgroup/a/memory.max":   file("268435456"),
			"sys/fs/cgroup/a/b/memory.max": file("max")}, goLimit: none, want: 256 << 20},
		"nested, cgroup 1": {files: fstest.MapFS{"proc/self/cgroup": file("3:cpu:/x\n2:memory,hugetlb:/a\n"),
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes": file("268435456")}, goLimit: none, want: 256 << 20},
		"GOMEMLIMIT": {files: fstest.MapFS{"sys/fs/cgroup/memory.max": file("1073741824\n")}, goLimit: 1 << 29,
			want: 1 << 29},
		"no limit": {files: fstest.MapFS{"sys/fs/cgroup/memory.max": file("max\n"), "proc/meminfo": machine,
			"sys/fs/cgroup/memory/memory.limit_in_bytes": file("9223372036854771712")}, goLimit: none, want: 2 << 30},
		"nothing known": {goLimit: none, want: defaultLimit},
		"too small":     {goLimit: 1 << 20, want: minLimit},
	} {
		if got := memoryLimit(c.goLimit, c.files); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
