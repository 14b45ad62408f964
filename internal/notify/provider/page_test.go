package provider

import (
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// TestPageAboutProviders does what docs/design/add-a-provider.md says to an overlay of the code, and runs the contract
// suite for the type that the page adds.
func TestPageAboutProviders(t *testing.T) {
	const page = "design/add-a-provider.md"
	files := testenv.Blocks(t, page, "go")
	if len(files) != 1 {
		t.Fatalf("the page has %d files", len(files))
	}
	o := testenv.NewOverlay(t)
	o.Write("internal/notify/provider/ntfy.go", files[0])
	o.Apply(testenv.Blocks(t, page, "diff")...)
	out := o.Test("-run", "^(TestContract.*|TestMarkupIsEscaped)$/^ntfy", "./internal/notify/provider")
	if passed := strings.Count(out, "--- PASS: TestContract"); passed < 5 ||
		!strings.Contains(out, "/ntfy") || !strings.Contains(out, "--- PASS: TestMarkupIsEscaped") {
		t.Errorf("the suite does not cover the type:\n%s", out)
	}
}
