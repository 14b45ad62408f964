package githost

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// gitlab implements https://docs.gitlab.com/api, version 4.
type gitlab struct {
	*rest
	repo Repository
}

func newGitLab(r *rest, repo Repository) host {
	// The URL contains the ID of the project, or its path as one segment.
	project := repo.Name
	if repo.Owner != "" {
		project = repo.Owner + "/" + repo.Name
	}
	r.root = *r.api.JoinPath("api/v4")
	r.api = *r.root.JoinPath("projects", url.PathEscape(project))
	return &gitlab{r, repo}
}

func (*gitlab) limits() limits {
	return limits{states: [3]string{"pending", "success", "failed"}, contextMax: 255, descriptionMax: 255,
		bodyMax: 1_000_000, labels: true}
}

type gitlabStatus struct {
	Status      string `json:"status"`
	Name        string `json:"name"`
	Description string `json:"description"`
	TargetURL   string `json:"target_url"`
}

func (h *gitlab) latestStatus(ctx context.Context, s Status) (*reportedStatus, error) {
	var all []gitlabStatus
	query := url.Values{"name": {s.Context}, "per_page": {"1"}, "order_by": {"id"}, "sort": {"desc"}}
	err := h.do(ctx, "the statuses of the commit", http.MethodGet,
		[]string{"repository", "commits", s.Commit, "statuses"}, query, nil, &all)
	if err != nil || len(all) == 0 || all[0].Name != s.Context {
		return nil, err
	}
	return &reportedStatus{state: all[0].Status, description: all[0].Description, url: all[0].TargetURL}, nil
}

func (h *gitlab) setStatus(ctx context.Context, s Status) error {
	body := map[string]string{"state": h.limits().states[s.State], "name": s.Context, "description": s.Description}
	if s.URL != "" {
		body["target_url"] = s.URL
	}
	err := h.do(ctx, "the commit status", http.MethodPost, []string{"statuses", s.Commit}, nil, body, nil)
	// GitLab rejects a change from pending to pending, even with a new description. The state is already set.
	if r := rejectionOf(err); r.status == http.StatusBadRequest && s.State == Pending &&
		strings.Contains(r.text, "Cannot transition status") {
		return nil
	}
	return err
}

func (h *gitlab) comments(ctx context.Context, request, page int) (all []comment, more bool, err error) {
	more, err = h.page(ctx, "the notes of the merge request", h.notes(request), nil, page, &all)
	return all, more, err
}

func (h *gitlab) createComment(ctx context.Context, request int, body string) error {
	return h.do(ctx, "the note", http.MethodPost, h.notes(request), nil, map[string]string{"body": body}, nil)
}

func (h *gitlab) updateComment(ctx context.Context, request int, id int64, body string) error {
	return h.do(ctx, "the update of the note", http.MethodPut, append(h.notes(request), strconv.FormatInt(id, 10)), nil,
		map[string]string{"body": body}, nil)
}

func (*gitlab) notes(request int) []string {
	return []string{"merge_requests", strconv.Itoa(request), "notes"}
}

type gitlabMerge struct {
	ID          int64  `json:"iid"`
	URL         string `json:"web_url"`
	Title       string
	Description string
	Labels      []string
	Source      int64 `json:"source_project_id"`
	Target      int64 `json:"target_project_id"`
}

func (m gitlabMerge) toRequest() *openRequest {
	return &openRequest{ID: m.ID, URL: m.URL, Title: m.Title, Body: m.Description, Labels: m.Labels}
}

func (h *gitlab) find(ctx context.Context, r Request) (*openRequest, error) {
	var all []gitlabMerge
	query := url.Values{"state": {"opened"}, "source_branch": {r.Head}, "target_branch": {r.Base}}
	if err := h.do(ctx, "the open merge requests", http.MethodGet, []string{"merge_requests"}, query, nil,
		&all); err != nil {
		return nil, err
	}
	for _, m := range all {
		if m.Source == m.Target { // not from a fork with the same branch name
			return m.toRequest(), nil
		}
	}
	return nil, nil
}

func (h *gitlab) open(ctx context.Context, r Request) (*openRequest, error) {
	var m gitlabMerge
	err := h.do(ctx, "the merge request", http.MethodPost, []string{"merge_requests"}, nil, map[string]string{
		"source_branch": r.Head, "target_branch": r.Base, "title": r.Title, "description": r.Body}, &m)
	return m.toRequest(), err
}

func (h *gitlab) edit(ctx context.Context, o *openRequest, r Request) error {
	return h.put(ctx, o, map[string]string{"title": r.Title, "description": r.Body})
}

func (h *gitlab) addLabels(ctx context.Context, o *openRequest, labels []string) error {
	return h.put(ctx, o, map[string]string{"add_labels": strings.Join(labels, ",")})
}

func (h *gitlab) put(ctx context.Context, o *openRequest, change map[string]string) error {
	return h.do(ctx, "the update of the merge request", http.MethodPut,
		[]string{"merge_requests", strconv.FormatInt(o.ID, 10)}, nil, change, nil)
}
