package githost

import (
	"context"
	"net/http"
	"net/url"
)

func (h *gitlab) branches(ctx context.Context, cursor string) ([]Ref, string, error) {
	return h.refs(ctx, "the branches", []string{"repository", "branches"}, cursor)
}

func (h *gitlab) tags(ctx context.Context, cursor string) ([]Ref, string, error) {
	return h.refs(ctx, "the tags", []string{"repository", "tags"}, cursor)
}

func (h *gitlab) requests(ctx context.Context, cursor string) ([]ListedRequest, string, error) {
	type merge struct {
		ID     int64 `json:"iid"`
		Title  string
		Branch string `json:"source_branch"`
		Base   string `json:"target_branch"`
		Source int64  `json:"source_project_id"`
		Target int64  `json:"target_project_id"`
		SHA    string
		Author struct{ Username string }
		Labels []string
	}
	all, next, err := numbered(cursor, func(n int) (all []merge, more bool, err error) {
		more, err = h.page(ctx, "the open merge requests", []string{"merge_requests"}, url.Values{"state": {"opened"}},
			n, &all)
		return all, more, err
	})
	requests := make([]ListedRequest, len(all))
	for i, m := range all {
		requests[i] = ListedRequest{Number: m.ID, Title: m.Title, Branch: m.Branch, Commit: m.SHA,
			Author: m.Author.Username, Login: m.Author.Username, Labels: m.Labels, Base: m.Base,
			Fork: m.Source != m.Target}
	}
	return requests, next, err
}

func (h *gitlab) environments(ctx context.Context, cursor string) ([]Environment, string, error) {
	return numbered(cursor, func(n int) (all []Environment, more bool, err error) {
		more, err = h.page(ctx, "the environments", []string{"environments"}, url.Values{"states": {"available"}},
			n, &all)
		return all, more, err
	})
}

// deployed reads the newest deployment that runs, and else the newest that succeeded.
func (h *gitlab) deployed(ctx context.Context, e Environment) (Environment, bool, error) {
	for _, status := range []string{"running", "success"} {
		var all []struct {
			Ref, SHA string
			User     *struct{ Username string }
		}
		query := url.Values{"environment": {e.Name}, "status": {status}, "order_by": {"id"}, "sort": {"desc"},
			"per_page": {"1"}}
		if err := h.do(ctx, "the deployments of an environment", http.MethodGet, []string{"deployments"}, query, nil,
			&all); err != nil {
			return e, false, err
		}
		if len(all) > 0 {
			e.Branch, e.Commit = all[0].Ref, all[0].SHA
			if all[0].User != nil {
				e.DeployedBy = all[0].User.Username
			}
			return e, true, nil
		}
	}
	return e, false, nil
}
