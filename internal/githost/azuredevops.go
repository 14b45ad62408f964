package githost

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// azureDevOps is by https://learn.microsoft.com/en-us/rest/api/azure/devops/git, version 7.1, for Services and Server.
type azureDevOps struct {
	*rest
	web url.URL // of the repository, for people
}

func newAzureDevOps(r *rest, repo Repository) host {
	web := *repo.Base.JoinPath(url.PathEscape(repo.Owner), "_git", url.PathEscape(repo.Name))
	r.api = *r.api.JoinPath(url.PathEscape(repo.Owner), "_apis/git/repositories", url.PathEscape(repo.Name))
	r.query = url.Values{"api-version": {"7.1"}}
	return &azureDevOps{r, web}
}

func (*azureDevOps) terms() terms {
	return terms{states: [3]string{"pending", "succeeded", "failed"}, contextMax: 255, descriptionMax: 1024,
		bodyMax: 4000, labels: true}
}

// azureGenre stands before the names of our statuses: branch policies name a status as GENRE/NAME, and have this one.
const azureGenre = "fluxcd"

type azureStatus struct {
	State       string       `json:"state"`
	Description string       `json:"description"`
	TargetURL   string       `json:"targetUrl,omitempty"`
	Context     azureContext `json:"context"`
}

type azureContext struct {
	Genre string `json:"genre"`
	Name  string `json:"name"`
}

func (h *azureDevOps) latest(ctx context.Context, s Status) (*said, error) {
	var answer struct{ Value []azureStatus }
	query := url.Values{"latestOnly": {"true"}}
	if err := h.do(ctx, "the statuses of the commit", http.MethodGet, []string{"commits", s.Commit, "statuses"}, query,
		nil, &answer); err != nil {
		return nil, err
	}
	for _, a := range answer.Value {
		if a.Context == (azureContext{azureGenre, s.Context}) {
			return &said{a.State, a.Description, a.TargetURL}, nil
		}
	}
	return nil, nil
}

func (h *azureDevOps) say(ctx context.Context, s Status) error {
	return h.do(ctx, "the commit status", http.MethodPost, []string{"commits", s.Commit, "statuses"}, nil,
		azureStatus{h.terms().states[s.State], s.Description, s.URL, azureContext{azureGenre, s.Context}}, nil)
}

type azurePull struct {
	ID          int64 `json:"pullRequestId"`
	Title       string
	Description string
	Labels      []struct{ Name string }
	ForkSource  *struct{ Name string }
}

func (h *azureDevOps) opened(p azurePull) *opened {
	id := strconv.FormatInt(p.ID, 10)
	o := &opened{ID: p.ID, URL: h.pageOf(id), Title: p.Title, Body: p.Description}
	for _, l := range p.Labels {
		o.Labels = append(o.Labels, l.Name)
	}
	return o
}

func (h *azureDevOps) pageOf(id string) string { return h.web.JoinPath("pullrequest", id).String() }

func (h *azureDevOps) find(ctx context.Context, r Request) (*opened, error) {
	var answer struct{ Value []azurePull }
	query := url.Values{"searchCriteria.status": {"active"},
		"searchCriteria.sourceRefName": {"refs/heads/" + r.Head},
		"searchCriteria.targetRefName": {"refs/heads/" + r.Base}}
	if err := h.do(ctx, "the open pull requests", http.MethodGet, []string{"pullrequests"}, query, nil,
		&answer); err != nil {
		return nil, err
	}
	for _, p := range answer.Value {
		if p.ForkSource != nil {
			continue
		}
		return h.whole(ctx, p)
	}
	return nil, nil
}

// whole reads what lists leave out: labels, and descriptions beyond 400 characters.
func (h *azureDevOps) whole(ctx context.Context, p azurePull) (*opened, error) {
	id := strconv.FormatInt(p.ID, 10)
	if err := h.do(ctx, "the pull request", http.MethodGet, []string{"pullrequests", id}, nil, nil, &p); err != nil {
		return nil, err
	}
	var labels struct{ Value []struct{ Name string } }
	err := h.do(ctx, "the labels of the pull request", http.MethodGet, []string{"pullRequests", id, "labels"}, nil, nil,
		&labels)
	p.Labels = labels.Value
	return h.opened(p), err
}

func (h *azureDevOps) open(ctx context.Context, r Request) (*opened, error) {
	var pull azurePull
	err := h.do(ctx, "the pull request", http.MethodPost, []string{"pullrequests"}, nil, map[string]string{
		"sourceRefName": "refs/heads/" + r.Head, "targetRefName": "refs/heads/" + r.Base, "title": r.Title,
		"description": r.Body}, &pull)
	return h.opened(pull), err
}

func (h *azureDevOps) edit(ctx context.Context, o *opened, r Request) error {
	return h.do(ctx, "the change of the pull request", http.MethodPatch,
		[]string{"pullrequests", strconv.FormatInt(o.ID, 10)}, nil,
		map[string]string{"title": r.Title, "description": r.Body}, nil)
}

func (h *azureDevOps) label(ctx context.Context, o *opened, labels []string) error {
	for _, l := range labels {
		err := h.do(ctx, "the label of the pull request", http.MethodPost,
			[]string{"pullRequests", strconv.FormatInt(o.ID, 10), "labels"}, nil,
			map[string]string{"name": strings.TrimSpace(l)}, nil)
		if err != nil {
			return err
		}
	}
	return nil
}
