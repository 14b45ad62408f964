package githost

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
)

// bitbucketServer implements https://developer.atlassian.com/server/bitbucket/rest for Server and Data Center,
// version 7.4 and later.
type bitbucketServer struct {
	*rest
	repo Repository
}

func newBitbucketServer(r *rest, repo Repository) host {
	r.root = *r.api.JoinPath("rest/api/latest")
	r.api = *r.root.JoinPath("projects", url.PathEscape(repo.Owner), "repos", url.PathEscape(repo.Name))
	return &bitbucketServer{r, repo}
}

func (*bitbucketServer) limits() limits {
	return limits{states: [3]string{"INPROGRESS", "SUCCESSFUL", "FAILED"}, contextMax: 255, descriptionMax: 255,
		bodyMax: 32768, needsURL: true, plain: true}
}

func (h *bitbucketServer) latestStatus(ctx context.Context, s Status) (*reportedStatus, error) {
	return latestBuild(ctx, h.rest, []string{"commits", s.Commit, "builds"}, url.Values{"key": {digest(s.Context)}})
}

func (h *bitbucketServer) setStatus(ctx context.Context, s Status) error {
	return h.do(ctx, "the build status", http.MethodPost, []string{"commits", s.Commit, "builds"}, nil,
		bitbucketStatus{State: h.limits().states[s.State], Key: digest(s.Context), Name: s.Context,
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

func (p serverPull) toRequest() *openRequest {
	o := &openRequest{ID: p.ID, Title: p.Title, Body: p.Description, version: p.Version, reviewers: []any{}}
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

func (h *bitbucketServer) find(ctx context.Context, r Request) (*openRequest, error) {
	var list struct{ Values []serverPull }
	query := url.Values{"state": {"OPEN"}, "direction": {"OUTGOING"}, "at": {"refs/heads/" + r.Head},
		"limit": {strconv.Itoa(pageSize)}}
	if err := h.do(ctx, "the open pull requests", http.MethodGet, []string{"pull-requests"}, query, nil,
		&list); err != nil {
		return nil, err
	}
	for _, p := range list.Values {
		to := p.ToRef.Repository
		if p.ToRef.ID == "refs/heads/"+r.Base &&
			missingFrom([]string{to.Slug, to.Project.Key}, []string{h.repo.Name, h.repo.Owner}) == nil {
			return p.toRequest(), nil
		}
	}
	return nil, nil
}

func (h *bitbucketServer) open(ctx context.Context, r Request) (*openRequest, error) {
	var pull serverPull
	err := h.do(ctx, "the pull request", http.MethodPost, []string{"pull-requests"}, nil, map[string]any{
		"title": r.Title, "description": r.Body, "fromRef": h.ref(r.Head), "toRef": h.ref(r.Base)}, &pull)
	return pull.toRequest(), err
}

// edit sends the version that was read, so that a concurrent change is not overwritten: the update fails and is
// retried.
func (h *bitbucketServer) edit(ctx context.Context, o *openRequest, r Request) error {
	err := h.do(ctx, "the update of the pull request", http.MethodPut,
		[]string{"pull-requests", strconv.FormatInt(o.ID, 10)}, nil,
		map[string]any{"version": o.version, "title": r.Title, "description": r.Body, "reviewers": o.reviewers}, nil)
	if rejectionOf(err).status == http.StatusConflict {
		return failed("the pull request was changed concurrently").Because(err)
	}
	return err
}

func (h *bitbucketServer) addLabels(context.Context, *openRequest, []string) error { return noLabels() }
