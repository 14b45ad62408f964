package cli

import (
	"cmp"
	"context"
	"os"
	"strings"

	"github.com/sluice-gitops/sluice/internal/githost"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/review/preview"
)

// pullRequest is a pull request on a git host.
type pullRequest struct {
	client     *githost.Client
	repository githost.Repository
	number     int
	token      string
}

// previewTokens are the environment variables with a token for a host. The first that is set is used.
var previewTokens = map[githost.Kind][]string{
	githost.GitHub: {"GITHUB_TOKEN"}, githost.GitLab: {"GITLAB_TOKEN"}, githost.Gitea: {"GITEA_TOKEN"},
	githost.Bitbucket: {"BITBUCKET_TOKEN"}, githost.BitbucketServer: {"BITBUCKET_TOKEN"},
	githost.AzureDevOps: {"AZURE_DEVOPS_TOKEN", "SYSTEM_ACCESSTOKEN"},
}

func newPullRequest(address string) (*pullRequest, error) {
	repository, number, err := githost.ParsePull(address)
	if err != nil {
		return nil, usageError{err}
	}
	p := &pullRequest{repository: repository, number: number, token: os.Getenv("SLUICE_GIT_TOKEN")}
	names := previewTokens[repository.Kind]
	for _, name := range names {
		p.token = cmp.Or(p.token, os.Getenv(name))
	}
	if p.token == "" {
		return nil, usagef("set a token of the git host in $%s or $SLUICE_GIT_TOKEN", strings.Join(names, ", $"))
	}
	transport, err := (&egress.Policy{}).Transport(egress.Options{})
	if err != nil {
		return nil, err
	}
	p.client, err = githost.New(githost.Options{Repository: repository, Transport: transport,
		Secret: map[string][]byte{"token": []byte(p.token)}})
	return p, err
}

// fetch returns a temporary repository with the branch that the pull request lands on, and its commit.
func (p *pullRequest) fetch(ctx context.Context) (repo *preview.Repository, from, to string, err error) {
	pull, err := p.client.Pull(ctx, p.number)
	if err != nil {
		return nil, "", "", err
	}
	from = "refs/heads/" + pull.Base
	repo, err = preview.Fetch(ctx, p.repository.CloneURL(), preview.TokenLogin(p.repository.Kind, p.token), from,
		pull.Ref)
	return repo, from, pull.Head, err
}

// comment posts the preview, or updates the comment of an earlier one.
func (p *pullRequest) comment(ctx context.Context, r *preview.Result) error {
	return p.client.Comment(ctx, githost.Comment{Request: p.number, Key: "sluice preview",
		Body: r.Comment(min(p.client.CommentMax(), markdownMax), p.client.RendersHTML())})
}
