package git

import (
	"strings"
	"testing"
	"unicode"
)

func TestParseCommit(t *testing.T) {
	for name, c := range map[string]struct {
		data string
		want Commit
	}{
		"regular commit": {
			"tree 4b\nparent 5c\nauthor A U Thor <a@example.com> 1700000000 +0000\n" +
				"committer C <c@example.com> 1700000000 +0000\n\nFix it\nfor good\n\nWhy: so.\n",
			Commit{"A U Thor <a@example.com>", "Fix it for good"},
		},
		"signed commit": {
			"tree 4b\nauthor A <a@b> 1 +0\ngpgsig -----BEGIN\n \n author X <x@y> 1 +0\n\nSigned\n",
			Commit{"A <a@b>", "Signed"},
		},
		"malformed author": {"tree 4b\nauthor malformed\n\nx", Commit{"", "x"}},
		"no message":       {"tree 4b\nauthor A <a@b> 1 +0\n", Commit{"A <a@b>", ""}},
		"terminal escapes": {"author \x1b[31mA <a@b> 1 +0\n\n\x1b]0;x\x07y",
			Commit{"[31mA <a@b>", "]0;x y"}},
		"author in message": {"tree 4b\n\nauthor A <a@b> 1 +0", Commit{"", "author A <a@b> 1 +0"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := parseCommit([]byte(c.data)); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func FuzzParseCommit(f *testing.F) {
	f.Add([]byte("tree 4b\nauthor A <a@b> 1 +0\n\nmessage\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := parseCommit(data)
		for _, text := range []string{c.Author, c.Subject} {
			if len(text) > 1024 || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("%q is too long or not printable", text)
			}
		}
	})
}
