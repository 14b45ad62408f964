package decision

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
)

// examples are arguments of codes whose sentences have some.
var examples = map[*Code]Args{
	ClosedByCheck:     {Message: "no object matches"},
	ClosedByFailure:   {Why: "Gate closed: revision 'main@sha1:0c1d' failed"},
	AllowsOnly:        {Revisions: []string{"main@sha1:0c1d"}},
	AllowsPromoted:    {Revisions: []string{"sha1:0c1d"}, Message: "allows only revision 'main@sha1:0c1d'"},
	Refuses:           {Revision: "main@sha1:0c1d", Message: "Kustomization 'apps/web' is unhealthy"},
	RefusesForObject:  {Revision: "main@sha1:0c1d", Message: "'ada' made Kustomization 'apps/web' go back"},
	HoldsAll:          {Revision: "main@sha1:0c1d", Message: "Kustomization 'apps/web' is unhealthy"},
	DeniedByRule:      {Rule: "no-claims", Message: "ask the storage team"},
	RequiresApprovals: {Rule: "four-eyes", Count: 2},
	UnknownOutcome:    {Rule: "new", Message: "later"},
	RulesFailed:       {Message: "its rule 'broken' cannot be evaluated: no such key: nothing"},
	ChangeFailed:      {Message: "the build failed"},
	WavesInvalid:      {Message: "spec.waves divides 1001 objects, but at most 1000 can be divided"},
	WaveOtherRevision: {Revision: "main@sha1:0c1d"},
	WaveObstructed:    {Wave: "canary", Message: "Kustomization 'apps/web' is suspended"},
	WaveFull:          {Wave: "canary", Max: "2"},
	WaveBusy:          {Wave: "canary"},
	WaveSoaks:         {Wave: "eu", Current: "canary", Until: time.Unix(1795255200, 0)},
	WaveNotReady:      {Current: "canary"},
}

// TestOutcomesAreDocumented follows docs/design/add-a-gate-outcome.md: each code has a sentence without arguments that
// are left out, and a row in the page.
func TestOutcomesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/design/add-a-gate-outcome.md")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, code := range codes {
		c := Cause{code, examples[code]}
		for _, text := range []string{c.Text(), c.Detail(), c.Alone()} {
			isEmpty := text == "" || strings.Contains(text, "''")
			if isEmpty && code.alone != "{why}" || strings.ContainsAny(text, "{}") {
				t.Errorf("%s: the text of the example is %q", code.Name, text)
			}
		}
		if row := fmt.Sprintf("| `%s` | %s |", code.Name, c.Text()); !strings.Contains(string(page), row) {
			t.Errorf("the page lacks the row:\n%s", row)
		}
		names[code.Name] = true
	}
	if rows := strings.Count(string(page), "\n| `"); rows != len(codes) || len(names) != len(codes) {
		t.Errorf("the page has %d rows for %d codes with %d names", rows, len(codes), len(names))
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
	} {
		if c.cause.Text() != c.text || c.cause.Alone() != c.alone || c.cause.Detail() != c.detailed ||
			c.cause.Result() != c.result {
			t.Errorf("%q: got %q, %q, %q, %s", c.text, c.cause.Text(), c.cause.Alone(), c.cause.Detail(),
				c.cause.Result())
		}
	}
}
