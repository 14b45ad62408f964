package githost

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Visibilities of a project.
const (
	VisibilityPrivate  = "private"
	VisibilityInternal = "internal" // GitLab
	VisibilityPublic   = "public"
)

// Access is what the login may do with a project.
type Access int

// The levels of access. Each one includes the previous ones.
const (
	AccessUnknown Access = iota // the host does not say
	AccessRead
	AccessPush
	AccessAdmin // includes deploy keys
)

// Project is a repository as the host describes it.
type Project struct {
	HTTPURL, SSHURL string // of the clone
	Visibility      string
	Access          Access
	Grants          []Grant // GitLab only
}

// NewProject describes a repository to create.
type NewProject struct {
	Visibility string
	Personal   bool // the owner is the user of the login
	Branch     string
	Needs      Access // of the login
	Reconcile  bool   // change the visibility of an existing repository
}

// Grant gives a team or group access to a repository.
type Grant struct{ Group, Permission string }

// DeployKey is an SSH key with access to one repository.
type DeployKey struct {
	ID       int64
	Title    string
	Key      string // in the format of authorized_keys
	Writable bool
}

// DeployToken is a login with access to one repository.
type DeployToken struct {
	ID              int64
	Name            string
	Username, Token string // Token is set for a new one only
	Revoked         bool
	Expired         bool
}

// provisioner is a host that can create repositories and deploy keys.
type provisioner interface {
	// user returns the name of the login's user; empty if it cannot be known.
	user(ctx context.Context) (string, error)
	// project returns the repository; nil if it does not exist.
	project(ctx context.Context) (*Project, error)
	create(ctx context.Context, p NewProject) (*Project, error)
	setVisibility(ctx context.Context, visibility string) error

	// permissions returns the permissions of a grant; the first is the default.
	permissions() []string
	grants(ctx context.Context, p *Project) ([]Grant, error)
	grant(ctx context.Context, g Grant) error

	deployKeys(ctx context.Context, page int) (all []DeployKey, more bool, err error)
	addDeployKey(ctx context.Context, k DeployKey) error
	removeDeployKey(ctx context.Context, id int64) error
	// scopes describes the permission of the login that provisioning needs.
	scopes() string
}

// tokenIssuer is a host that has deploy tokens.
type tokenIssuer interface {
	deployTokens(ctx context.Context, page int) (all []DeployToken, more bool, err error)
	createDeployToken(ctx context.Context, name string) (*DeployToken, error)
	removeDeployToken(ctx context.Context, id int64) error
}

func (c *Client) provisioner() (provisioner, error) {
	if p, ok := c.host.(provisioner); ok {
		return p, nil
	}
	return nil, failed("creating repositories is not supported for %s", c.repo.Kind).Final()
}

// User returns the name of the login's user; empty if the host does not tell.
func (c *Client) User(ctx context.Context) (string, error) {
	p, err := c.provisioner()
	if err != nil {
		return "", err
	}
	name, err := p.user(ctx)
	return name, c.explain(p, err)
}

// Ensure returns the repository, and creates it if it does not exist.
func (c *Client) Ensure(ctx context.Context, n NewProject) (project Project, created bool, err error) {
	p, err := c.provisioner()
	if err != nil {
		return Project{}, false, err
	}
	found, err := p.project(ctx)
	if err != nil {
		return Project{}, false, c.explain(p, err)
	}
	if found == nil {
		if found, err = c.create(ctx, p, n); err != nil {
			return Project{}, false, c.explain(p, err)
		}
		return *found, true, nil
	}
	if found.Access != AccessUnknown && found.Access < n.Needs {
		return Project{}, false, failed("the login may not %s repository '%s/%s'",
			map[Access]string{AccessRead: "read", AccessPush: "push to", AccessAdmin: "administer"}[n.Needs],
			c.repo.Owner, c.repo.Name).
			WithHint("Use the token of an owner or administrator of the repository, with %s", p.scopes()).Final()
	}
	if n.Reconcile && found.Visibility != n.Visibility {
		if err := p.setVisibility(ctx, n.Visibility); err != nil {
			return Project{}, false, c.explain(p, err)
		}
		found.Visibility = n.Visibility
	}
	return *found, false, nil
}

