package queue

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
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

// take takes all that waits.
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

func wants(t *testing.T, got []string, want ...string) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("taken were %.200q, want %.200q", got, want)
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

func TestWhatIsNotAcknowledgedComesAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	q := open(t, dir, DefaultLimits)
	if _, ok := q.Next(); ok || q.Waiting() != 0 {
		t.Fatal("an empty queue has a record")
	}
	add(t, q, "one", "two", "")
	for range 2 {
		r, ok := q.Next()
		if !ok || string(r.Data) != "one" || !r.Time.Equal(start) {
			t.Fatalf("next is %q of %v", r.Data, r.Time)
		}
	}
	r, _ := q.Next()
	for range 2 { // the second one is of no effect
		if err := q.Ack(r); err != nil {
			t.Fatal(err)
		}
	}
	q = open(t, dir, DefaultLimits) // as after a kill: nothing was closed
	if q.Waiting() != 2 {
		t.Errorf("%d wait", q.Waiting())
	}
	add(t, q, "four")
	wants(t, take(t, q), "two", "", "four")
	q = open(t, dir, DefaultLimits)
	wants(t, take(t, q))
	if n := files(t, dir); len(n) != 0 {
		t.Errorf("what was acknowledged is still there: %v", n)
	}
	add(t, q, "five")
	wants(t, take(t, open(t, dir, DefaultLimits)), "five")
}

func TestSeveralAreTaken(t *testing.T) {
	dir := t.TempDir()
	q := open(t, dir, DefaultLimits)
	add(t, q, "one", "two", "three", "four")
	few := q.NextFew(3)
	if len(few) != 3 || string(few[2].Data) != "three" {
		t.Fatalf("a few of them are %v", few)
	}
	acknowledge := func(r Record) {
		if err := q.Ack(r); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // twice is as once
		acknowledge(few[1])
	}
	if again := q.NextFew(9); len(again) != 3 || string(again[1].Data) != "three" || q.Waiting() != 3 {
		t.Errorf("without the second there are %v, and %d wait", again, q.Waiting())
	}
	if n := open(t, dir, DefaultLimits).Waiting(); n != 4 {
		t.Errorf("after a restart %d wait", n)
	}
	acknowledge(few[0])
	wants(t, take(t, open(t, dir, DefaultLimits)), "three", "four")
	if err := q.Clear(); err != nil {
		t.Fatal(err)
	}
	acknowledge(few[2])
	if q.Waiting() != 0 || len(q.done) != 0 {
		t.Errorf("after all was dropped %d wait, and %v is kept", q.Waiting(), q.done)
	}
}

func TestSegmentsGoOnceTheyAreRead(t *testing.T) {
	dir := t.TempDir()
	q := open(t, dir, Limits{Bytes: 1 << 20, Segment: 3 * (header + 3)})
	add(t, q, "001", "002", "003", "004", "005", "006", "007")
	if n := files(t, dir); len(n) != 3 {
		t.Errorf("there are %d segments", len(n))
	}
	if err := q.Sync(); err != nil {
		t.Fatal(err)
	}
	wants(t, take(t, q), "001", "002", "003", "004", "005", "006", "007")
	if n := files(t, dir); len(n) != 1 {
		t.Errorf("there are %d segments", len(n))
	}
	add(t, q, "008")
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	add(t, q, "009") // after the end
	wants(t, take(t, open(t, dir, DefaultLimits)), "008", "009")
	if err := q.Remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory is still there: %v", err)
	}
}

func TestTheOldestGoWhenItIsFull(t *testing.T) {
	dir := t.TempDir()
	limits := Limits{Bytes: 6 * (header + 3), Segment: 2 * (header + 3)}
	q := open(t, dir, limits)
	add(t, q, "001", "002", "003")
	first, _ := q.Next()
	add(t, q, "004", "005", "006", "007")
	if err := q.Ack(first); err != nil { // it is gone already
		t.Fatal(err)
	}
	if lost, again := q.Lost(), q.Lost(); lost != 2 || again != 0 || q.Waiting() != 5 {
		t.Errorf("%d are lost, %d wait", lost, q.Waiting())
	}
	q = open(t, dir, limits)
	wants(t, take(t, q), "003", "004", "005", "006", "007")
	if err := q.Append(make([]byte, MaxRecord+1), start); err == nil {
		t.Error("a record of any size is taken")
	}
	add(t, q, strings.Repeat("x", 1000)) // larger than all
	if got := take(t, q); len(got) != 1 || len(got[0]) != 1000 {
		t.Errorf("taken were %d", len(got))
	}
}

