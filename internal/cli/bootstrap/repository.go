package bootstrap

import (
	"cmp"
	"context"
	"net"
	"net/url"
	"strings"

	"github.com/sluice-gitops/sluice/internal/githost"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/source/git"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Repository is the repository to commit to: that of a URL, or one that a host has or creates.
type Repository struct {
	URL string // of an existing repository; empty with Host
	// Push are the credentials to push with. Of several, the first that the server accepts is used.
	Push []auth.GitCredentials
	Host *Host
}

// Host is a git host with an API.
type Host struct {
	Client *githost.Client
	Base   url.URL // of the web pages
	Create githost.NewProject
	Grants []githost.Grant

	Username, Token string // to push with; the name of the token's user if Username is empty
	CA              []byte
	SSHHostname     string // replaces the host of SSH URLs; may have a port
	Path            string // of the repository in URLs of clones, for hosts that do not tell them
}

// prepareRepository creates the repository if it does not exist, and finds a login that may push.
func (r *run) prepareRepository(ctx context.Context) error {
	if r.Repository.Host != nil {
		if err := r.ensureProject(ctx); err != nil {
			return err
		}
	} else {
		r.syncURL = r.Repository.URL
		r.push = git.Remote{URL: r.Repository.URL, Egress: &egress.Policy{}}
	}
	if r.state.source != "" && r.state.source != r.syncURL {
		r.Output.Warn("the cluster reads from %s until now, and will read from %s", fault.RedactURL(r.state.source),
			fault.RedactURL(r.syncURL))
	}
	return r.selectLogin(ctx)
}

// selectLogin finds credentials that may push.
func (r *run) selectLogin(ctx context.Context) error {
	if strings.HasPrefix(r.syncURL, "ssh://") {
		if err := r.findKnownHosts(ctx, r.syncURL); err != nil {
			return err
		}
	}
	var err error
	for _, c := range r.Repository.Push {
		if strings.HasPrefix(r.push.URL, "ssh://") {
			c.KnownHosts = r.state.knownHosts
		}
		r.push.Credentials = c
		if _, err = r.view.Begin(ctx, r.push, r.Branch); err == nil || !isLogin(err) {
			break
		}
	}
	return r.explainGit(err)
}

// ensureProject creates the repository at the host, and sets the URLs.
func (r *run) ensureProject(ctx context.Context) error {
	h := r.Repository.Host
	create := h.Create
	create.Branch, create.Needs = r.Branch, githost.AccessPush
	if r.Login.Kind == DeployKey || r.Login.Kind == DeployToken {
		create.Needs = githost.AccessAdmin
	}
	r.Output.Live("looking for the repository at %s", h.Base.Host)
	project, created, err := h.Client.Ensure(ctx, create)
	if err != nil {
		return err
	}
	if created {
		r.Output.Done("repository created: %s", fault.RedactURL(h.cloneURL(project.HTTPURL)))
	}
	for _, g := range h.Grants {
		changed, err := h.Client.EnsureGrant(ctx, project, g)
		if err != nil {
			return err
		}
		if changed {
			r.Output.Done("access of '%s' set", g.Group)
		}
	}
	username := h.Username
	if username == "" {
		if username, err = h.Client.User(ctx); err != nil {
			return err
		}
	}
	push := h.cloneURL(project.HTTPURL)
	r.push = git.Remote{URL: push, Egress: &egress.Policy{}}
	r.Repository.Push = []auth.GitCredentials{{Username: cmp.Or(username, "git"), Password: h.Token, CA: h.CA}}
	r.syncURL = push
	switch r.Login.Kind {
	case DeployKey:
		r.syncURL, err = h.sshURL(project.SSHURL)
	case Password:
		r.Login.Data["username"] = []byte(cmp.Or(username, "git"))
	}
	return err
}

// cloneURL returns the URL of a clone over HTTPS. The token is sent there, so the host must be that of the API.
func (h *Host) cloneURL(told string) string {
	u, err := url.Parse(told)
	if err == nil && u.Scheme == h.Base.Scheme && strings.EqualFold(u.Host, h.Base.Host) {
		u.User, u.RawQuery, u.Fragment = nil, "", ""
		return u.String()
	}
	return h.Base.JoinPath(h.Path + ".git").String()
}

// sshURL returns the URL of a clone over SSH.
func (h *Host) sshURL(told string) (string, error) {
	if !strings.Contains(told, "://") {
		if at, path, ok := strings.Cut(told, ":"); ok && path != "" && !strings.ContainsAny(at, "/ ") {
			told = "ssh://" + at + "/" + strings.TrimPrefix(path, "/")
		}
	}
	u, err := url.Parse(told)
	if err != nil || u.Scheme != "ssh" || u.Hostname() == "" {
		u = &url.URL{Scheme: "ssh", User: url.User("git"), Host: h.Base.Hostname(), Path: "/" + h.Path + ".git"}
	}
	if u.User.Username() == "" {
		u.User = url.User("git")
	}
	u.User, u.RawQuery, u.Fragment = url.User(u.User.Username()), "", ""
	if h.SSHHostname != "" {
		u.Host = h.SSHHostname
	}
	if u.Hostname() == "" {
		return "", failed("'%s' is not a host", h.SSHHostname).WithHint("Set --ssh-hostname to a name or address, " +
			"and a port if it is not 22").Final()
	}
	return u.String(), nil
}

// sshAddress returns host and port of an SSH URL.
func sshAddress(rawURL string) (string, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Hostname() == "" {
		return "", failed("the URL of the repository is not valid").Final()
	}
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "22")), nil
}
