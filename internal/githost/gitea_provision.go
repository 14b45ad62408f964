package githost

import (
	"context"
	"net/http"
	"strings"
)

var _ provisioner = (*gitea)(nil)

func (*gitea) scopes() string {
	return "the scopes write:repository, and write:organization or write:user to create a repository"
}

func (h *gitea) user(ctx context.Context) (string, error) {
	return login(ctx, h.top(), []string{"user"})
}

func (h *gitea) project(ctx context.Context) (*Project, error) {
	var r githubRepository
	if found, err := findProject(ctx, h.rest, nil, nil, &r); !found {
		return nil, err
	}
	return r.toProject(), nil
}

func (h *gitea) create(ctx context.Context, n NewProject) (*Project, error) {
	path := []string{"orgs", h.repo.Owner, "repos"}
	if n.Personal {
		path = []string{"user", "repos"}
	}
	var r githubRepository
	err := h.top().do(ctx, "the new repository", http.MethodPost, path, nil, map[string]any{"name": h.repo.Name,
		"private": n.Visibility != VisibilityPublic, "default_branch": n.Branch}, &r)
	return r.toProject(), err
}

func (h *gitea) setVisibility(ctx context.Context, visibility string) error {
	return h.do(ctx, "the visibility of the repository", http.MethodPatch, nil, nil,
		map[string]any{"private": visibility != VisibilityPublic}, nil)
}

// permissions has no choice: a team of Gitea has the same permission for all of its repositories.
func (*gitea) permissions() []string { return []string{giteaTeam} }

// giteaTeam is the permission of a team.
const giteaTeam = "team"

func (h *gitea) grants(ctx context.Context, _ *Project) ([]Grant, error) {
	var teams []struct{ Name string }
	err := h.do(ctx, "the teams of the repository", http.MethodGet, []string{"teams"}, nil, nil, &teams)
	var all []Grant
	for _, t := range teams {
		all = append(all, Grant{Group: t.Name, Permission: giteaTeam})
	}
	return all, err
}

func (h *gitea) grant(ctx context.Context, g Grant) error {
	return h.do(ctx, "the permission of the team", http.MethodPut, []string{"teams", g.Group}, nil, nil, nil)
}

func (h *gitea) deployKeys(ctx context.Context, page int) ([]DeployKey, bool, error) {
	return deployKeysAt(ctx, h.rest, "limit", page)
}

func (h *gitea) addDeployKey(ctx context.Context, k DeployKey) error {
	err := addDeployKeyAt(ctx, h.rest, k)
	if r := rejectionOf(err); r.status == http.StatusUnprocessableEntity && strings.Contains(r.text, "key") {
		return failed("%s refused the deploy key '%s'", h.api.Host, k.Title).Because(&r).
			WithHint("Remove the deploy key with this title or content from the repository").Final()
	}
	return err
}

func (h *gitea) removeDeployKey(ctx context.Context, id int64) error {
	return removeDeployKeyAt(ctx, h.rest, []string{"keys"}, nil, id)
}
