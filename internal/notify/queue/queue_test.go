package queue

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

var start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func open(t *testing.T, dir string, limits Limits) *Queue {
	t.Helper()
	q, err := Open(dir, limits)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func add(t *testing.T, q *Queue, texts ...string) {
	t.Helper()
	for i, text := range texts {
		if err := q.Append([]byte(text), start.Add(time.Duration(i)*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
}

// take reads and acknowledges all records.
func take(t *testing.T, q *Queue) (texts []string) {
	t.Helper()
	for {
		r, ok := q.Next()
		if !ok {
			return texts
		}
		texts = append(texts, string(r.Data))
		if err := q.Ack(r); err != nil {
			t.Fatal(err)
		}
	}
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got records %.200q, want %.200q", got, want)
	}
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"+extension))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestUnacknowledgedRecordsAreReturnedAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	q := open(t, dir, DefaultLimits)
	if _, ok := q.Next(); ok || q.Len() != 0 {
		t.Fatal("an empty queue returned a record")
	}
	add(t, q, "one", "two", "")
	for range 2 {
		r, ok := q.Next()
		if !ok || string(r.Data) != "one" || !r.Time.Equal(start) {
			t.Fatalf("Next() = %q at %v", r.Data, r.Time)
		}
	}
	r, _ := q.Next()
	for range 2 { // the second call has no effect
		if err := q.Ack(r); err != nil {
			t.Fatal(err)
		}
	}
	q = open(t, dir, DefaultLimits) // as after a kill: nothing is closed
	if q.Len() != 2 {
		t.Errorf("Len() = %d, want 2", q.Len())
	}
	add(t, q, "four")
	expect(t, take(t, q), "two", "", "four")
	q = open(t, dir, DefaultLimits)
	expect(t, take(t, q))
	if n := files(t, dir); len(n) != 0 {
		t.Errorf("segments of acknowledged records still exist: %v", n)
	}
	add(t, q, "five")
	expect(t, take(t, open(t, dir, DefaultLimits)), "five")
}

func TestNextBatch(t *testing.T) {
	dir := t.TempDir()
	q := open(t, dir, DefaultLimits)
	add(t, q, "one", "two", "three", "four")
	batch := q.NextBatch(3)
	if len(batch) != 3 || string(batch[2].Data) != "three" {
		t.Fatalf("NextBatch(3) = %v", batch)
	}
	acknowledge := func(r Record) {
		if err := q.Ack(r); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the second call has no effect
		acknowledge(batch[1])
	}
	if again := q.NextBatch(9); len(again) != 3 || string(again[1].Data) != "three" || q.Len() != 3 {
		t.Errorf("after acknowledging the second record: batch %v, %d pending", again, q.Len())
	}
	if n := open(t, dir, DefaultLimits).Len(); n != 4 {
		t.Errorf("Len() after a restart = %d, want 4", n)
	}
	acknowledge(batch[0])
	expect(t, take(t, open(t, dir, DefaultLimits)), "three", "four")
	if err := q.Clear(); err != nil {
		t.Fatal(err)
	}
	acknowledge(batch[2])
	if q.Len() != 0 || len(q.acked) != 0 {
		t.Errorf("after Clear: %d pending, acknowledged %v", q.Len(), q.acked)
	}
}

func TestReadSegmentsAreDeleted(t *testing.T) {
	dir := t.TempDir()
	q := open(t, dir, Limits{Bytes: 1 << 20, Segment: 3 * (headerSize + 3)})
	add(t, q, "001", "002", "003", "004", "005", "006", "007")
	if n := files(t, dir); len(n) != 3 {
		t.Errorf("got %d segments", len(n))
	}
	if err := q.Sync(); err != nil {
		t.Fatal(err)
	}
	expect(t, take(t, q), "001", "002", "003", "004", "005", "006", "007")
	if n := files(t, dir); len(n) != 1 {
		t.Errorf("got %d segments", len(n))
	}
	add(t, q, "008")
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	add(t, q, "009") // appended after Close
	expect(t, take(t, open(t, dir, DefaultLimits)), "008", "009")
	if err := q.Remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory still exists: %v", err)
	}
}

func TestFullQueueDropsOldestRecords(t *testing.T) {
	dir := t.TempDir()
	limits := Limits{Bytes: 6 * (headerSize + 3), Segment: 2 * (headerSize + 3)}
	q := open(t, dir, limits)
	add(t, q, "001", "002", "003")
	first, _ := q.Next()
	add(t, q, "004", "005", "006", "007")
	if err := q.Ack(first); err != nil { // dropped already
		t.Fatal(err)
	}
	if dropped, next := q.TakeDropped(), q.TakeDropped(); dropped != 2 || next != 0 || q.Len() != 5 {
		t.Errorf("%d dropped, %d pending", dropped, q.Len())
	}
	q = open(t, dir, limits)
	expect(t, take(t, q), "003", "004", "005", "006", "007")
	if err := q.Append(make([]byte, MaxRecord+1), start); err == nil {
		t.Error("a record larger than MaxRecord is accepted")
	}
	add(t, q, strings.Repeat("x", 1000)) // larger than the limit
	if got := take(t, q); len(got) != 1 || len(got[0]) != 1000 {
		t.Errorf("got %d records", len(got))
	}
}

// TestTornTailIsIgnored truncates and damages a segment at every byte. Complete records before that are read,
// and new records can be appended.
func TestTornTailIsIgnored(t *testing.T) {
	texts := []string{"first", "second, which is longer", "third"}
	from := t.TempDir()
	add(t, open(t, from, DefaultLimits), texts...)
	whole, err := os.ReadFile(files(t, from)[0])
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Base(files(t, from)[0])
	ends := []int{}
	for at, i := 0, 0; i < len(texts); i++ {
		at += headerSize + len(texts[i])
		ends = append(ends, at)
	}
	check := func(content []byte, want int) {
		t.Helper()
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
		q := open(t, dir, DefaultLimits)
		add(t, q, "later")
		q = open(t, dir, DefaultLimits)
		expect(t, take(t, q), append(append([]string{}, texts[:want]...), "later")...)
	}
	for n := range len(whole) + 1 {
		whole := bytes.Clone(whole[:n])
		want := 0
		for want < len(ends) && ends[want] <= n {
			want++
		}
		check(whole, want)
	}
	for i := range whole {
		damaged := bytes.Clone(whole)
		damaged[i] ^= 0x41
		want := 0
		for ends[want] <= i {
			want++
		}
		check(damaged, want)
	}
}

func TestDamagedRecordIsDropped(t *testing.T) {
	dir := t.TempDir()
	q := open(t, dir, Limits{Bytes: 1 << 20, Segment: 2 * (headerSize + 3)})
	add(t, q, "001", "002", "003")
	f, err := os.OpenFile(files(t, dir)[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte{'x'}, headerSize); err != nil {
		t.Fatal(err)
	}
	expect(t, take(t, q), "003")
	if dropped := q.TakeDropped(); dropped != 2 {
		t.Errorf("%d dropped, want 2", dropped)
	}
}

func TestTornMarkIsIgnored(t *testing.T) {
	dir := t.TempDir()
	q := open(t, dir, DefaultLimits)
	add(t, q, "one", "two")
	r, _ := q.Next()
	if err := q.Ack(r); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, markName), []byte("12345678torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	expect(t, take(t, open(t, dir, DefaultLimits)), "one", "two")

	// After a crash of the machine the mark may be on disk without the segments. New records begin after it.
	add(t, q, "three")
	for _, f := range files(t, dir) {
		if err := os.Remove(f); err != nil {
			t.Fatal(err)
		}
	}
	add(t, open(t, dir, DefaultLimits), "four")
	expect(t, take(t, open(t, dir, DefaultLimits)), "four")
}

func TestAppendAfterWriteError(t *testing.T) {
	dir := t.TempDir()
	q := open(t, dir, DefaultLimits)
	appendFails := func() { // the open segment is read-only
		t.Helper()
		last := q.segments[len(q.segments)-1]
		last.close()
		last.file, _ = os.Open(last.path(dir))
		if err := q.Append([]byte("lost"), start); err == nil {
			t.Error("Append returned no error after a failed write")
		}
	}
	add(t, q, "one")
	appendFails()
	add(t, q, "two")
	expect(t, take(t, q), "one", "two")

	q.sealLast()
	if _, err := q.writableSegment(1); err != nil {
		t.Fatal(err)
	}
	appendFails() // with an empty segment
	add(t, q, "three")
	expect(t, take(t, open(t, dir, DefaultLimits)), "three")
}

func TestConcurrentAppend(t *testing.T) {
	q := open(t, t.TempDir(), Limits{Bytes: 64 << 20, Segment: 4 << 10})
	const writers, each = 4, 500
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				if err := q.Append([]byte(fmt.Sprintf("%d %d", w, i)), start); err != nil {
					t.Error(err)
				}
				if i%50 == 0 {
					if err := q.Sync(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	next, taken := map[int]int{}, 0
	for ended := false; !ended || q.Len() > 0; {
		select {
		case <-done:
			ended = true
		default:
		}
		for _, text := range take(t, q) {
			var w, i int
			if _, err := fmt.Sscan(text, &w, &i); err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			if i != next[w] {
				t.Fatalf("record %d of writer %d is returned before %d", i, w, next[w])
			}
			next[w]++
			taken++
		}
	}
	if taken != writers*each {
		t.Errorf("got %d records, want %d", taken, writers*each)
	}
}
