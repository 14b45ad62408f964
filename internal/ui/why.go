package ui

import (
	"context"
	"net/http"
	"strings"

	"github.com/sluice-gitops/sluice/internal/tracing"
	"github.com/sluice-gitops/sluice/internal/ui/state"
)

// why answers where a change is. Parameter: q, which is a commit, a revision, a pull request, an image, a workload, or
// words that name objects.
func (s *Server) why(ctx context.Context, u *User, r *http.Request) (any, error) {
	q := strings.TrimSpace(r.URL.Query().Get("q"))
	may, err := s.filter(ctx, u)
	if err != nil {
		return nil, err
	}
	turns := &s.large
	if state.NamesImage(q) {
		turns = &s.heavy
	}
	done, err := turns.take(ctx, u.Name)
	if err != nil {
		return nil, err
	}
	defer done()
	a, err := state.Why(ctx, u.Client, s.Model.List(may), q)
	if err != nil {
		return nil, err
	}
	for _, c := range a.Chains {
		for i := range c.Steps {
			if id := c.Steps[i].Trace; id != "" {
				c.Steps[i].URL = tracing.Link(s.TraceURL, id)
			}
		}
	}
	return a, nil
}
