package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/githost"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/review/preview"
	"github.com/sluice-gitops/sluice/internal/review/proposal"
	"github.com/sluice-gitops/sluice/internal/ui"
	"github.com/sluice-gitops/sluice/internal/ui/mcp"
)

// cloneChanges computes changes of a clone, with the rights of the kubeconfig. It implements [mcp.Changes].
type cloneChanges struct {
	*env
	repo   *preview.Repository
	config *rest.Config

	mu sync.Mutex // held while a change is computed: each needs much memory
}

var _ mcp.Changes = (*cloneChanges)(nil)

// run previews a change. The caller must hold mu, and close the cluster of the options.
func (c *cloneChanges) run(ctx context.Context, u *ui.User, change mcp.Change) (*preview.Result, preview.Options,
	error) {
	o := preview.Options{URLs: c.repo.URLs(), Branch: strings.TrimPrefix(change.Base, "origin/"), Strict: true,
		Namespaces: []string{cmp.Or(change.Namespace, c.Namespace())}}
	if err := o.Compare(c.repo, change.Base, change.Branch, mcp.ContentsOf(change.Files)); err != nil {
		return nil, o, err
	}
	target, err := apply.NewCluster(c.config, apply.ClusterOptions{})
	if err != nil {
		return nil, o, err
	}
	o.Cluster = &preview.Cluster{Client: u.Client, Config: c.config, Target: target}
	result, err := preview.Run(ctx, o)
	if err != nil {
		o.Cluster.Close()
	}
	return result, o, err
}

// Preview implements [mcp.Changes].
func (c *cloneChanges) Preview(ctx context.Context, u *ui.User, change mcp.Change) (any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	result, o, err := c.run(ctx, u, change)
	if err != nil {
		return nil, err
	}
	o.Cluster.Close()
	return result, nil
}

// SimulateGates implements [mcp.Changes].
func (c *cloneChanges) SimulateGates(ctx context.Context, u *ui.User, change mcp.Change) (any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	result, o, err := c.run(ctx, u, change)
	if err != nil {
		return nil, err
	}
	defer o.Cluster.Close()
	return preview.DecisionsAbout(ctx, o.Cluster.Client, result, time.Now())
}

// Propose implements [mcp.Changes].
func (c *cloneChanges) Propose(ctx context.Context, u *ui.User, p mcp.Proposal) (string, error) {
	remotes := c.repo.URLs()
	if len(remotes) == 0 {
		return "", errors.New("the clone has no remote to open a pull request at")
	}
	host, err := c.proposalHost(remotes[0])
	if err != nil {
		return "", err
	}
	return host.Open(ctx, u.Client, p.For(u))
}

// proposalHost returns the host of a repository, with the token of the environment.
func (c *cloneChanges) proposalHost(remote string) (*proposal.Host, error) {
	kind, address := c.hostKind(remote)
	repository, err := githost.Parse(kind, address)
	if err != nil {
		return nil, err
	}
	ip := net.ParseIP(repository.Base.Hostname())
	if repository.Base.Scheme != "https" && (ip == nil || !ip.IsLoopback()) {
		return nil, fmt.Errorf("the remote %s uses http, which would send the token as plain text",
			repository.Base.Host)
	}
	token := c.getenv("SLUICE_GIT_TOKEN")
	for _, name := range previewTokens[repository.Kind] {
		token = cmp.Or(token, c.getenv(name))
	}
	if token == "" {
		return nil, fmt.Errorf("set a token of the git host in $%s or $SLUICE_GIT_TOKEN",
			strings.Join(previewTokens[repository.Kind], ", $"))
	}
	transport, err := (&egress.Policy{}).Transport(egress.Options{})
	if err != nil {
		return nil, err
	}
	h := &proposal.Host{URL: repository.CloneURL(), Login: func(context.Context) (auth.GitCredentials, error) {
		username, password, bearer := kind.GitLogin(token)
		return auth.GitCredentials{Username: username, Password: password, BearerToken: bearer}, nil
	}}
	h.Client, err = githost.New(githost.Options{Repository: repository, Transport: transport,
		Secret: map[string][]byte{"token": []byte(token)}})
	return h, err
}

// hostKind returns the kind of the host of a remote, by its name or else by the variable that has its token, and the
// address of the repository by https.
func (c *cloneChanges) hostKind(remote string) (githost.Kind, string) {
	address := remote
	if !strings.Contains(address, "://") { // git@host:path
		_, rest, _ := strings.Cut(address, "@")
		address = "https://" + strings.Replace(rest, ":", "/", 1)
	}
	u, err := url.Parse(address)
	if err != nil {
		return githost.GitHub, remote
	}
	if u.Scheme == "ssh" {
		u.Scheme, u.Host = "https", u.Hostname()
	}
	u.User = nil
	for _, known := range []struct {
		part string
		kind githost.Kind
	}{{"github", githost.GitHub}, {"gitlab", githost.GitLab}, {"bitbucket.org", githost.Bitbucket},
		{"bitbucket", githost.BitbucketServer}, {"dev.azure.com", githost.AzureDevOps}} {
		if strings.Contains(u.Hostname(), known.part) {
			return known.kind, u.String()
		}
	}
	for _, kind := range []githost.Kind{githost.GitLab, githost.Gitea, githost.BitbucketServer, githost.AzureDevOps} {
		if slices.ContainsFunc(previewTokens[kind], func(name string) bool { return c.getenv(name) != "" }) {
			return kind, u.String()
		}
	}
	return githost.Gitea, u.String()
}
