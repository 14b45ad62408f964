package githost

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
)

var (
	_ provisioner = (*gitlab)(nil)
	_ tokenIssuer = (*gitlab)(nil)
)

type gitlabProject struct {
	HTTPURL     string `json:"http_url_to_repo"`
	SSHURL      string `json:"ssh_url_to_repo"`
	Visibility  string
	Permissions *struct {
		Project *gitlabAccess `json:"project_access"`
		Group   *gitlabAccess `json:"group_access"`
	} `json:"permissions"`
	Shared []struct {
		Path  string `json:"group_full_path"`
		Level int    `json:"group_access_level"`
	} `json:"shared_with_groups"`
}

type gitlabAccess struct {
	Level int `json:"access_level"`
}

// Levels of access of GitLab.
const (
	gitlabDeveloper  = 30
	gitlabMaintainer = 40
)

// gitlabLevels are the permissions of groups.
var gitlabLevels = map[string]int{"guest": 10, "reporter": 20, "developer": gitlabDeveloper,
	"maintainer": gitlabMaintainer}

func (p gitlabProject) toProject() *Project {
	out := &Project{HTTPURL: p.HTTPURL, SSHURL: p.SSHURL, Visibility: p.Visibility}
	if r := p.Permissions; r != nil {
		level := 0
		for _, a := range []*gitlabAccess{r.Project, r.Group} {
			if a != nil {
				level = max(level, a.Level)
			}
		}
		if level > 0 { // administrators of the host have no level
			out.Access = accessOf(level >= gitlabDeveloper, level >= gitlabMaintainer)
		}
	}
	for _, s := range p.Shared {
		for name, level := range gitlabLevels {
			if level == s.Level {
				out.Grants = append(out.Grants, Grant{Group: s.Path, Permission: name})
			}
		}
	}
	return out
}

func (*gitlab) scopes() string { return "the scope api, of a user with the role Maintainer" }

func (h *gitlab) user(ctx context.Context) (string, error) {
	var user struct{ Username string }
	err := h.top().do(ctx, "the user of the login", http.MethodGet, []string{"user"}, nil, nil, &user)
	return user.Username, err
}

func (h *gitlab) project(ctx context.Context) (*Project, error) {
	var p gitlabProject
	if found, err := findProject(ctx, h.rest, nil, nil, &p); !found {
		return nil, err
	}
	return p.toProject(), nil
}

func (h *gitlab) create(ctx context.Context, n NewProject) (*Project, error) {
	body := map[string]any{"name": h.repo.Name, "path": h.repo.Name, "visibility": n.Visibility,
		"default_branch": n.Branch}
	if !n.Personal {
		id, err := h.groupID(ctx, h.repo.Owner)
		if err != nil {
			return nil, err
		}
		body["namespace_id"] = id
	}
	var p gitlabProject
	err := h.top().do(ctx, "the new project", http.MethodPost, []string{"projects"}, nil, body, &p)
	return p.toProject(), err
}

// groupID returns the ID of a group by its full path.
func (h *gitlab) groupID(ctx context.Context, path string) (int64, error) {
	var group struct{ ID int64 }
	err := h.top().do(ctx, "the group", http.MethodGet, []string{"groups", path},
		url.Values{"with_projects": {"false"}}, nil, &group)
	return group.ID, err
}

func (h *gitlab) setVisibility(ctx context.Context, visibility string) error {
	return h.do(ctx, "the visibility of the project", http.MethodPut, nil, nil,
		map[string]string{"visibility": visibility}, nil)
}

func (*gitlab) permissions() []string {
	return slices.SortedFunc(maps.Keys(gitlabLevels),
		func(a, b string) int { return gitlabLevels[b] - gitlabLevels[a] })
}

func (*gitlab) grants(_ context.Context, p *Project) ([]Grant, error) { return p.Grants, nil }

// grant shares the project with a group. A share with another level is replaced.
func (h *gitlab) grant(ctx context.Context, g Grant) error {
	id, err := h.groupID(ctx, g.Group)
	if err != nil {
		return err
	}
	share := func() error {
		return h.do(ctx, "the share with the group", http.MethodPost, []string{"share"}, nil,
			map[string]any{"group_id": id, "group_access": gitlabLevels[g.Permission]}, nil)
	}
	err = share()
	if rejectionOf(err).status != http.StatusConflict {
		return err
	}
	if err := h.do(ctx, "the removal of the share with the group", http.MethodDelete,
		[]string{"share", strconv.FormatInt(id, 10)}, nil, nil, nil); err != nil {
		return err
	}
	return share()
}

type gitlabKey struct {
	ID      int64  `json:"id,omitempty"`
	Title   string `json:"title"`
	Key     string `json:"key"`
	CanPush bool   `json:"can_push"`
}

func (h *gitlab) deployKeys(ctx context.Context, page int) (all []DeployKey, more bool, err error) {
	var keys []gitlabKey
	more, err = h.page(ctx, "the deploy keys of the project", []string{"deploy_keys"}, nil, page, &keys)
	for _, k := range keys {
		all = append(all, DeployKey{ID: k.ID, Title: k.Title, Key: k.Key, Writable: k.CanPush})
	}
	return all, more, err
}

func (h *gitlab) addDeployKey(ctx context.Context, k DeployKey) error {
	return h.do(ctx, "the deploy key", http.MethodPost, []string{"deploy_keys"}, nil,
		gitlabKey{Title: k.Title, Key: k.Key, CanPush: k.Writable}, nil)
}

func (h *gitlab) removeDeployKey(ctx context.Context, id int64) error {
	return removeDeployKeyAt(ctx, h.rest, []string{"deploy_keys"}, nil, id)
}

func (h *gitlab) deployTokens(ctx context.Context, page int) (all []DeployToken, more bool, err error) {
	more, err = h.page(ctx, "the deploy tokens of the project", []string{"deploy_tokens"}, nil, page, &all)
	for i := range all {
		all[i].Token = ""
	}
	return all, more, err
}

func (h *gitlab) createDeployToken(ctx context.Context, name string) (*DeployToken, error) {
	t := &DeployToken{}
	err := h.do(ctx, "the deploy token", http.MethodPost, []string{"deploy_tokens"}, nil,
		map[string]any{"name": name, "scopes": []string{"read_repository"}}, t)
	return t, err
}

func (h *gitlab) removeDeployToken(ctx context.Context, id int64) error {
	return removeDeployKeyAt(ctx, h.rest, []string{"deploy_tokens"}, nil, id)
}