// create creates the repository. A personal one needs the login of its owner.
func (c *Client) create(ctx context.Context, p provisioner, n NewProject) (*Project, error) {
	if n.Personal {
		user, err := p.user(ctx)
		if err != nil {
			return nil, err
		}
		if user != "" && !strings.EqualFold(user, strings.TrimPrefix(c.repo.Owner, "~")) {
			return nil, failed("repository '%s/%s' does not exist, and the login of '%s' cannot create it",
				c.repo.Owner, c.repo.Name, user).WithHint("Use a token of '%s', or another owner", c.repo.Owner).Final()
		}
	}
	created, err := p.create(ctx, n)
	if status := rejectionOf(err).status; status == http.StatusConflict || status == http.StatusUnprocessableEntity {
		// another process may have created it
		if found, again := p.project(ctx); again == nil && found != nil {
			return found, nil
		}
	}
	if rejectionOf(err).status == http.StatusNotFound {
		return nil, failed("cannot create repository '%s/%s': the owner does not exist, or the login may not create "+
			"repositories of it", c.repo.Owner, c.repo.Name).Because(&rejection{status: http.StatusNotFound}).
			WithHint("Correct the owner, set --personal if it is a user, and use a token with %s", p.scopes()).Final()
	}
	return created, err
}

// EnsureGrant gives a team or group access to the repository. It reports whether it changed anything.
func (c *Client) EnsureGrant(ctx context.Context, project Project, g Grant) (changed bool, err error) {
	p, err := c.provisioner()
	if err != nil {
		return false, err
	}
	allowed := p.permissions()
	if g.Permission == "" {
		g.Permission = allowed[0]
	}
	if !slices.Contains(allowed, g.Permission) {
		return false, failed("permission '%s' of group '%s' does not exist", g.Permission, g.Group).
			WithHint("Use one of: %s", strings.Join(allowed, ", ")).Final()
	}
	existing, err := p.grants(ctx, &project)
	if err != nil {
		return false, c.explain(p, err)
	}
	if slices.ContainsFunc(existing, func(e Grant) bool {
		return strings.EqualFold(e.Group, g.Group) && e.Permission == g.Permission
	}) {
		return false, nil
	}
	err = p.grant(ctx, g)
	if rejectionOf(err).status == http.StatusNotFound {
		return false, failed("group '%s' of '%s' was not found", g.Group, c.repo.Owner).
			WithHint("Correct the name of the group; the token must be allowed to see it").Final()
	}
	return err == nil, c.explain(p, err)
}

// EnsureDeployKey adds a deploy key. It reports whether it changed anything.
func (c *Client) EnsureDeployKey(ctx context.Context, key DeployKey) (changed bool, err error) {
	p, err := c.provisioner()
	if err != nil {
		return false, err
	}
	existing, err := first(func(page int) ([]DeployKey, bool, error) { return p.deployKeys(ctx, page) },
		func(k DeployKey) bool { return sameKey(k.Key, key.Key) })
	switch {
	case err != nil:
		return false, c.explain(p, err)
	case existing != nil && existing.Writable == key.Writable:
		return false, nil
	case existing != nil: // hosts cannot change the permission of a key
		if err := p.removeDeployKey(ctx, existing.ID); err != nil {
			return false, c.explain(p, err)
		}
	}
	err = p.addDeployKey(ctx, key)
	return err == nil, c.explain(p, err)
}

// RemoveDeployKeys removes the deploy keys whose title begins with a prefix, except one key. It returns how many.
func (c *Client) RemoveDeployKeys(ctx context.Context, prefix, except string) (int, error) {
	p, err := c.provisioner()
	if err != nil {
		return 0, err
	}
	var old []int64
	_, err = first(func(page int) ([]DeployKey, bool, error) { return p.deployKeys(ctx, page) },
		func(k DeployKey) bool {
			if titled(k.Title, prefix) && !sameKey(k.Key, except) {
				old = append(old, k.ID)
			}
			return false
		})
	if err != nil {
		return 0, c.explain(p, err)
	}
	for n, id := range old {
		if err := p.removeDeployKey(ctx, id); err != nil {
			return n, c.explain(p, err)
		}
	}
	return len(old), nil
}

