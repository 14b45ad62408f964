package githost

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// bitbucket implements https://developer.atlassian.com/cloud/bitbucket/rest, version 2.0.
type bitbucket struct {
	*rest
	repo string // workspace/repository
}

func newBitbucket(r *rest, repo Repository) host {
	r.api.Host = "api.bitbucket.org"
	r.api = *r.api.JoinPath("2.0/repositories", url.PathEscape(repo.Owner), url.PathEscape(repo.Name))
	return &bitbucket{r, repo.Owner + "/" + repo.Name}
}

func (*bitbucket) limits() limits {
	return limits{states: [3]string{"INPROGRESS", "SUCCESSFUL", "FAILED"}, contextMax: 255, descriptionMax: 255,
		bodyMax: 32768, needsURL: true, plain: true}
}

// bitbucketStatus is the same for Cloud and Server.
type bitbucketStatus struct {
	State       string `json:"state"`
	Key         string `json:"key"`
	Name        string `json:"name"`
	Description string `json:"description"`
	URL         string `json:"url"`
}

func (h *bitbucket) latestStatus(ctx context.Context, s Status) (*reportedStatus, error) {
	return latestBuild(ctx, h.rest, []string{"commit", s.Commit, "statuses", "build", digest(s.Context)}, nil)
}

// latestBuild reads a status by its key; nil if it does not exist.
func latestBuild(ctx context.Context, r *rest, path []string, query url.Values) (*reportedStatus, error) {
	var b bitbucketStatus
	err := r.do(ctx, "the status of the commit", http.MethodGet, path, query, nil, &b)
	if rejectionOf(err).status == http.StatusNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &reportedStatus{state: b.State, description: b.Description, url: b.URL}, nil
}

// setStatus uses a digest of the context as the key, since keys are limited to 40 characters.
func (h *bitbucket) setStatus(ctx context.Context, s Status) error {
	return h.do(ctx, "the commit status", http.MethodPost, []string{"commit", s.Commit, "statuses", "build"}, nil,
		bitbucketStatus{State: h.limits().states[s.State], Key: digest(s.Context), Name: s.Context,
			Description: s.Description, URL: s.URL}, nil)
}

type bitbucketPull struct {
	ID          int64
	Title       string
	Description string
	Reviewers   []struct{ UUID string }
	Source      struct {
		Repository struct {
			FullName string `json:"full_name"`
		}
	}
	Links struct{ HTML struct{ Href string } }
}

func (p bitbucketPull) toRequest() *openRequest {
	o := &openRequest{ID: p.ID, URL: p.Links.HTML.Href, Title: p.Title, Body: p.Description, reviewers: []any{}}
	for _, r := range p.Reviewers {
		o.reviewers = append(o.reviewers, map[string]string{"uuid": r.UUID})
	}
	return o
}

func (h *bitbucket) find(ctx context.Context, r Request) (*openRequest, error) {
	var list struct{ Values []bitbucketPull }
	query := url.Values{"q": {fmt.Sprintf(`state="OPEN" AND source.branch.name=%s AND destination.branch.name=%s`,
		quoted(r.Head), quoted(r.Base))}}
	if err := h.do(ctx, "the open pull requests", http.MethodGet, []string{"pullrequests"}, query, nil,
		&list); err != nil {
		return nil, err
	}
	for _, p := range list.Values {
		if strings.EqualFold(p.Source.Repository.FullName, h.repo) { // not from a fork with the same branch name
			return p.toRequest(), nil
		}
	}
	return nil, nil
}

// quoted returns a text as a literal of Bitbucket's query language.
func quoted(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

func (h *bitbucket) open(ctx context.Context, r Request) (*openRequest, error) {
	branch := func(name string) any { return map[string]any{"branch": map[string]string{"name": name}} }
	var pull bitbucketPull
	err := h.do(ctx, "the pull request", http.MethodPost, []string{"pullrequests"}, nil, map[string]any{
		"title": r.Title, "description": r.Body, "source": branch(r.Head), "destination": branch(r.Base)}, &pull)
	return pull.toRequest(), err
}

func (h *bitbucket) edit(ctx context.Context, o *openRequest, r Request) error {
	return h.do(ctx, "the update of the pull request", http.MethodPut,
		[]string{"pullrequests", strconv.FormatInt(o.ID, 10)}, nil,
		map[string]any{"title": r.Title, "description": r.Body, "reviewers": o.reviewers}, nil)
}

func (h *bitbucket) addLabels(context.Context, *openRequest, []string) error { return noLabels() }

func noLabels() error { return failed("Bitbucket does not support labels on pull requests").Final() }
