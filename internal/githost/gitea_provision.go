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

func (h *gitea) create(ctx context.Context, n NewProject) (*Project, error) {
	return h.createRepository(ctx, n, map[string]any{"default_branch": n.Branch})
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

func (h *gitea) addDeployKey(ctx context.Context, k DeployKey) error {
	err := h.githubLike.addDeployKey(ctx, k)
	if r := rejectionOf(err); r.status == http.StatusUnprocessableEntity && strings.Contains(r.text, "key") {
		return failed("%s refused the deploy key '%s'", h.api.Host, k.Title).Because(&r).
			WithHint("Remove the deploy key with this title or content from the repository").Final()
	}
	return err
}
