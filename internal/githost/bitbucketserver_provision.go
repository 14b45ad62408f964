package githost

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

var _ provisioner = (*bitbucketServer)(nil)

type serverRepository struct {
	Public bool
	Links  struct {
		Clone []struct{ Name, Href string }
	}
}

func (r serverRepository) toProject() *Project {
	p := &Project{Visibility: visibility(!r.Public)}
	for _, l := range r.Links.Clone {
		switch l.Name {
		case "http", "https":
			p.HTTPURL = l.Href
		case "ssh":
			p.SSHURL = l.Href
		}
	}
	return p
}

func (*bitbucketServer) scopes() string {
	return "the permissions project admin and repository admin"
}

// user is not known: the API has no request for the user of a login.
func (*bitbucketServer) user(context.Context) (string, error) { return "", nil }

func (h *bitbucketServer) project(ctx context.Context) (*Project, error) {
	var r serverRepository
	if found, err := findProject(ctx, h.rest, nil, nil, &r); !found {
		return nil, err
	}
	return r.toProject(), nil
}

func (h *bitbucketServer) create(ctx context.Context, n NewProject) (*Project, error) {
	var r serverRepository
	err := h.top().do(ctx, "the new repository", http.MethodPost, []string{"projects", h.repo.Owner, "repos"}, nil,
		map[string]any{"name": h.repo.Name, "scmId": "git", "defaultBranch": n.Branch,
			"public": n.Visibility == VisibilityPublic}, &r)
	return r.toProject(), err
}

func (h *bitbucketServer) setVisibility(ctx context.Context, visibility string) error {
	return h.do(ctx, "the visibility of the repository", http.MethodPut, nil, nil,
		map[string]any{"public": visibility == VisibilityPublic}, nil)
}

func (*bitbucketServer) permissions() []string {
	return []string{"REPO_WRITE", "REPO_READ", "REPO_ADMIN"}
}

// serverPages requests the pages of a list until there are no more. A page of this host begins at an index.
func serverPages[T any](page int, request func(query url.Values, out any) error) (all []T, more bool, err error) {
	var list struct {
		Values     []T
		IsLastPage bool
	}
	query := url.Values{"limit": {strconv.Itoa(pageSize)}, "start": {strconv.Itoa((page - 1) * pageSize)}}
	err = request(query, &list)
	return list.Values, !list.IsLastPage && len(list.Values) > 0, err
}

func (h *bitbucketServer) grants(ctx context.Context, _ *Project) ([]Grant, error) {
	type entry struct {
		Group      struct{ Name string }
		Permission string
	}
	var all []Grant
	_, err := first(func(page int) ([]entry, bool, error) {
		return serverPages[entry](page, func(query url.Values, out any) error {
			return h.do(ctx, "the groups of the repository", http.MethodGet, []string{"permissions", "groups"}, query,
				nil, out)
		})
	}, func(e entry) bool {
		all = append(all, Grant{Group: e.Group.Name, Permission: e.Permission})
		return false
	})
	return all, err
}

func (h *bitbucketServer) grant(ctx context.Context, g Grant) error {
	return h.do(ctx, "the permission of the group", http.MethodPut, []string{"permissions", "groups"},
		url.Values{"name": {g.Group}, "permission": {g.Permission}}, nil, nil)
}

// Permissions of access keys.
const (
	serverRead  = "REPO_READ"
	serverWrite = "REPO_WRITE"
)

type serverKey struct {
	Key struct {
		ID    int64  `json:"id,omitempty"`
		Label string `json:"label"`
		Text  string `json:"text"`
	} `json:"key"`
	Permission string `json:"permission"`
}

// keys returns a client for the API of access keys, which has another base.
func (h *bitbucketServer) keys() *rest {
	r := *h.rest
	r.api.Path = strings.Replace(r.api.Path, "rest/api/latest/", "rest/keys/latest/", 1)
	r.api.RawPath = strings.Replace(r.api.RawPath, "rest/api/latest/", "rest/keys/latest/", 1)
	return &r
}

func (h *bitbucketServer) deployKeys(ctx context.Context, page int) (all []DeployKey, more bool, err error) {
	keys, more, err := serverPages[serverKey](page, func(query url.Values, out any) error {
		return h.keys().do(ctx, "the access keys of the repository", http.MethodGet, []string{"ssh"}, query, nil, out)
	})
	for _, k := range keys {
		all = append(all, DeployKey{ID: k.Key.ID, Title: k.Key.Label, Key: k.Key.Text,
			Writable: k.Permission == serverWrite})
	}
	return all, more, err
}

func (h *bitbucketServer) addDeployKey(ctx context.Context, k DeployKey) error {
	body := serverKey{Permission: serverRead}
	body.Key.Label, body.Key.Text = k.Title, k.Key
	if k.Writable {
		body.Permission = serverWrite
	}
	return h.keys().do(ctx, "the access key", http.MethodPost, []string{"ssh"}, nil, body, nil)
}

func (h *bitbucketServer) removeDeployKey(ctx context.Context, id int64) error {
	return removeDeployKeyAt(ctx, h.keys(), []string{"ssh"}, nil, id)
}