// Whatever part of the files reached the disk, what is whole is read, and the queue goes on.
func TestATornTailIsCut(t *testing.T) {
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
		at += header + len(texts[i])
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
		wants(t, take(t, q), append(append([]string{}, texts[:want]...), "later")...)
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

func TestWhatIsDamagedWhileItWaits(t *testing.T) {
	dir := t.TempDir()
	q := open(t, dir, Limits{Bytes: 1 << 20, Segment: 2 * (header + 3)})
	add(t, q, "001", "002", "003")
	f, err := os.OpenFile(files(t, dir)[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte{'x'}, header); err != nil {
		t.Fatal(err)
	}
	wants(t, take(t, q), "003")
	if lost := q.Lost(); lost != 2 {
		t.Errorf("%d are lost", lost)
	}
}

func TestATornMarkIsNone(t *testing.T) {
	dir := t.TempDir()
	q := open(t, dir, DefaultLimits)
	add(t, q, "one", "two")
	r, _ := q.Next()
	if err := q.Ack(r); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, markFile), []byte("12345678torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	wants(t, take(t, open(t, dir, DefaultLimits)), "one", "two")

	// The machine lost what was acknowledged, and kept the mark: what comes next is before no mark.
	add(t, q, "three")
	for _, f := range files(t, dir) {
		if err := os.Remove(f); err != nil {
			t.Fatal(err)
		}
	}
	add(t, open(t, dir, DefaultLimits), "four")
	wants(t, take(t, open(t, dir, DefaultLimits)), "four")
}

func TestADiskThatFails(t *testing.T) {
	dir := t.TempDir()
	q := open(t, dir, DefaultLimits)
	fails := func() { // to write to the segment that is open
		t.Helper()
		last := q.segments[len(q.segments)-1]
		last.close()
		last.file, _ = os.Open(last.path(dir))
		if err := q.Append([]byte("lost"), start); err == nil {
			t.Error("a write failed, and nobody is told")
		}
	}
	add(t, q, "one")
	fails()
	add(t, q, "two")
	wants(t, take(t, q), "one", "two")

	q.retire()
	if _, err := q.open(1); err != nil {
		t.Fatal(err)
	}
	fails() // with nothing in it
	add(t, q, "three")
	wants(t, take(t, open(t, dir, DefaultLimits)), "three")
}

func TestManyAppendAndOneTakes(t *testing.T) {
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
	for ended := false; !ended || q.Waiting() > 0; {
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
				t.Fatalf("%d of writer %d comes before %d", i, w, next[w])
			}
			next[w]++
			taken++
		}
	}
	if taken != writers*each {
		t.Errorf("%d were taken", taken)
	}
}

const killed = "SLUICE_TEST_QUEUE"

// A process that is killed while it appends has lost nothing that it was told is there.
func TestKilledInTheMidst(t *testing.T) {
	limits := Limits{Bytes: 64 << 20, Segment: 1 << 10}
	if dir := os.Getenv(killed); dir != "" {
		q := open(t, dir, limits)
		for i := q.Waiting(); ; i++ {
			add(t, q, fmt.Sprint(i))
			if _, err := fmt.Fprintln(os.Stderr, i); err != nil {
				return
			}
		}
	}
	dir := t.TempDir()
	told := -1
	for round := range 3 {
		cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), killed+"="+dir)
		out, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if _, err := fmt.Sscan(lines.Text(), &told); err != nil {
				t.Fatalf("the process says %q", lines.Text())
			}
			if told >= 300*(round+1) {
				_ = cmd.Process.Kill()
				break
			}
		}
		_, _ = io.Copy(io.Discard, out)
		if err := cmd.Wait(); err == nil {
			t.Fatal("the process ended before it was killed")
		}
	}
	got := take(t, open(t, dir, limits))
	if len(got) < told+1 {
		t.Errorf("%d records are there, of %d", len(got), told+1)
	}
	for i, text := range got {
		if text != fmt.Sprint(i) {
			t.Fatalf("record %d is %q", i, text)
		}
	}
}

// FuzzSegment reads what any bytes in the files of a queue come to.
func FuzzSegment(f *testing.F) {
	f.Add(append(encode([]byte("one"), start), encode([]byte("two"), start)...), []byte("mark"))
	f.Add(encode([]byte("one"), start)[:header+1], []byte{})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff}, []byte{0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5})
	f.Fuzz(func(t *testing.T, records, mark []byte) {
		dir := t.TempDir()
		for name, content := range map[string][]byte{fmt.Sprintf("%019d%s", 0, extension): records, markFile: mark} {
			if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		q := open(t, dir, DefaultLimits)
		waiting := q.Waiting()
		add(t, q, "last")
		got := take(t, q)
		if len(got) != waiting+1 || got[waiting] != "last" {
			t.Fatalf("%d waited, taken were %q", waiting, got)
		}
		var whole []byte
		for _, text := range got[:waiting] {
			whole = append(whole, encode([]byte(text), start)...)
		}
		if len(whole) > len(records) {
			t.Fatal("more was read than is there")
		}
	})
}
