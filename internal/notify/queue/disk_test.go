package queue

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestUnreadableRecordsAreKept has a segment that the disk does not return for a while, and then one that it never
// returns.
func TestUnreadableRecordsAreKept(t *testing.T) {
	for _, c := range []struct {
		retry   time.Duration
		want    []string
		dropped int
	}{
		{want: []string{"one", "two"}},
		{retry: time.Nanosecond, want: nil, dropped: 2},
	} {
		dir := t.TempDir()
		add(t, open(t, dir, DefaultLimits), "one", "two")
		limits := DefaultLimits
		limits.ReadRetry = c.retry
		q := open(t, dir, limits)
		name := files(t, dir)[0]
		if err := os.Rename(name, name+".hidden"); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(name, 0o700); err != nil { // reading it fails
			t.Fatal(err)
		}
		for range 2 {
			if batch := q.NextBatch(10); len(batch) > 0 {
				t.Fatalf("got %v", batch)
			}
		}
		if dropped := q.TakeDropped(); dropped != c.dropped {
			t.Errorf("%d records are dropped, want %d", dropped, c.dropped)
		}
		_ = os.Remove(name) // it is gone if the records were dropped
		if err := os.Rename(name+".hidden", name); err != nil {
			t.Fatal(err)
		}
		expect(t, take(t, q), c.want...)
	}
}

// TestRemoveKeepsTheMark has a queue one of whose files cannot be deleted. Its acknowledged records do not return.
func TestRemoveKeepsTheMark(t *testing.T) {
	dir := t.TempDir()
	q := open(t, dir, DefaultLimits)
	add(t, q, "one")
	expect(t, take(t, q), "one")
	undeletable := filepath.Join(dir, "9"+extension)
	if err := os.MkdirAll(filepath.Join(undeletable, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := q.Remove(); err == nil {
		t.Fatal("no error")
	}
	if readMark(dir) == 0 {
		t.Error("the mark is deleted")
	}
}

// TestLeftSegmentsAreReplaced has a file without a complete record where the next segment begins.
func TestLeftSegmentsAreReplaced(t *testing.T) {
	dir := t.TempDir()
	q := open(t, dir, DefaultLimits)
	left := (&segment{}).path(dir)
	if err := os.WriteFile(left, []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	add(t, q, "one")
	expect(t, take(t, open(t, dir, DefaultLimits)), "one")
}
