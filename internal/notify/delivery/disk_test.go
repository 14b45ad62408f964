package delivery

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sluice-gitops/sluice/internal/notify/queue"
)

// block makes a path unusable as a directory, until unblock is called.
func block(t *testing.T, parts ...string) (unblock func()) {
	t.Helper()
	path := filepath.Join(parts...)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

func messages(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint(i))
	}
	return all
}

func TestDiskFailures(t *testing.T) {
	t.Parallel()
	for _, err := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EIO, syscall.EROFS, syscall.EMFILE} {
		if !isDiskFailure(fmt.Errorf("cannot write: %w", &os.PathError{Op: "write", Path: "x", Err: err})) {
			t.Errorf("%v is not waited for", err)
		}
	}
	for _, err := range []error{nil, queue.ErrShare, errNoRoom, errors.New("too large")} {
		if isDiskFailure(err) {
			t.Errorf("'%v' is waited for", err)
		}
	}
}

// TestQueueIsReadAfterAFailure starts a process while the queue of a provider cannot be read, and makes it readable.
func TestQueueIsReadAfterAFailure(t *testing.T) {
	t.Parallel()
	o, dir := newFakeProviders(nil), t.TempDir()
	down := errors.New("down")
	o.respond = func(context.Context, Delivery) error { return down }
	opts := options(dir, o)
	d, stop := start(t, opts)
	post(t, d, newEvent("x", "0", "a"))
	eventually(t, "the first event is in the queue", func() bool { return o.attempts("0") > 0 })
	stop()
	hidden := filepath.Join(dir, "hidden")
	own := filepath.Join(dir, providersDir, "ns", "a")
	if err := os.Rename(own, hidden); err != nil {
		t.Fatal(err)
	}
	unblock := block(t, own)
	o.respond = nil
	d, _ = start(t, opts)
	post(t, d, newEvent("x", "1", "a"))
	eventually(t, "the router waits", func() bool { return len(d.Pending()) == 1 })
	unblock()
	if err := os.Rename(hidden, own); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both are delivered in order", func() bool { return slices.Equal(o.received("a"), messages(2)) })
	eventually(t, "the empty queue is removed", func() bool {
		left, err := filepath.Glob(filepath.Join(dir, providersDir, "ns", "*"))
		return err == nil && len(left) == 0
	})
}

// TestEventsWaitForTheDisk has providers whose queues cannot be written. Events stay in the intake.
func TestEventsWaitForTheDisk(t *testing.T) {
	t.Parallel()
	o, dir := newFakeProviders(nil), t.TempDir()
	unblock := block(t, dir, providersDir)
	d, stop := start(t, options(dir, o))
	for _, m := range messages(5) {
		post(t, d, newEvent("x", m, "a"))
	}
	eventually(t, "the router waits", func() bool { return len(d.Pending()) == 1 })
	stop()
	d, _ = start(t, options(dir, o))
	eventually(t, "the next process waits, too", func() bool { return len(d.Pending()) == 1 })
	unblock()
	eventually(t, "all are delivered", func() bool { return slices.Equal(o.received("a"), messages(5)) })
}

// TestOwnEventsWaitInMemory has an intake that cannot be written.
func TestOwnEventsWaitInMemory(t *testing.T) {
	t.Parallel()
	o, dir := newFakeProviders(nil), filepath.Join(t.TempDir(), "events")
	unblock := block(t, dir)
	d := New(options(dir, o))
	for _, m := range messages(5) {
		post(t, d, newEvent("x", m, "a"))
	}
	if err := d.Post(newEvent("x", "4", "a")); !errors.As(err, new(*DuplicateError)) {
		t.Errorf("an event that waits is accepted twice: %v", err)
	}
	for range 2 { // an event that was not stored is not a duplicate
		err := d.PostForeign(newEvent("x", "posted", "a"))
		if err == nil || errors.As(err, new(*DuplicateError)) {
			t.Errorf("an event of another program is acknowledged without being stored: %v", err)
		}
	}
	run(t, d)
	post(t, d, newEvent("x", "5", "a"))
	unblock()
	eventually(t, "all are delivered in order", func() bool { return slices.Equal(o.received("a"), messages(6)) })
}

// TestMemoryOfEventsIsBounded posts more events than may wait in memory, and ends the process.
func TestMemoryOfEventsIsBounded(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "events")
	block(t, dir)
	d := New(options(dir, newFakeProviders(nil)))
	lost := accepted.WithLabelValues("lost")
	before := testutil.ToFloat64(lost)
	long := strings.Repeat("x", 100<<10)
	held, refused := 0, 0
	for i := range 60 {
		if d.Post(newEvent("x", fmt.Sprint(i, long), "a")) == nil {
			held++
		} else {
			refused++
		}
	}
	counted := testutil.ToFloat64(lost) - before
	if held < 30 || held*len(long) > maxHeld || counted != float64(refused) {
		t.Errorf("%d events of 100 KiB wait, %d are refused, %v counted", held, refused, counted)
	}
	d = New(options(dir, newFakeProviders(nil)))
	victim := newEvent("x", "of another namespace", "a")
	victim.InvolvedObject.Namespace = "victim"
	post(t, d, victim)
	held = 0
	for i := range 60 {
		if d.Post(newEvent("x", fmt.Sprint(i, long), "a")) == nil {
			held++
		}
	}
	if held < 10 || held*len(long) > maxHeld/2 {
		t.Errorf("%d events of one namespace wait, which leaves nothing for others", held)
	}
	before = testutil.ToFloat64(lost)
	d.own.drop()
	if got := testutil.ToFloat64(lost) - before; got != float64(held+1) || d.own.size != 0 {
		t.Errorf("%v of %d events are counted as lost", got, held+1)
	}
}
