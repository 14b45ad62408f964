package term

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

// TestTableKeepsColumnsAligned also checks that colours do not count as width.
func TestTableKeepsColumnsAligned(t *testing.T) {
	t.Setenv("NO_COLOR", "")
	var b strings.Builder
	table := NewTable(&Screen{Writer: &b, terminal: true})
	for _, rows := range [][][]Cell{
		{Row("NAME", "READY", "MESSAGE"), {{Text: "größe"}, {Text: "True", Colour: Green}, {Text: "fine"}}},
		{{{Text: "a"}, {Text: "False", Colour: Red}, {Text: "not so"}}},
	} {
		if err := table.Print(rows...); err != nil {
			t.Fatal(err)
		}
	}
	want := "NAME    READY   MESSAGE\ngröße   \x1b[32mTrue\x1b[0m    fine\na       \x1b[31mFalse\x1b[0m   not so\n"
	if b.String() != want {
		t.Errorf("got\n%q, want\n%q", b.String(), want)
	}
}

func TestPaint(t *testing.T) {
	for name, c := range map[string]struct {
		terminal bool
		noColor  string
		want     string
	}{
		"terminal":               {terminal: true, want: "\x1b[31mx\x1b[0m"},
		"terminal with NO_COLOR": {terminal: true, noColor: "1", want: "x"},
		"file":                   {want: "x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("NO_COLOR", c.noColor)
			if got := (&Screen{Writer: io.Discard, terminal: c.terminal}).Paint(Red, "x"); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestLiveLineShowsOnTerminalOnly(t *testing.T) {
	for name, c := range map[string]struct {
		terminal bool
		noColor  string
		want     string
	}{
		"terminal": {
			terminal: true,
			want:     "\r\x1b[K\x1b[33m◎\x1b[0m one two\r\x1b[K\x1b[32m✔\x1b[0m done\n",
		},
		"terminal with NO_COLOR": {terminal: true, noColor: "1", want: "✔ done\n"},
		"file":                   {want: "✔ done\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("NO_COLOR", c.noColor)
			var b bytes.Buffer
			u := New(strings.NewReader(""), io.Discard, &b)
			u.Err.terminal = c.terminal
			u.Live("one\n%s", "two")
			u.Done("done")
			if b.String() != c.want {
				t.Errorf("got %q, want %q", b.String(), c.want)
			}
		})
	}
	long := New(strings.NewReader(""), io.Discard, io.Discard).Err.fit(strings.Repeat("x", 200), 2)
	if got := []rune(long); len(got) != defaultWidth-3 || got[len(got)-1] != '…' {
		t.Errorf("a long line is shortened to %d cells: %s", len(got), long)
	}
}

func TestConfirm(t *testing.T) {
	for answer, want := range map[string]bool{"y\n": true, "YES\n": true, "yes": true, "n\n": false, "\n": false,
		"": false, "yesterday\n": false} {
		if got := New(strings.NewReader(answer), io.Discard, io.Discard).Confirm("Continue?"); got != want {
			t.Errorf("answer %q confirms: %t, want %t", answer, got, want)
		}
	}
}

// A message of an object must not reach the terminal as a command.
func TestTextsOfObjectsAreShownNotExecuted(t *testing.T) {
	var b strings.Builder
	if err := NewTable(&Screen{Writer: &b}).Print(Row("a\x1b[2J\x9b31m", "b\x00\a")); err != nil {
		t.Fatal(err)
	}
	screen := &Screen{Writer: &b, terminal: true}
	if n, err := screen.Write([]byte("\x1b[32mok\x1b[0m\x1b[8mhidden\x1b]0;title\a\r\n")); n != 33 || err != nil {
		t.Error(n, err)
	}
	if want := "\x1b[32mok\x1b[0m[8mhidden]0;title\n"; !strings.HasSuffix(b.String(), want) {
		t.Errorf("%q", b.String())
	}
	shown := strings.NewReplacer("\x1b[32m", "", "\x1b[0m", "").Replace(b.String())
	if got := shown + Wrap("c\x1b[2J d\te", "", 80); strings.ContainsAny(got, "\x1b\x00\a\u009b") ||
		!strings.Contains(got, "a[2J") || !strings.Contains(got, "d e") {
		t.Errorf("%q", got)
	}
}

func TestPrintableRemovesControlCharacters(t *testing.T) {
	if got := Printable("a\x1b[2Jb\tc\n"); got != "a[2Jb\tc" {
		t.Errorf("got %q", got)
	}
}
