package git

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

func TestIgnoreRulesOfCommitsAreBounded(t *testing.T) {
	const hint = "Use fewer rules: one for a directory excludes everything in it"
	g := testenv.NewGit(t)
	many := strings.Repeat("a\n", 5001)
	for text, want := range map[string]string{
		many:                           `"dir/.sourceignore" exceeds the limit of 5000 rules for a directory. ` + hint,
		strings.Repeat("#", 1<<20+1):   `".sourceignore" exceeds the limit of 1048576 bytes. ` + hint,
		strings.Repeat("a\n", 5_000-1): "",
	} {
		g.Commit("app", map[string]string{"dir/.sourceignore": text, "dir/a.yaml": "a"})
		v := open(t)
		_, err := v.Tree(t.Context(), updated(t, v, Remote{URL: g.URL + "/app"}, Reference{Branch: "main"}), Options{})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	v := open(t)
	_, err := v.Tree(t.Context(), updated(t, v, Remote{URL: g.URL + "/app"}, Reference{Branch: "main"}),
		Options{Ignore: &many})
	wantHint(t, "spec.ignore", err, hint)
}

func TestCanceledContextEndsTree(t *testing.T) {
	g := testenv.NewGit(t)
	files := map[string]string{}
	for i := range 3_000 {
		files[fmt.Sprint("file-", i)] = "x"
	}
	g.Commit("app", files)
	v := open(t)
	rev := updated(t, v, Remote{URL: g.URL + "/app"}, Reference{Branch: "main"})
	if _, err := v.Tree(testenv.CanceledAfter(t.Context(), 1_000), rev, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
