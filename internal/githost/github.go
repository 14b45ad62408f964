package githost

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

// githubLike is what the APIs of GitHub and Gitea have in common.
type githubLike struct {
	*rest
	repo, owner string
}

// github implements https://docs.github.com/en/rest for github.com, Enterprise Cloud with a custom domain, and
// Enterprise Server.
type github struct{ githubLike }

func newGitHub(r *rest, repo Repository) host {
	switch host := r.api.Host; {
	case host == "github.com" || host == "www.github.com":
		r.api.Host = "api.github.com"
	case strings.HasSuffix(host, ".ghe.com"):
		r.api.Host = "api." + host
	default:
		r.api = *r.api.JoinPath("api/v3")
	}
	r.root = r.api
	r.api = *r.api.JoinPath("repos", url.PathEscape(repo.Owner), url.PathEscape(repo.Name))
	r.header = http.Header{"Accept": {"application/vnd.github+json"}, "X-Github-Api-Version": {"2022-11-28"}}
	return &github{githubLike{r, repo.Name, repo.Owner}}
}

// githubStates are the names of the states in the order of [State].
var githubStates = [3]string{"pending", "success", "failure"}

func (*github) limits() limits {
	return limits{states: githubStates, contextMax: 255, descriptionMax: 140,
		bodyMax: 65536, labels: true}
}

type githubStatus struct {
	State       string `json:"state"`
	Context     string `json:"context"`
	Description string `json:"description"`
	TargetURL   string `json:"target_url,omitempty"`
}

// latestStatus reads the combined status, which has the latest status of each context. Contexts are compared
// ignoring case.
func (h *github) latestStatus(ctx context.Context, s Status) (*reportedStatus, error) {
	found, err := first(func(page int) ([]githubStatus, bool, error) {
		var combined struct{ Statuses []githubStatus }
		more, err := h.page(ctx, "the statuses of the commit", []string{"commits", s.Commit, "status"}, nil, page,
			&combined)
		return combined.Statuses, more, err
	}, func(g githubStatus) bool { return strings.EqualFold(g.Context, s.Context) })
	if found == nil {
		return nil, err
	}
	return &reportedStatus{state: found.State, description: found.Description, url: found.TargetURL}, nil
}

func (h *githubLike) setStatus(ctx context.Context, s Status) error {
	return h.do(ctx, "the commit status", http.MethodPost, []string{"statuses", s.Commit}, nil,
		githubStatus{State: githubStates[s.State], Context: s.Context, Description: s.Description,
			TargetURL: s.URL}, nil)
}

func (h *github) comments(ctx context.Context, request, page int) (all []comment, more bool, err error) {
	more, err = h.page(ctx, "the comments of the pull request", []string{"issues", strconv.Itoa(request), "comments"},
		nil, page, &all)
	return all, more, err
}

func (h *githubLike) createComment(ctx context.Context, request int, body string) error {
	return h.do(ctx, "the comment", http.MethodPost, []string{"issues", strconv.Itoa(request), "comments"}, nil,
		map[string]string{"body": body}, nil)
}

func (h *githubLike) updateComment(ctx context.Context, _ int, id int64, body string) error {
	return h.do(ctx, "the update of the comment", http.MethodPatch,
		[]string{"issues", "comments", strconv.FormatInt(id, 10)}, nil, map[string]string{"body": body}, nil)
}

const maxEventType = 100 // characters

func (h *github) dispatch(ctx context.Context, eventType string, payload any) error {
	return h.do(ctx, "the dispatch event", http.MethodPost, []string{"dispatches"}, nil,
		map[string]any{"event_type": excerpt.Chars(singleLine(eventType), maxEventType),
			"client_payload": payload}, nil)
}

type githubPull struct {
	Number int64
	URL    string `json:"html_url"`
	Title  string
	Body   string
	Labels []struct{ Name string }
}

func (p githubPull) toRequest() *openRequest {
	o := &openRequest{ID: p.Number, URL: p.URL, Title: p.Title, Body: p.Body}
	for _, l := range p.Labels {
		o.Labels = append(o.Labels, l.Name)
	}
	return o
}

func (h *github) find(ctx context.Context, r Request) (*openRequest, error) {
	var pulls []githubPull
	query := url.Values{"state": {"open"}, "head": {h.owner + ":" + r.Head}, "base": {r.Base}}
	if err := h.do(ctx, "the open pull requests", http.MethodGet, []string{"pulls"}, query, nil, &pulls); err != nil ||
		len(pulls) == 0 {
		return nil, err
	}
	return pulls[0].toRequest(), nil
}

func (h *githubLike) open(ctx context.Context, r Request) (*openRequest, error) {
	var pull githubPull
	err := h.do(ctx, "the pull request", http.MethodPost, []string{"pulls"}, nil,
		map[string]string{"title": r.Title, "head": r.Head, "base": r.Base, "body": r.Body}, &pull)
	return pull.toRequest(), err
}

func (h *githubLike) edit(ctx context.Context, o *openRequest, r Request) error {
	return h.do(ctx, "the update of the pull request", http.MethodPatch,
		[]string{"pulls", strconv.FormatInt(o.ID, 10)}, nil,
		map[string]string{"title": r.Title, "body": r.Body}, nil)
}

func (h *github) addLabels(ctx context.Context, o *openRequest, labels []string) error {
	return h.do(ctx, "the labels of the pull request", http.MethodPost,
		[]string{"issues", strconv.FormatInt(o.ID, 10), "labels"}, nil,
		map[string][]string{"labels": labels}, nil)
}