// titled reports whether a title is a prefix, alone or followed by a space and a suffix without spaces.
func titled(title, prefix string) bool {
	rest, ok := strings.CutPrefix(title, prefix)
	return ok && (rest == "" || rest[0] == ' ' && !strings.Contains(rest[1:], " "))
}

// sameKey compares keys in the format of authorized_keys, without their comments.
func sameKey(a, b string) bool {
	x, y := strings.Fields(a), strings.Fields(b)
	return len(x) > 1 && len(y) > 1 && x[0] == y[0] && x[1] == y[1]
}

// HasDeployToken reports whether the host accepts a deploy token with a name and a username.
func (c *Client) HasDeployToken(ctx context.Context, name, username string) (bool, error) {
	h, p, err := c.issuer()
	if err != nil {
		return false, err
	}
	found, err := first(func(page int) ([]DeployToken, bool, error) { return h.deployTokens(ctx, page) },
		func(t DeployToken) bool {
			return t.Name == name && t.Username == username && !t.Revoked && !t.Expired
		})
	return found != nil, c.explain(p, err)
}

// CreateDeployToken creates a token that may read the repository.
func (c *Client) CreateDeployToken(ctx context.Context, name string) (DeployToken, error) {
	h, p, err := c.issuer()
	if err != nil {
		return DeployToken{}, err
	}
	t, err := h.createDeployToken(ctx, name)
	if err != nil {
		return DeployToken{}, c.explain(p, err)
	}
	if t.Username == "" || t.Token == "" {
		return DeployToken{}, failed("%s created a deploy token without a username or a token", c.repo.Base.Host).
			Final()
	}
	return *t, nil
}

// RemoveDeployTokens revokes the tokens with a name, except the one with a username. It returns how many.
func (c *Client) RemoveDeployTokens(ctx context.Context, name, except string) (int, error) {
	h, p, err := c.issuer()
	if err != nil {
		return 0, err
	}
	var old []int64
	_, err = first(func(page int) ([]DeployToken, bool, error) { return h.deployTokens(ctx, page) },
		func(t DeployToken) bool {
			if t.Name == name && t.Username != except && !t.Revoked {
				old = append(old, t.ID)
			}
			return false
		})
	if err != nil {
		return 0, c.explain(p, err)
	}
	for n, id := range old {
		if err := h.removeDeployToken(ctx, id); err != nil {
			return n, c.explain(p, err)
		}
	}
	return len(old), nil
}

func (c *Client) issuer() (tokenIssuer, provisioner, error) {
	p, err := c.provisioner()
	if err != nil {
		return nil, nil, err
	}
	h, ok := c.host.(tokenIssuer)
	if !ok {
		return nil, nil, failed("%s has no deploy tokens", c.repo.Kind).Final()
	}
	return h, p, nil
}

// explain replaces hints that are about Secrets of the cluster: here, the login is the token of a person.
func (c *Client) explain(p provisioner, err error) error {
	f := fault.As(err)
	if f == nil {
		return err
	}
	why := rejectionOf(err)
	switch why.status {
	case http.StatusUnauthorized:
		f.Hint = "The token is wrong or has expired: create a new one"
	case http.StatusForbidden:
		if f.RetryAfter == 0 {
			f.Hint = "Give the token " + p.scopes()
			if why.scopes != "" {
				f.Hint += "; it has the scopes: " + why.scopes
			}
		}
	case http.StatusNotFound:
		if f.Hint == "" || f.Hint == notFoundHint {
			f.Hint = "Check the host, the owner and the repository; the token needs " + p.scopes()
		}
	}
	return err
}

// findProject requests the repository at a path; found is false if it does not exist.
func findProject(ctx context.Context, r *rest, path []string, query url.Values, out any) (found bool, err error) {
	err = r.do(ctx, "the repository", http.MethodGet, path, query, nil, out)
	if rejectionOf(err).status == http.StatusNotFound {
		return false, nil
	}
	return err == nil, err
}

// accessOf returns the level of access of two permissions.
func accessOf(push, admin bool) Access {
	switch {
	case admin:
		return AccessAdmin
	case push:
		return AccessPush
	}
	return AccessRead
}
