package githost

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// bitbucket is by https://developer.atlassian.com/cloud/bitbucket/rest, version 2.0.
type bitbucket struct {
	*rest
	repo string // workspace/repository
}

func newBitbucket(r *rest, repo Repository) host {
	r.api.Host = "api.bitbucket.org"
	r.api = *r.api.JoinPath("2.0/repositories", url.PathEscape(repo.Owner), url.PathEscape(repo.Name))
	return &bitbucket{r, repo.Owner + "/" + repo.Name}
}

func (*bitbucket) terms() terms {
	return terms{states: [3]string{"INPROGRESS", "SUCCESSFUL", "FAILED"}, contextMax: 255, descriptionMax: 255,
		bodyMax: 32768, needsURL: true}
}

// bitbucketStatus is of Cloud and Server.
type bitbucketStatus struct {
	State       string `json:"state"`
	Key         string `json:"key"`
	Name        string `json:"name"`
	Description string `json:"description"`
	URL         string `json:"url"`
}

func (h *bitbucket) latest(ctx context.Context, s Status) (*said, error) {
	return latestBuild(ctx, h.rest, []string{"commit", s.Commit, "statuses", "build", digest(s.Context)}, nil)
}

// latestBuild reads one status by its key; those that are not there are not found.
func latestBuild(ctx context.Context, r *rest, path []string, query url.Values) (*said, error) {
	var b bitbucketStatus
	err := r.do(ctx, "the status of the commit", http.MethodGet, path, query, nil, &b)
	if refused(err).status == http.StatusNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &said{b.State, b.Description, b.URL}, nil
}

// say keys the status by a digest of its context, as keys are no longer than 40 characters.
func (h *bitbucket) say(ctx context.Context, s Status) error {
	return h.do(ctx, "the commit status", http.MethodPost, []string{"commit", s.Commit, "statuses", "build"}, nil,
		bitbucketStatus{State: h.terms().states[s.State], Key: digest(s.Context), Name: s.Context,
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

func (p bitbucketPull) opened() *opened {
	o := &opened{ID: p.ID, URL: p.Links.HTML.Href, Title: p.Title, Body: p.Description, reviewers: []any{}}
	for _, r := range p.Reviewers {
		o.reviewers = append(o.reviewers, map[string]string{"uuid": r.UUID})
	}
	return o
}

func (h *bitbucket) find(ctx context.Context, r Request) (*opened, error) {
	var answer struct{ Values []bitbucketPull }
	query := url.Values{"q": {fmt.Sprintf(`state="OPEN" AND source.branch.name=%s AND destination.branch.name=%s`,
		quoted(r.Head), quoted(r.Base))}}
	if err := h.do(ctx, "the open pull requests", http.MethodGet, []string{"pullrequests"}, query, nil,
		&answer); err != nil {
		return nil, err
	}
	for _, p := range answer.Values {
		if strings.EqualFold(p.Source.Repository.FullName, h.repo) { // not of a fork that has a branch of the name
			return p.opened(), nil
		}
	}
	return nil, nil
}

// quoted is a text in Bitbucket's language of filters.
func quoted(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

func (h *bitbucket) open(ctx context.Context, r Request) (*opened, error) {
	branch := func(name string) any { return map[string]any{"branch": map[string]string{"name": name}} }
	var pull bitbucketPull
	err := h.do(ctx, "the pull request", http.MethodPost, []string{"pullrequests"}, nil, map[string]any{
		"title": r.Title, "description": r.Body, "source": branch(r.Head), "destination": branch(r.Base)}, &pull)
	return pull.opened(), err
}

func (h *bitbucket) edit(ctx context.Context, o *opened, r Request) error {
	return h.do(ctx, "the change of the pull request", http.MethodPut,
		[]string{"pullrequests", strconv.FormatInt(o.ID, 10)}, nil,
		map[string]any{"title": r.Title, "description": r.Body, "reviewers": o.reviewers}, nil)
}

func (h *bitbucket) label(context.Context, *opened, []string) error { return noLabels() }

func noLabels() error { return failed("pull requests of Bitbucket have no labels").Final() }
