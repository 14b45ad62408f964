package ui

import (
	"context"
	"net/http"
	"strings"

	codes "github.com/sluice-gitops/sluice/internal/text/explain"
)

// explanation is what to do about a reason.
type explanation struct {
	Code          string `json:"code"`
	Reason        string `json:"reason"`
	Text          string `json:"text"` // in Markdown
	NeedsNoAction bool   `json:"needsNoAction,omitempty"`
}

// explain lists the codes of messages with what to do about them. Parameter: q (words).
func (s *Server) explain(_ context.Context, _ *User, r *http.Request) (any, error) {
	words := strings.Fields(strings.ToLower(r.URL.Query().Get("q")))
	found := []explanation{}
entries:
	for _, e := range codes.All() {
		text := strings.ToLower(e.Code + " " + e.Reason + " " + e.Text)
		for _, w := range words {
			if !strings.Contains(text, w) {
				continue entries
			}
		}
		found = append(found, explanation{Code: e.Code, Reason: e.Reason, Text: e.Text,
			NeedsNoAction: e.NeedsNoAction})
	}
	return map[string]any{"codes": found}, nil
}
