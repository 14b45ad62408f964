package githost

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
)

// bitbucketServer is by https://developer.atlassian.com/server/bitbucket/rest, for Server and Data Center since 7.4.
type bitbucketServer struct {
	*rest
	repo Repository
}

func newBitbucketServer(r *rest, repo Repository) host {
	r.api = *r.api.JoinPath("rest/api/latest/projects", url.PathEscape(repo.Owner), "repos", url.PathEscape(repo.Name))
	return &bitbucketServer{r, repo}
}

func (*bitbucketServer) terms() terms {
	return terms{states: [3]string{"INPROGRESS", "SUCCESSFUL", "FAILED"}, contextMax: 255, descriptionMax: 255,
		bodyMax: 32768, needsURL: true}
}

func (h *bitbucketServer) latest(ctx context.Context, s Status) (*said, error) {
	return latestBuild(ctx, h.rest, []string{"commits", s.Commit, "builds"}, url.Values{"key": {digest(s.Context)}})
}

func (h *bitbucketServer) say(ctx context.Context, s Status) error {
	return h.do(ctx, "the build status", http.MethodPost, []string{"commits", s.Commit, "builds"}, nil,
		bitbucketStatus{State: h.terms().states[s.State], Key: digest(s.Context), Name: s.Context,
			Description: s.Description, URL: s.URL}, nil)
}

type serverRef struct {
	ID         string `json:"id"`
	Repository struct {
		Slug    string `json:"slug"`
		Project struct {
			Key string `json:"key"`
		} `json:"project"`
	} `json:"repository"`
}

type serverPull struct {
	ID          int64
	Version     int
	Title       string
	Description string
	Reviewers   []struct{ User struct{ Name string } }
	ToRef       serverRef
	Links       struct{ Self []struct{ Href string } }
}

func (p serverPull) opened() *opened {
	o := &opened{ID: p.ID, Title: p.Title, Body: p.Description, version: p.Version, reviewers: []any{}}
	if len(p.Links.Self) > 0 {
		o.URL = p.Links.Self[0].Href
	}
	for _, r := range p.Reviewers {
		o.reviewers = append(o.reviewers, map[string]any{"user": map[string]string{"name": r.User.Name}})
	}
	return o
}

func (h *bitbucketServer) ref(branch string) serverRef {
	r := serverRef{ID: "refs/heads/" + branch}
	r.Repository.Slug, r.Repository.Project.Key = h.repo.Name, h.repo.Owner
	return r
}

func (h *bitbucketServer) find(ctx context.Context, r Request) (*opened, error) {
	var answer struct{ Values []serverPull }
	query := url.Values{"state": {"OPEN"}, "direction": {"OUTGOING"}, "at": {"refs/heads/" + r.Head},
		"limit": {strconv.Itoa(pageSize)}}
	if err := h.do(ctx, "the open pull requests", http.MethodGet, []string{"pull-requests"}, query, nil,
		&answer); err != nil {
		return nil, err
	}
	for _, p := range answer.Values {
		to := p.ToRef.Repository
		if p.ToRef.ID == "refs/heads/"+r.Base &&
			without([]string{to.Slug, to.Project.Key}, []string{h.repo.Name, h.repo.Owner}) == nil {
			return p.opened(), nil
		}
	}
	return nil, nil
}

func (h *bitbucketServer) open(ctx context.Context, r Request) (*opened, error) {
	var pull serverPull
	err := h.do(ctx, "the pull request", http.MethodPost, []string{"pull-requests"}, nil, map[string]any{
		"title": r.Title, "description": r.Body, "fromRef": h.ref(r.Head), "toRef": h.ref(r.Base)}, &pull)
	return pull.opened(), err
}

// edit names the version that was read: who changed it meanwhile is not overwritten, but the change fails and
// is tried again.
func (h *bitbucketServer) edit(ctx context.Context, o *opened, r Request) error {
	err := h.do(ctx, "the change of the pull request", http.MethodPut,
		[]string{"pull-requests", strconv.FormatInt(o.ID, 10)}, nil,
		map[string]any{"version": o.version, "title": r.Title, "description": r.Body, "reviewers": o.reviewers}, nil)
	if refused(err).status == http.StatusConflict {
		return failed("the pull request was changed by somebody else meanwhile").Because(err)
	}
	return err
}

func (h *bitbucketServer) label(context.Context, *opened, []string) error { return noLabels() }
