package helm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// TestIndexTakesMemoryOfItsNamespace parses an index that needs more than a namespace may use, and less than there is.
func TestIndexTakesMemoryOfItsNamespace(t *testing.T) {
	var text strings.Builder
	text.WriteString("apiVersion: v1\nentries:\n  app:\n")
	for i := range 12_500 {
		fmt.Fprintf(&text, "  - {version: 1.0.%d, urls: [a]}\n", i)
	}
	budget := guard.NewBudget(4 << 20)
	ctx := guard.WithBudget(t.Context(), budget)
	if _, err := ParseIndex(ctx, strings.NewReader(text.String()), indexLimit); err != nil {
		t.Errorf("without a namespace: %v", err)
	}
	budget = guard.NewBudget(4 << 20)
	ctx = guard.WithOwner(guard.WithBudget(t.Context(), budget), "hostile")
	_, err := ParseIndex(ctx, strings.NewReader(text.String()), indexLimit)
	if f := fault.As(err); f == nil || f.Reason != guard.ReasonTooLarge {
		t.Errorf("got %v", err)
	}
	if used := budget.Used(); used > 0 {
		t.Errorf("%d bytes are not released", used)
	}
}
