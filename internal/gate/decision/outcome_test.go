package decision

import (
	"fmt"
	"os"
	"strings"
	"testing"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
)

// TestOutcomesAreDocumented follows docs/design/add-a-gate-outcome.md: each code has a sentence that says more than its
// example leaves out, and a row in the page.
func TestOutcomesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/design/add-a-gate-outcome.md")
	if err != nil {
		t.Fatal(err)
	}
	for code, o := range outcomes {
		c := Cause{code, o.example}
		text := c.Text()
		if text == "" || strings.HasSuffix(text, " ") || strings.Contains(text, "''") || c.Detail() == "" {
			t.Errorf("%s: the sentence of the example is %q", code, text)
		}
		if row := fmt.Sprintf("| `%s` | %s |", code, text); !strings.Contains(string(page), row) {
			t.Errorf("the page lacks the row:\n%s", row)
		}
		switch o.result {
		case "", OutcomeClosed, OutcomeUnknown, OutcomeWaits:
		default:
			t.Errorf("%s: simulations do not know the outcome %q", code, o.result)
		}
	}
	if rows := strings.Count(string(page), "\n| `"); rows != len(outcomes) {
		t.Errorf("the page has %d rows for %d codes", rows, len(outcomes))
	}
}

// TestDetail checks what simulations show in addition to the sentence.
func TestDetail(t *testing.T) {
	for _, c := range []struct {
		cause                 Cause
		text, alone, detailed string
		result                gatingv1.Outcome
	}{
		{cause: Cause{}, result: OutcomeOpen},
		{cause: Cause{Closed, Args{Why: "Gate closed by default"}}, text: "is closed", alone: "Gate closed by default",
			detailed: "is closed: Gate closed by default", result: OutcomeClosed},
		{cause: Cause{AllowsOnly, Args{Revisions: []string{"a", "b"}, Why: "Approved by eve"}}, result: OutcomeClosed,
			text: "allows only revisions 'a', 'b'", alone: "only approved for a, b",
			detailed: "allows only revisions 'a', 'b': Approved by eve"},
		{cause: Cause{Code: NotFound}, text: "is not found", alone: "the gate does not exist",
			detailed: "the gate does not exist", result: OutcomeUnknown},
		{cause: Cause{Code: ChangeUnknown}, text: "has rules, which decide when the change is known",
			alone:    "it has rules, which decide when the change is known",
			detailed: "has rules, which decide when the change is known", result: OutcomeUnknown},
		{cause: Cause{Code: WaveUndecided}, text: "has not decided about the wave of the object yet",
			alone:    "has not decided about the wave of the object yet",
			detailed: "has not decided about the wave of the object yet", result: OutcomeWaits},
		{cause: Cause{Code: "Later"}, text: "Later", alone: "Later", detailed: "Later", result: OutcomeClosed},
	} {
		if c.cause.Text() != c.text || c.cause.Alone() != c.alone || c.cause.Detail() != c.detailed ||
			c.cause.Result() != c.result {
			t.Errorf("%s: got %q, %q, %q, %s", c.cause.Code, c.cause.Text(), c.cause.Alone(), c.cause.Detail(),
				c.cause.Result())
		}
	}
}
