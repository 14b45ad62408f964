package ui

import (
	"testing"

	codes "github.com/sluice-gitops/sluice/internal/text/explain"
)

func TestExplainFindsCodesReasonsAndWords(t *testing.T) {
	s := newSite(t, everyone)
	all := codes.All()
	find := func(query string) []explanation {
		return read[struct{ Codes []explanation }](s, "/api/v1/explain?q="+query).Codes
	}
	if got := find(""); len(got) != len(all) {
		t.Errorf("%d codes are listed, there are %d", len(got), len(all))
	}
	for _, query := range []string{all[0].Code, all[0].Reason} {
		if got := find(query); len(got) == 0 || got[0].Code != all[0].Code || got[0].Text != all[0].Text {
			t.Errorf("%s finds %+v", query, got)
		}
	}
	if got := find("no+such+words+anywhere"); len(got) != 0 {
		t.Errorf("words that no text contains find %+v", got)
	}
}
