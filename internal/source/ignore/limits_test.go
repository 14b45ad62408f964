package ignore

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// numbered returns n different rules.
func numbered(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "# %d\n/file-%d\n\n", i, i)
	}
	return text.String()
}

func TestRulesAreBounded(t *testing.T) {
	most, more, none := numbered(MaxRules), numbered(MaxRules+1), ""
	inDir := with(newRules(nil), numbered(MaxRules-1)).Enter("a").Enter("b\n")
	for name, c := range map[string]struct {
		add  func() (Rules, error)
		want string
	}{
		"most rules of spec.ignore": {add: func() (Rules, error) { return New(&most) }},
		"spec.ignore": {add: func() (Rules, error) { return New(&more) },
			want: "spec.ignore exceeds the limit of 5000 rules for a directory"},
		"most rules of a file": {add: func() (Rules, error) { return newRules(nil).With(most) }},
		"file": {add: func() (Rules, error) { return newRules(nil).With(more) },
			want: `".sourceignore" exceeds the limit of 5000 rules for a directory`},
		"file below a spec.ignore without rules": {
			add:  func() (Rules, error) { return newRules(&none).Enter("a").With(more) },
			want: `"a/.sourceignore" exceeds the limit of 5000 rules for a directory`},
		"most rules of two files": {add: func() (Rules, error) { return inDir.With("x") }},
		"two files": {add: func() (Rules, error) { return inDir.With("x\ny") },
			want: `"a/b\n/.sourceignore" exceeds the limit of 5000 rules for a directory`},
		"file that does not count": {
			add: func() (Rules, error) { return newRules(&most).Enter("a").With(more) }},
		"file and spec.ignore": {add: func() (Rules, error) { return newRules(&most).With("x") },
			want: `".sourceignore" exceeds the limit of 5000 rules for a directory`},
		"long comment": {add: func() (Rules, error) { return newRules(nil).With("#" + strings.Repeat("x", MaxFile)) },
			want: `".sourceignore" exceeds the limit of 1048576 bytes`},
		"longest comment": {
			add: func() (Rules, error) { return newRules(nil).With("#" + strings.Repeat("x", MaxFile-1)) }},
	} {
		_, err := c.add()
		if c.want == "" && err == nil {
			continue
		}
		if limit := new(LimitError); !errors.As(err, &limit) || err.Error() != c.want {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}
