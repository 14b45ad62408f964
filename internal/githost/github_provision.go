package githost

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
)

var _ provisioner = (*github)(nil)

// githubRepository is a repository of GitHub and Gitea, which use the same names.
type githubRepository struct {
	HTTPURL     string `json:"clone_url"`
	SSHURL      string `json:"ssh_url"`
	Private     bool   `json:"private"`
	Permissions *struct{ Admin, Push bool }
}

func (r githubRepository) toProject() *Project {
	p := &Project{HTTPURL: r.HTTPURL, SSHURL: r.SSHURL, Visibility: visibility(r.Private)}
	if r.Permissions != nil {
		p.Access = accessOf(r.Permissions.Push, r.Permissions.Admin)
	}
	return p
}

func visibility(private bool) string {
	if private {
		return VisibilityPrivate
	}
	return VisibilityPublic
}

// githubKey is a deploy key of GitHub and Gitea.
type githubKey struct {
	ID       int64  `json:"id,omitempty"`
	Title    string `json:"title"`
	Key      string `json:"key"`
	ReadOnly bool   `json:"read_only"`
}

func toDeployKeys(keys []githubKey) []DeployKey {
	all := make([]DeployKey, 0, len(keys))
	for _, k := range keys {
		all = append(all, DeployKey{ID: k.ID, Title: k.Title, Key: k.Key, Writable: !k.ReadOnly})
	}
	return all
}

func (h *github) scopes() string {
	return "the scope repo, or, if it is fine-grained, write permission for Contents and Administration"
}

func (h *githubLike) user(ctx context.Context) (string, error) {
	var user struct{ Login string }
	err := h.top().do(ctx, "the user of the login", http.MethodGet, []string{"user"}, nil, nil, &user)
	return user.Login, err
}

func (h *githubLike) project(ctx context.Context) (*Project, error) {
	var r githubRepository
	if found, err := findProject(ctx, h.rest, nil, nil, &r); !found {
		return nil, err
	}
	return r.toProject(), nil
}

func (h *github) create(ctx context.Context, n NewProject) (*Project, error) {
	return h.createRepository(ctx, n, map[string]any{})
}

func (h *githubLike) createRepository(ctx context.Context, n NewProject, settings map[string]any) (*Project, error) {
	path := []string{"orgs", h.owner, "repos"}
	if n.Personal {
		path = []string{"user", "repos"}
	}
	settings["name"], settings["private"] = h.repo, n.Visibility != VisibilityPublic
	var r githubRepository
	err := h.top().do(ctx, "the new repository", http.MethodPost, path, nil, settings, &r)
	return r.toProject(), err
}

func (h *githubLike) setVisibility(ctx context.Context, visibility string) error {
	return h.do(ctx, "the visibility of the repository", http.MethodPatch, nil, nil,
		map[string]any{"private": visibility != VisibilityPublic}, nil)
}

func (*github) permissions() []string { return []string{"pull", "triage", "push", "maintain", "admin"} }

func (h *github) grants(ctx context.Context, _ *Project) ([]Grant, error) {
	type team struct{ Slug, Permission string }
	var all []Grant
	_, err := first(func(page int) (teams []team, more bool, err error) {
		more, err = h.page(ctx, "the teams of the repository", []string{"teams"}, nil, page, &teams)
		return teams, more, err
	}, func(t team) bool {
		all = append(all, Grant{Group: t.Slug, Permission: t.Permission})
		return false
	})
	return all, err
}

func (h *github) grant(ctx context.Context, g Grant) error {
	return h.top().do(ctx, "the permission of the team", http.MethodPut,
		[]string{"orgs", h.owner, "teams", g.Group, "repos", h.owner, h.repo}, nil,
		map[string]string{"permission": g.Permission}, nil)
}

func (h *githubLike) deployKeys(ctx context.Context, page int) ([]DeployKey, bool, error) {
	var keys []githubKey
	more, err := h.page(ctx, "the deploy keys of the repository", []string{"keys"}, nil, page, &keys)
	return toDeployKeys(keys), more, err
}

func (h *githubLike) addDeployKey(ctx context.Context, k DeployKey) error {
	return h.do(ctx, "the deploy key", http.MethodPost, []string{"keys"}, nil,
		githubKey{Title: k.Title, Key: k.Key, ReadOnly: !k.Writable}, nil)
}

func (h *githubLike) removeDeployKey(ctx context.Context, id int64) error {
	return removeDeployKeyAt(ctx, h.rest, []string{"keys"}, nil, id)
}

// removeDeployKeyAt removes a deploy key. A key that does not exist is removed already.
func removeDeployKeyAt(ctx context.Context, r *rest, path []string, query url.Values, id int64) error {
	err := r.do(ctx, "the removal of the deploy key", http.MethodDelete, append(path, strconv.FormatInt(id, 10)), query,
		nil, nil)
	if rejectionOf(err).status == http.StatusNotFound {
		return nil
	}
	return err
}
