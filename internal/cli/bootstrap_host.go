package cli

import (
	"cmp"
	"context"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-gitops/sluice/internal/cli/bootstrap"
	"github.com/sluice-gitops/sluice/internal/githost"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/network/egress"
)

// hostCommand is a git host that `sluice bootstrap` supports.
type hostCommand struct {
	kind         githost.Kind
	use, name    string
	hostname     string // default; none if it must be given
	tokenEnv     string
	username     string // of clones over https; that of the token's user if empty
	groupFlag    string
	groupExample string
	owner        string // what --owner is
	deployTokens bool
}

var hostCommands = []hostCommand{
	{
		kind: githost.GitHub, use: "github", name: "GitHub", hostname: "github.com", tokenEnv: "GITHUB_TOKEN",
		username: "git", groupFlag: "team", groupExample: "platform:maintain", owner: "organization or user",
	},
	{
		kind: githost.GitLab, use: "gitlab", name: "GitLab", hostname: "gitlab.com", tokenEnv: "GITLAB_TOKEN",
		username: "git", groupFlag: "team", groupExample: "my-org/platform:maintainer", owner: "group or user",
		deployTokens: true,
	},
	{
		kind: githost.Gitea, use: "gitea", name: "Gitea", hostname: "gitea.com", tokenEnv: "GITEA_TOKEN",
		groupFlag: "team", groupExample: "platform", owner: "organization or user",
	},
	{
		kind: githost.BitbucketServer, use: "bitbucket-server", name: "Bitbucket Server", tokenEnv: "BITBUCKET_TOKEN",
		username: "git", groupFlag: "group", groupExample: "platform:REPO_WRITE", owner: "project key, or user",
	},
}

// bootstrapHost is `sluice bootstrap` for a git host.
type bootstrapHost struct {
	*bootstrapCommand
	*hostCommand
	ownerName, repository, host string
	visibility                  string
	groups                      []string
	personal, private           bool
	reconcile, readWriteKey     bool
	deployTokenAuth             bool
	loginName                   string
}

func newBootstrapHostCommand(o *bootstrapCommand, h *hostCommand) *cobra.Command {
	b := &bootstrapHost{bootstrapCommand: o, hostCommand: h}
	flags := "--owner=my-org --repository=fleet"
	if h.hostname == "" {
		flags = "--hostname=git.example.com --owner=ORG --repository=fleet"
	}
	c := &cobra.Command{
		Use:   h.use,
		Short: "Bootstrap from a repository of " + h.name,
		Long: `Bootstrap from a repository of ` + h.name + `.
The repository is created if it does not exist.

The command pushes with the token in $` + h.tokenEnv + `, or asks for it. The
cluster gets a deploy key of its own, unless --token-auth is set.`,
		Example: "  export " + h.tokenEnv + "=<token>\n  sluice bootstrap " + h.use + " " + flags + " \\\n" +
			"    --path=clusters/production",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return b.run(cmd.Context()) },
	}
	b.bindHost(c.Flags())
	o.bindSync(c.Flags())
	return c
}

func (b *bootstrapHost) bindHost(f *pflag.FlagSet) {
	f.StringVar(&b.ownerName, "owner", "", b.owner+" that owns the repository")
	f.StringVar(&b.repository, "repository", "", "name of the repository")
	f.StringVar(&b.host, "hostname", b.hostname, "host of "+b.name+", with an optional port and path")
	f.BoolVar(&b.personal, "personal", false, "the owner is a user")
	f.BoolVar(&b.readWriteKey, "read-write-key", false, "the deploy key of the cluster may push")
	f.BoolVar(&b.reconcile, "reconcile", false, "change the visibility of an existing repository")
	f.StringSliceVar(&b.groups, b.groupFlag, nil,
		b.groupFlag+" that gets access, with an optional permission, such as "+b.groupExample)
	if b.kind == githost.GitLab {
		f.StringVar(&b.visibility, "visibility", githost.VisibilityPrivate,
			"visibility of the repository: public, internal or private")
	} else {
		f.BoolVar(&b.private, "private", true, "the repository is private")
	}
	if b.deployTokens {
		f.BoolVar(&b.deployTokenAuth, "deploy-token-auth", false, "the cluster uses a deploy token over https")
	}
	if b.kind == githost.BitbucketServer {
		f.StringVarP(&b.loginName, "username", "u", b.username, "username for https")
	}
}

func (b *bootstrapHost) run(ctx context.Context) error {
	host, login, err := b.access()
	if err != nil {
		return err
	}
	return b.bootstrapCommand.run(ctx, bootstrap.Repository{Host: host}, login)
}

