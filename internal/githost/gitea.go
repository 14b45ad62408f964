package githost

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// gitea implements the API that each Gitea and Forgejo documents at /api/swagger, version 1.
type gitea struct{ githubLike }

func newGitea(r *rest, repo Repository) host {
	r.root = *r.api.JoinPath("api/v1")
	r.api = *r.root.JoinPath("repos", url.PathEscape(repo.Owner), url.PathEscape(repo.Name))
	r.size = "limit"
	return &gitea{githubLike{r, repo.Name, repo.Owner}}
}

func (*gitea) limits() limits {
	return limits{states: githubStates, contextMax: 255, descriptionMax: 255,
		bodyMax: 65535, labels: true}
}

// latestStatus reads the combined status, which has the latest status of each context.
func (h *gitea) latestStatus(ctx context.Context, s Status) (*reportedStatus, error) {
	type status struct {
		Status, Context, Description string
		TargetURL                    string `json:"target_url"`
	}
	found, err := first(func(page int) ([]status, bool, error) {
		var combined struct{ Statuses []status }
		more, err := h.page(ctx, "the statuses of the commit", []string{"commits", s.Commit, "status"}, nil, page,
			&combined)
		return combined.Statuses, more, err
	}, func(g status) bool { return g.Context == s.Context })
	if found == nil {
		return nil, err
	}
	return &reportedStatus{state: found.Status, description: found.Description, url: found.TargetURL}, nil
}

// comments returns all comments: this list has no pages.
func (h *gitea) comments(ctx context.Context, request, _ int) (all []comment, more bool, err error) {
	err = h.do(ctx, "the comments of the pull request", http.MethodGet,
		[]string{"issues", strconv.Itoa(request), "comments"}, nil, nil, &all)
	return all, false, err
}

type giteaPull struct {
	githubPull
	Head, Base struct {
		Ref  string
		Repo *struct {
			FullName string `json:"full_name"`
		}
	}
}

// find searches all open pull requests, since the API cannot filter by branch.
func (h *gitea) find(ctx context.Context, r Request) (*openRequest, error) {
	found, err := first(func(page int) (all []giteaPull, more bool, err error) {
		query := url.Values{"state": {"open"}, "sort": {"recentupdate"}}
		more, err = h.page(ctx, "the open pull requests", []string{"pulls"}, query, page, &all)
		return all, more, err
	}, func(p giteaPull) bool {
		isFork := p.Head.Repo == nil || p.Base.Repo == nil || p.Head.Repo.FullName != p.Base.Repo.FullName
		return !isFork && p.Head.Ref == r.Head && p.Base.Ref == r.Base
	})
	if found == nil {
		return nil, err
	}
	return found.toRequest(), nil
}

// addLabels creates labels that the repository does not have, since pull requests need label IDs.
func (h *gitea) addLabels(ctx context.Context, o *openRequest, labels []string) error {
	type label struct {
		ID   int64
		Name string
	}
	var ids []int64
	for _, name := range labels {
		l, err := first(func(page int) (all []label, more bool, err error) {
			more, err = h.page(ctx, "the labels of the repository", []string{"labels"}, nil, page, &all)
			return all, more, err
		}, func(l label) bool { return strings.EqualFold(l.Name, name) })
		if err != nil {
			return err
		}
		if l == nil {
			l = &label{}
			if err := h.do(ctx, "the label", http.MethodPost, []string{"labels"}, nil,
				map[string]string{"name": name, "color": "#0366d6"}, l); err != nil {
				return err
			}
		}
		ids = append(ids, l.ID)
	}
	return h.do(ctx, "the labels of the pull request", http.MethodPost,
		[]string{"issues", strconv.FormatInt(o.ID, 10), "labels"}, nil,
		map[string][]int64{"labels": ids}, nil)
}
