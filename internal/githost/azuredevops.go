package githost

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// azureDevOps implements https://learn.microsoft.com/en-us/rest/api/azure/devops/git, version 7.1, for Services and
// Server.
type azureDevOps struct {
	*rest
	web url.URL // web page of the repository
}

func newAzureDevOps(r *rest, repo Repository) host {
	web := *repo.Base.JoinPath(url.PathEscape(repo.Owner), "_git", url.PathEscape(repo.Name))
	r.api = *r.api.JoinPath(url.PathEscape(repo.Owner), "_apis/git/repositories", url.PathEscape(repo.Name))
	r.query = url.Values{"api-version": {"7.1"}}
	return &azureDevOps{r, web}
}

func (*azureDevOps) limits() limits {
	return limits{states: [3]string{"pending", "succeeded", "failed"}, contextMax: 255, descriptionMax: 1024,
		bodyMax: 4000, commentMax: 150_000, labels: true}
}

// azureGenre is the documented genre of our statuses: branch policies refer to a status as GENRE/NAME.
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

func (h *azureDevOps) latestStatus(ctx context.Context, s Status) (*reportedStatus, error) {
	var list struct{ Value []azureStatus }
	query := url.Values{"latestOnly": {"true"}}
	if err := h.do(ctx, "the statuses of the commit", http.MethodGet, []string{"commits", s.Commit, "statuses"}, query,
		nil, &list); err != nil {
		return nil, err
	}
	for _, a := range list.Value {
		if a.Context == (azureContext{azureGenre, s.Context}) {
			return &reportedStatus{state: a.State, description: a.Description, url: a.TargetURL}, nil
		}
	}
	return nil, nil
}

func (h *azureDevOps) setStatus(ctx context.Context, s Status) error {
	return h.do(ctx, "the commit status", http.MethodPost, []string{"commits", s.Commit, "statuses"}, nil,
		azureStatus{State: h.limits().states[s.State], Description: s.Description, TargetURL: s.URL,
			Context: azureContext{azureGenre, s.Context}}, nil)
}

type azurePull struct {
	ID          int64 `json:"pullRequestId"`
	Title       string
	Description string
	Labels      []struct{ Name string }
	ForkSource  *struct{ Name string }
}

func (h *azureDevOps) toRequest(p azurePull) *openRequest {
	id := strconv.FormatInt(p.ID, 10)
	o := &openRequest{ID: p.ID, URL: h.pageOf(id), Title: p.Title, Body: p.Description}
	for _, l := range p.Labels {
		o.Labels = append(o.Labels, l.Name)
	}
	return o
}

func (h *azureDevOps) pageOf(id string) string { return h.web.JoinPath("pullrequest", id).String() }

func (h *azureDevOps) find(ctx context.Context, r Request) (*openRequest, error) {
	var list struct{ Value []azurePull }
	query := url.Values{"searchCriteria.status": {"active"},
		"searchCriteria.sourceRefName": {"refs/heads/" + r.Head},
		"searchCriteria.targetRefName": {"refs/heads/" + r.Base}}
	if err := h.do(ctx, "the open pull requests", http.MethodGet, []string{"pullrequests"}, query, nil,
		&list); err != nil {
		return nil, err
	}
	for _, p := range list.Value {
		if p.ForkSource != nil {
			continue
		}
		return h.readDetails(ctx, p)
	}
	return nil, nil
}

// readDetails reads what lists do not contain: labels, and descriptions of more than 400 characters.
func (h *azureDevOps) readDetails(ctx context.Context, p azurePull) (*openRequest, error) {
	id := strconv.FormatInt(p.ID, 10)
	if err := h.do(ctx, "the pull request", http.MethodGet, []string{"pullrequests", id}, nil, nil, &p); err != nil {
		return nil, err
	}
	var labels struct{ Value []struct{ Name string } }
	err := h.do(ctx, "the labels of the pull request", http.MethodGet, []string{"pullRequests", id, "labels"}, nil, nil,
		&labels)
	p.Labels = labels.Value
	return h.toRequest(p), err
}

func (h *azureDevOps) open(ctx context.Context, r Request) (*openRequest, error) {
	var pull azurePull
	err := h.do(ctx, "the pull request", http.MethodPost, []string{"pullrequests"}, nil, map[string]string{
		"sourceRefName": "refs/heads/" + r.Head, "targetRefName": "refs/heads/" + r.Base, "title": r.Title,
		"description": r.Body}, &pull)
	return h.toRequest(pull), err
}

func (h *azureDevOps) edit(ctx context.Context, o *openRequest, r Request) error {
	return h.do(ctx, "the update of the pull request", http.MethodPatch,
		[]string{"pullrequests", strconv.FormatInt(o.ID, 10)}, nil,
		map[string]string{"title": r.Title, "description": r.Body}, nil)
}

func (h *azureDevOps) addLabels(ctx context.Context, o *openRequest, labels []string) error {
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
