package queue

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// childDir is the environment variable that makes the test append to a queue until it is killed.
const childDir = "SLUICE_TEST_QUEUE"

// TestAppendedRecordsSurviveKill kills a process while it appends. Every record that Append returned for is there.
func TestAppendedRecordsSurviveKill(t *testing.T) {
	limits := Limits{Bytes: 64 << 20, Segment: 1 << 10}
	if dir := os.Getenv(childDir); dir != "" {
		q := open(t, dir, limits)
		for i := q.Len(); ; i++ {
			add(t, q, fmt.Sprint(i))
			if _, err := fmt.Fprintln(os.Stderr, i); err != nil {
				return
			}
		}
	}
	dir := t.TempDir()
	reported := -1
	for round := range 3 {
		cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), childDir+"="+dir)
		out, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if _, err := fmt.Sscan(lines.Text(), &reported); err != nil {
				t.Fatalf("unexpected output %q of the process", lines.Text())
			}
			if reported >= 300*(round+1) {
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
	if len(got) < reported+1 {
		t.Errorf("%d records survived, want at least %d", len(got), reported+1)
	}
	for i, text := range got {
		if text != fmt.Sprint(i) {
			t.Fatalf("record %d is %q", i, text)
		}
	}
}

// FuzzSegment opens queues whose files have arbitrary content.
func FuzzSegment(f *testing.F) {
	f.Add(append(encode([]byte("one"), start), encode([]byte("two"), start)...), []byte("mark"))
	f.Add(encode([]byte("one"), start)[:headerSize+1], []byte{})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff}, []byte{0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5})
	f.Fuzz(func(t *testing.T, records, mark []byte) {
		dir := t.TempDir()
		for name, content := range map[string][]byte{fmt.Sprintf("%019d%s", 0, extension): records, markName: mark} {
			if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		q := open(t, dir, DefaultLimits)
		waiting := q.Len()
		add(t, q, "last")
		got := take(t, q)
		if len(got) != waiting+1 || got[waiting] != "last" {
			t.Fatalf("%d pending, got %q", waiting, got)
		}
		var whole []byte
		for _, text := range got[:waiting] {
			whole = append(whole, encode([]byte(text), start)...)
		}
		if len(whole) > len(records) {
			t.Fatal("more bytes were read than the file has")
		}
	})
}
