package githost

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// gitea is by the OpenAPI document that every Gitea and Forgejo serves at /api/swagger, version 1.
type gitea struct{ *rest }

func newGitea(r *rest, repo Repository) host {
	r.api = *r.api.JoinPath("api/v1/repos", url.PathEscape(repo.Owner), url.PathEscape(repo.Name))
	return &gitea{r}
}

func (*gitea) terms() terms {
	return terms{states: [3]string{"pending", "success", "failure"}, contextMax: 255, descriptionMax: 255,
		bodyMax: 65535, labels: true}
}

// latest asks for the combined status, which has the latest of each context.
func (h *gitea) latest(ctx context.Context, s Status) (*said, error) {
	type status struct {
		Status, Context, Description string
		TargetURL                    string `json:"target_url"`
	}
	found, err := first(func(page int) ([]status, bool, error) {
		var answer struct{ Statuses []status }
		more, err := h.page(ctx, "the statuses of the commit", []string{"commits", s.Commit, "status"}, nil, "limit",
			page, &answer)
		return answer.Statuses, more, err
	}, func(g status) bool { return g.Context == s.Context })
	if found == nil {
		return nil, err
	}
	return &said{found.Status, found.Description, found.TargetURL}, nil
}

func (h *gitea) say(ctx context.Context, s Status) error {
	return h.do(ctx, "the commit status", http.MethodPost, []string{"statuses", s.Commit}, nil,
		githubStatus{State: h.terms().states[s.State], Context: s.Context, Description: s.Description,
			TargetURL: s.URL}, nil)
}

// comments are all in one answer: this list has no pages.
func (h *gitea) comments(ctx context.Context, request, _ int) (all []comment, more bool, err error) {
	err = h.do(ctx, "the comments of the pull request", http.MethodGet,
		[]string{"issues", strconv.Itoa(request), "comments"}, nil, nil, &all)
	return all, false, err
}

func (h *gitea) comment(ctx context.Context, request int, body string) error {
	return h.do(ctx, "the comment", http.MethodPost, []string{"issues", strconv.Itoa(request), "comments"}, nil,
		map[string]string{"body": body}, nil)
}

func (h *gitea) recomment(ctx context.Context, _ int, id int64, body string) error {
	return h.do(ctx, "the change of the comment", http.MethodPatch,
		[]string{"issues", "comments", strconv.FormatInt(id, 10)}, nil, map[string]string{"body": body}, nil)
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

// find walks the open pull requests, as no version lets one ask for a branch.
func (h *gitea) find(ctx context.Context, r Request) (*opened, error) {
	found, err := first(func(page int) (all []giteaPull, more bool, err error) {
		query := url.Values{"state": {"open"}, "sort": {"recentupdate"}}
		more, err = h.page(ctx, "the open pull requests", []string{"pulls"}, query, "limit", page, &all)
		return all, more, err
	}, func(p giteaPull) bool {
		fork := p.Head.Repo == nil || p.Base.Repo == nil || p.Head.Repo.FullName != p.Base.Repo.FullName
		return !fork && p.Head.Ref == r.Head && p.Base.Ref == r.Base
	})
	if found == nil {
		return nil, err
	}
	return found.opened(), nil
}

func (h *gitea) open(ctx context.Context, r Request) (*opened, error) {
	var pull githubPull
	err := h.do(ctx, "the pull request", http.MethodPost, []string{"pulls"}, nil,
		map[string]string{"title": r.Title, "head": r.Head, "base": r.Base, "body": r.Body}, &pull)
	return pull.opened(), err
}

func (h *gitea) edit(ctx context.Context, o *opened, r Request) error {
	return h.do(ctx, "the change of the pull request", http.MethodPatch,
		[]string{"pulls", strconv.FormatInt(o.ID, 10)}, nil,
		map[string]string{"title": r.Title, "body": r.Body}, nil)
}

// label creates the labels that the repository has not, as pull requests take IDs.
func (h *gitea) label(ctx context.Context, o *opened, labels []string) error {
	type label struct {
		ID   int64
		Name string
	}
	var ids []int64
	for _, name := range labels {
		l, err := first(func(page int) (all []label, more bool, err error) {
			more, err = h.page(ctx, "the labels of the repository", []string{"labels"}, nil, "limit", page, &all)
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
