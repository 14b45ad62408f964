package mcp

import (
	"context"
	"fmt"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sluice-gitops/sluice/internal/text/explain"
	"github.com/sluice-gitops/sluice/internal/ui"
)

const (
	defaultPassages = 3
	maxPassages     = 10
)

func (s *Server) addDocs() {
	add(s, tool{name: "explain", title: "Explain a code or a reason", isOffline: true,
		text: "Explain a code such as SLU-1101, or the reason of a condition or an event: cause, check and cure.",
		output: fields(map[string]*jsonschema.Schema{"code": text(""), "reason": text(""),
			"text": list("paragraphs", text(""))}),
	}, s.explain)
	add(s, s.searchTool("search_docs"), s.searchDocs)
}

func (s *Server) explain(_ context.Context, _ *ui.User, in struct {
	Code string `json:"code" jsonschema:"such as SLU-1101 or GitOperationFailed"`
}) (found, error) {
	entry, ok := explain.Find(in.Code)
	if !ok {
		return found{}, fmt.Errorf("nothing is known about %q: search the documentation with search_docs", in.Code)
	}
	return found{value: map[string]any{"code": entry.Code, "reason": entry.Reason, "text": entry.Plain()}}, nil
}

func (s *Server) searchTool(name string) tool {
	return tool{name: name, title: "Search the documentation", isOffline: true,
		text: "Search the documentation of this version of Sluice, offline.",
		output: fields(map[string]*jsonschema.Schema{"passages": list("best first",
			fields(map[string]*jsonschema.Schema{"page": text("such as docs/gate.md"), "heading": text(""),
				"text": text("in Markdown"), "score": number("")}))})}
}

type searchIn struct {
	Query string `json:"query" jsonschema:"words"`
	Limit int    `json:"limit,omitempty" jsonschema:"passages, at most 10; 3 by default"`
}

func (s *Server) searchDocs(_ context.Context, _ *ui.User, in searchIn) (found, error) {
	limit := in.Limit
	if limit == 0 {
		limit = defaultPassages
	}
	if limit < 0 || limit > maxPassages {
		return found{}, fmt.Errorf("'limit' must be between 1 and %d", maxPassages)
	}
	return found{value: map[string]any{"passages": s.index.search(in.Query, limit)}}, nil
}
