package excerpt

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTextsAreCutAtWholeCharacters(t *testing.T) {
	for what, c := range map[string]struct{ got, want string }{
		"bytes: it fits":            {Bytes("äö", 4), "äö"},
		"bytes: it does not":        {Bytes("äöü", 5), "ä…"},
		"bytes: amid a character":   {Bytes("aöü€", 5), "a…"},
		"bytes: no room":            {Bytes("äöü", 1), "…"},
		"chars: it fits":            {Chars("äöü", 3), "äöü"},
		"chars: it does not":        {Chars("äöüß", 3), "äö…"},
		"chars: no blank at an end": {Chars("ab cd", 4), "ab…"},
		"chars: no room":            {Chars("ab", 0), ""},
		"line: white space":         {Line(" a\tb\r\n\n c ", 99), "a b c"},
		"line: what steers":         {Line("a\x1b[31mb\x00\u202ec", 99), "a [31mb c"},
		"line: bad bytes":           {Line("a\xffb", 99), "a?b"},
		"line: too long":            {Line("aa\nbb", 4), "a…"},
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
