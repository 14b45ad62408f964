package excerpt

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTextsAreCutAtWholeCharacters(t *testing.T) {
	for what, c := range map[string]struct{ got, want string }{
		"bytes: it fits":            {got: Bytes("äö", 4), want: "äö"},
		"bytes: it does not":        {got: Bytes("äöü", 5), want: "ä…"},
		"bytes: amid a character":   {got: Bytes("aöü€", 5), want: "a…"},
		"bytes: no room":            {got: Bytes("äöü", 1), want: "…"},
		"chars: it fits":            {got: Chars("äöü", 3), want: "äöü"},
		"chars: it does not":        {got: Chars("äöüß", 3), want: "äö…"},
		"chars: no blank at an end": {got: Chars("ab cd", 4), want: "ab…"},
		"chars: no room":            {got: Chars("ab", 0), want: ""},
		"line: white space":         {got: Line(" a\tb\r\n\n c ", 99), want: "a b c"},
		"line: what steers":         {got: Line("a\x1b[31mb\x00\u202ec", 99), want: "a [31mb c"},
		"line: bad bytes":           {got: Line("a\xffb", 99), want: "a?b"},
		"line: too long":            {got: Line("aa\nbb", 4), want: "a…"},
	} {
		if c.got != c.want {
			t.Errorf("%s: got %q, want %q", what, c.got, c.want)
		}
	}
}

func FuzzExcerpts(f *testing.F) {
	f.Add("plain", 3)
	f.Add("aö€\U0001F600", 5)
	f.Add("a\xff\n\x1b", 2)
	f.Fuzz(func(t *testing.T, text string, most int) {
		most = max(most, len("…")) % 1000
		if most < len("…") {
			return
		}
		if got := Bytes(text, most); len(got) > most || utf8.ValidString(text) && !utf8.ValidString(got) {
			t.Errorf("%q in %d bytes is %q", text, most, got)
		}
		if got := Chars(text, most); utf8.RuneCountInString(got) > most {
			t.Errorf("%q in %d characters is %q", text, most, got)
		}
		if got := Line(text, most); len(got) > most || !utf8.ValidString(got) || strings.ContainsAny(got, "\n\r\x1b") {
			t.Errorf("the line of %q in %d bytes is %q", text, most, got)
		}
	})
}

func TestNounsAgreeWithNumbers(t *testing.T) {
	for n, want := range map[int]string{0: "0 input sets", 1: "1 input set", 2: "2 input sets"} {
		if got := Count(n, "input set"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
