package cli

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/apply"
	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/egress"
	"github.com/sluice-gitops/sluice/internal/gate/forecast"
	"github.com/sluice-gitops/sluice/internal/githost"
	"github.com/sluice-gitops/sluice/internal/mcp"
	"github.com/sluice-gitops/sluice/internal/preview"
	"github.com/sluice-gitops/sluice/internal/source/git"
	"github.com/sluice-gitops/sluice/internal/ui"
)

// cloneChanges computes changes of a clone, with the rights of the kubeconfig. It implements [mcp.Changes].
type cloneChanges struct {
	*env
	repo   *preview.Repository
	config *rest.Config

	mu sync.Mutex // held while a change is computed: each needs much memory
}

var _ mcp.Changes = (*cloneChanges)(nil)

// proposalPrefix begins the names of branches that an agent proposes.
const proposalPrefix = "sluice-mcp/"

// run previews a change. The caller must hold mu, and close the cluster of the options.
func (c *cloneChanges) run(ctx context.Context, u *ui.User, change mcp.Change) (*preview.Result, preview.Options,
	error) {

	o := preview.Options{URLs: c.repo.URLs(), Branch: strings.TrimPrefix(change.Base, "origin/"), Strict: true,
		Namespaces: []string{c.Namespace()}}
	var err error
	if change.Branch != "" {
		o.From, o.To, err = c.repo.Snapshots(change.Base, change.Branch)
	} else {
		files := map[string][]byte{}
		for _, f := range change.Files {
			files[f.Path] = contentOf(f)
		}
		o.From, o.To, err = c.repo.Edits(change.Base, files)
	}
	if err != nil {
		return nil, o, err
	}
	if o.Rules, err = o.From.Rules(); err != nil {
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

// contentOf returns the content of a file; nil if it is removed.
func contentOf(f mcp.File) []byte {
	if f.Delete {
		return nil
	}
	return append([]byte{}, f.Content...)
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
	return preview.DecisionsAbout(ctx, forecast.NewSimulation(o.Cluster.Client, time.Now()), result, time.Now())
}

// Propose implements [mcp.Changes]. The branch is a new one of this proposal, so no commit of others is overwritten.
func (c *cloneChanges) Propose(ctx context.Context, u *ui.User, p mcp.Proposal) (string, error) {
	remotes := c.repo.URLs()
	if len(remotes) == 0 {
		return "", errors.New("the clone has no remote to open a pull request at")
	}
	host, err := c.proposalHost(remotes[0])
	if err != nil {
		return "", err
	}
	branch := branchFor(p)
	if err := checkWatched(ctx, u, host.address, branch); err != nil {
		return "", err
	}
	if err := host.push(ctx, u, branch, p); err != nil {
		return "", err
	}
	return host.client.OpenRequest(ctx, githost.Request{Head: branch, Base: p.Base, Title: p.Title,
		Body: strings.TrimSpace(p.Message + "\n\nProposed by an agent for " + u.Name +
			". Review it before you merge.")})
}

var notInBranch = regexp.MustCompile(`[^a-z0-9]+`)

// branchFor returns the name of the branch of a proposal, which its content decides.
func branchFor(p mcp.Proposal) string {
	h := sha256.New()
	for _, f := range p.Files {
		fmt.Fprintf(h, "%q %t %q\n", f.Path, f.Delete, f.Content)
	}
	fmt.Fprintf(h, "%q %q %q", p.Base, p.Title, p.Message)
	slug := strings.Trim(notInBranch.ReplaceAllString(strings.ToLower(p.Title), "-"), "-")
	return proposalPrefix + strings.Trim(slug[:min(len(slug), 40)], "-") + "-" + hex.EncodeToString(h.Sum(nil)[:4])
}

// checkWatched refuses a branch that a GitRepository of the cluster may follow.
func checkWatched(ctx context.Context, u *ui.User, address, branch string) error {
	var all sourcev1.GitRepositoryList
	if err := u.Client.List(ctx, &all); err != nil {
		return fmt.Errorf("cannot check which branches are followed, so nothing is pushed: %w", err)
	}
	for n := range all.Items {
		g := &all.Items[n]
		ref := g.Spec.Reference
		if ref == nil || !preview.SameRepository(g.Spec.URL, address) {
			continue
		}
		if slices.Contains([]string{ref.Branch, strings.TrimPrefix(ref.Name, "refs/heads/")}, branch) {
			return fmt.Errorf("GitRepository '%s' follows branch '%s': nothing is pushed to it",
				client.ObjectKeyFromObject(g), branch)
		}
	}
	return nil
}

// proposalHost is the git host of a clone.
type proposalHost struct {
	address string // of the repository, by https
	client  *githost.Client
	login   auth.GitCredentials
}

// proposalHost returns the host of a repository, with the token of the environment.
func (c *cloneChanges) proposalHost(remote string) (*proposalHost, error) {
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
	h := &proposalHost{address: repository.CloneURL()}
	if h.client, err = githost.New(githost.Options{Repository: repository, Transport: transport,
		Secret: map[string][]byte{"token": []byte(token)}}); err != nil {
		return nil, err
	}
	h.login, err = auth.Git(h.address, pushLogin(kind, token))
	return h, err
}

// pushLogin returns the login to push with a token, as the kind of the host documents it.
func pushLogin(kind githost.Kind, token string) map[string][]byte {
	name, password, ok := strings.Cut(token, ":")
	switch {
	case kind == githost.BitbucketServer:
		return map[string][]byte{"bearerToken": []byte(token)}
	case kind == githost.Bitbucket && ok:
		return map[string][]byte{"username": []byte(name), "password": []byte(password)}
	case kind == githost.Bitbucket:
		return map[string][]byte{"username": []byte("x-token-auth"), "password": []byte(token)}
	}
	return map[string][]byte{"username": []byte("oauth2"), "password": []byte(token)}
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

// push pushes the files of a proposal to a new branch, on top of the one that it is for.
func (h *proposalHost) push(ctx context.Context, u *ui.User, branch string, p mcp.Proposal) error {
	dir, err := os.MkdirTemp("", "sluice-mcp-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	view := git.NewMirrors(filepath.Join(dir, "mirrors")).View(git.WriterPrefix + "mcp")
	remote := git.Remote{URL: h.address, Credentials: h.login}
	base, err := view.Begin(ctx, remote, p.Base)
	if err != nil {
		return err
	}
	if base.Tip.IsZero() {
		return fmt.Errorf("the repository has no branch '%s'", p.Base)
	}
	var edits []git.Edit
	for _, f := range p.Files {
		edits = append(edits, git.Edit{Path: f.Path, Content: contentOf(f)})
	}
	message := strings.TrimSpace(p.Title + "\n\n" + p.Message)
	hash, err := view.Commit(ctx, git.NewCommit{Parent: base.Commit, Edits: edits, Message: message,
		Author: git.Signature{Name: u.Name + " (by an agent)", Email: "sluice-mcp@localhost"}})
	if errors.Is(err, git.ErrUnchanged) {
		return fmt.Errorf("the files are in branch '%s' already", p.Base)
	}
	if err != nil {
		return err
	}
	return view.Push(ctx, []git.RefUpdate{{Name: "refs/heads/" + branch, New: hash}}, nil)
}
