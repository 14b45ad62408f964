package helm

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

func TestHelmIgnoreIsBounded(t *testing.T) {
	large := strings.Repeat("# "+strings.Repeat("x", 61)+"\n", 1<<10)
	for name, c := range map[string]struct{ text, want string }{
		"large file":   {text: large + "#", want: `"app/.helmignore" exceeds 65536 bytes`},
		"many rules":   {text: strings.Repeat("a\n", 5001), want: `"app/.helmignore" has more than 5000 lines`},
		"most rules":   {text: strings.Repeat("a\n", 5000)},
		"largest file": {text: large},
		"negation": {text: "!templates/", want: "Chart.yaml exists, but .helmignore leaves it out: remove the rule. " +
			"A rule with '!'"},
		"ignored chart":   {text: "*.yaml", want: "Chart.yaml exists, but .helmignore leaves it out"},
		"unsupported one": {text: "**", want: ".helmignore: double-star (**) syntax is not supported"},
	} {
		tree := artifact.FromMap(map[string]string{"app/Chart.yaml": chartYAML, "app/.helmignore": c.text})
		_, err := loadDir(t.Context(), tree, "app", DefaultLimits)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

// TestCanceledContextEndsLoading loads a chart with many files that are ignored, and thus not counted.
func TestCanceledContextEndsLoading(t *testing.T) {
	files := map[string]string{"Chart.yaml": chartYAML, ".helmignore": "file-*\n"}
	for i := range 5_000 {
		files[fmt.Sprint("file-", i)] = ""
	}
	_, err := loadDir(testenv.CanceledAfter(t.Context(), 1_000), artifact.FromMap(files), ".", DefaultLimits)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