// access returns the host with the login of the person, and the login of the cluster.
func (b *bootstrapHost) access() (*bootstrap.Host, bootstrap.Login, error) {
	if err := b.validate(); err != nil {
		return nil, bootstrap.Login{}, err
	}
	token, err := b.secretValue("token", "", b.tokenEnv, b.name+" token")
	if err != nil {
		return nil, bootstrap.Login{}, err
	}
	ca, err := b.ca()
	if err != nil {
		return nil, bootstrap.Login{}, err
	}
	login, err := b.clusterLogin(token, ca)
	if err != nil {
		return nil, bootstrap.Login{}, err
	}
	host, err := b.newHost(token, ca)
	return host, login, err
}

func (b *bootstrapHost) validate() error {
	for flag, value := range map[string]string{"owner": b.ownerName, "repository": b.repository, "hostname": b.host} {
		if err := require(flag, value); err != nil {
			return err
		}
	}
	switch {
	case b.kind == githost.GitLab:
		if err := oneOf("visibility", b.visibility, githost.VisibilityPublic, githost.VisibilityInternal,
			githost.VisibilityPrivate); err != nil {
			return err
		}
	case b.private:
		b.visibility = githost.VisibilityPrivate
	default:
		b.visibility = githost.VisibilityPublic
	}
	overHTTP := b.tokenAuth || b.deployTokenAuth
	switch {
	case b.tokenAuth && b.deployTokenAuth:
		return usagef("--token-auth and --deploy-token-auth exclude each other")
	case overHTTP && (b.keyFile != "" || b.knownHosts != "" || b.readWriteKey || b.sshHostname != ""):
		return usagef("--private-key-file, --known-hosts-file, --read-write-key and --ssh-hostname are for ssh: " +
			"remove them, or --token-auth and --deploy-token-auth")
	case b.personal && len(b.groups) > 0:
		return usagef("--personal and --%s exclude each other: the repository of a user has no %ss", b.groupFlag,
			b.groupFlag)
	}
	return nil
}

// clusterLogin returns the login of the cluster.
func (b *bootstrapHost) clusterLogin(token string, ca []byte) (bootstrap.Login, error) {
	data := map[string][]byte{}
	if len(ca) > 0 {
		data["ca.crt"] = ca
	}
	switch {
	case b.tokenAuth:
		data["password"] = []byte(token)
		return bootstrap.Login{Kind: bootstrap.Password, Data: data}, nil
	case b.deployTokenAuth:
		return bootstrap.Login{Kind: bootstrap.DeployToken, Data: data}, nil
	}
	login, err := b.sshLogin("")
	login.Writable = b.readWriteKey
	return login, err
}

// newHost returns the host with a client for the repository.
func (b *bootstrapHost) newHost(token string, ca []byte) (*bootstrap.Host, error) {
	base, err := url.Parse("https://" + strings.TrimSuffix(strings.TrimPrefix(b.host, "https://"), "/"))
	if err != nil || base.Hostname() == "" || base.User != nil || base.RawQuery != "" {
		return nil, usagef("invalid --hostname: use the name of the host, such as git.example.com")
	}
	owner := b.ownerName
	if b.kind == githost.BitbucketServer && b.personal {
		owner = "~" + strings.TrimPrefix(owner, "~")
	}
	path := owner + "/" + b.repository
	if b.kind == githost.BitbucketServer {
		path = "scm/" + path
	}
	repository, err := githost.Parse(b.kind, base.JoinPath(path).String())
	if err != nil {
		return nil, usagef("--owner and --repository: %w", err)
	}
	transport, err := (&egress.Policy{}).Transport(egress.Options{TLS: auth.TLS{CA: ca}})
	if err != nil {
		return nil, err
	}
	client, err := githost.New(githost.Options{Repository: repository, Transport: transport,
		Secret: map[string][]byte{"token": []byte(token)}})
	if err != nil {
		return nil, err
	}
	return &bootstrap.Host{Client: client, Base: repository.Base, Path: path,
		Create:   githost.NewProject{Visibility: b.visibility, Personal: b.personal, Reconcile: b.reconcile},
		Grants:   grants(b.groups),
		Username: cmp.Or(b.loginName, b.username), Token: token, CA: ca, SSHHostname: b.sshHostname}, nil
}

// grants parses the values of --team and --group: NAME or NAME:PERMISSION.
func grants(values []string) []githost.Grant {
	var all []githost.Grant
	for _, v := range values {
		g := githost.Grant{Group: v}
		if name, permission, ok := strings.Cut(v, ":"); ok {
			g = githost.Grant{Group: name, Permission: permission}
		}
		all = append(all, g)
	}
	return all
}
