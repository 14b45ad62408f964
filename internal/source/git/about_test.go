package git

import (
	"strings"
	"testing"
	"time"
	"unicode"
)

func TestParseCommit(t *testing.T) {
	for name, c := range map[string]struct {
		data string
		want Commit
	}{
		"regular commit": {
			data: "tree 4b\nparent 5c\nauthor A U Thor <a@example.com> 1700000000 +0000\n" +
				"committer C <c@example.com> 1700000000 +0000\n\nFix it\nfor good\n\nWhy: so.\n",
			want: Commit{Author: "A U Thor <a@example.com>", Subject: "Fix it for good",
				At: time.Unix(1700000000, 0).UTC()},
		},
		"time of the committer": {data: "author A <a@b> 1 +0\ncommitter C <c@d> 7 +0200\n\nx",
			want: Commit{Author: "A <a@b>", Subject: "x", At: time.Unix(7, 0).UTC()}},
		"impossible time": {data: "author A <a@b> 1 +0\ncommitter C <c@d> 99999999999999 +0\n\nx",
			want: Commit{Author: "A <a@b>", Subject: "x"}},
		"signed commit": {
			data: "tree 4b\nauthor A <a@b> 1 +0\ngpgsig -----BEGIN\n \n author X <x@y> 1 +0\n\nSigned\n",
			want: Commit{Author: "A <a@b>", Subject: "Signed"},
		},
		"malformed author": {data: "tree 4b\nauthor malformed\n\nx", want: Commit{Author: "", Subject: "x"}},
		"no message":       {data: "tree 4b\nauthor A <a@b> 1 +0\n", want: Commit{Author: "A <a@b>", Subject: ""}},
		"terminal escapes": {data: "author \x1b[31mA <a@b> 1 +0\n\n\x1b]0;x\x07y",
			want: Commit{Author: "[31mA <a@b>", Subject: "]0;x y"}},
		"author in message": {data: "tree 4b\n\nauthor A <a@b> 1 +0",
			want: Commit{Author: "", Subject: "author A <a@b> 1 +0"}},
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
