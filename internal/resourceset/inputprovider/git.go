package inputprovider

import (
	"context"
	"iter"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	"github.com/sluice-gitops/sluice/internal/githost"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/source/git"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

// repository is the git host of a provider.
type repository interface {
	Branches(context.Context) iter.Seq2[githost.Ref, error]
	Tags(context.Context) iter.Seq2[githost.Ref, error]
	Requests(context.Context) iter.Seq2[githost.ListedRequest, error]
	LabelsOf(context.Context, githost.ListedRequest) ([]string, error)
}

// hosts are the kinds of git hosts by the prefix of types.
var hosts = map[string]githost.Kind{"GitHub": githost.GitHub, "GitLab": githost.GitLab, "Gitea": githost.Gitea,
	"AzureDevOps": githost.AzureDevOps}

func (p *provider) isGitLab() bool { return strings.HasPrefix(p.obj.Spec.Type, "GitLab") }

// repository returns a client of the git host.
func (p *provider) repository(ctx context.Context) (repository, error) {
	if strings.HasPrefix(p.obj.Spec.Type, "AWSCodeCommit") {
		return p.codeCommit()
	}
	return p.gitHost(ctx)
}

func (p *provider) gitHost(ctx context.Context) (*githost.Client, error) {
	spec := p.obj.Spec
	var kind githost.Kind
	for prefix, k := range hosts {
		if strings.HasPrefix(spec.Type, prefix) {
			kind = k
		}
	}
	repo, err := githost.Parse(kind, spec.URL)
	if err != nil {
		return nil, err
	}
	secret, err := p.Registries.Secrets.Data(ctx, p.obj.Namespace, spec.SecretRef, "spec.secretRef")
	if err != nil {
		return nil, err
	}
	transport, err := p.Registries.Transport(ctx, p.obj.Namespace, spec.CertSecretRef)
	if err != nil {
		return nil, err
	}
	options := githost.Options{Repository: repo, Secret: secret, Apps: p.GitHubApps, Transport: transport,
		Clock: p.Clock, Anonymous: spec.SecretRef == nil}
	if kind == githost.AzureDevOps && spec.SecretRef == nil {
		options.Identity = p.azureLogin(repo)
	}
	return githost.New(options)
}

// azureLogin returns the login with the identity of the service account, or of the process.
func (p *provider) azureLogin(repo githost.Repository) githost.Login {
	identities := p.Registries.Identities
	account := identities.Account(p.obj.Namespace, p.obj.Spec.ServiceAccountName)
	return func(ctx context.Context) (auth.GitCredentials, error) {
		scope, err := auth.AzureDevOpsScope(&url.URL{Scheme: repo.Base.Scheme, Host: repo.Base.Host})
		if err != nil {
			return auth.GitCredentials{}, err
		}
		token, err := identities.Bearer(ctx, auth.Azure, scope, account)
		return auth.GitCredentials{BearerToken: token}, err
	}
}

var commitID = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// checkCommit returns a fault if what a host calls a commit is none: it may end up in the spec of a source.
func checkCommit(what, commit string) error {
	if commitID.MatchString(commit) {
		return nil
	}
	return failed("the host returned no valid commit of %s", what)
}

// branches exports branches in the order of the host.
func (p *provider) branches(ctx context.Context) ([]controlplanev1.InputSet, error) {
	repo, err := p.repository(ctx)
	if err != nil {
		return nil, err
	}
	var sets []controlplanev1.InputSet
	seen := map[string]bool{}
	for ref, err := range repo.Branches(ctx) {
		if err != nil {
			return nil, err
		}
		if seen[ref.Name] || !p.filter.selects(ref.Name) {
			continue
		}
		seen[ref.Name] = true
		set, err := p.refSet("branch", ref)
		if err != nil {
			return nil, err
		}
		if sets = append(sets, set); len(sets) == p.obj.Limit() {
			break
		}
	}
	return sets, nil
}

// tags exports tags in the order of the filter.
func (p *provider) tags(ctx context.Context) ([]controlplanev1.InputSet, error) {
	repo, err := p.repository(ctx)
	if err != nil {
		return nil, err
	}
	commits := map[string]string{}
	for ref, err := range repo.Tags(ctx) {
		if err != nil {
			return nil, err
		}
		commits[ref.Name] = ref.Commit
	}
	ordered := p.filter.order(slices.Collect(maps.Keys(commits)))
	var sets []controlplanev1.InputSet
	for _, tag := range ordered[:min(len(ordered), p.obj.Limit())] {
		set, err := p.refSet("tag", githost.Ref{Name: tag, Commit: commits[tag]})
		if err != nil {
			return nil, err
		}
		sets = append(sets, set)
	}
	return sets, nil
}

// refSet returns the input set of a branch or a tag.
func (p *provider) refSet(kind string, ref githost.Ref) (controlplanev1.InputSet, error) {
	if err := checkCommit(kind+" '"+excerpt.Chars(ref.Name, 100)+"'", ref.Commit); err != nil {
		return nil, err
	}
	v := inputs{idKey: checksum(ref.Name), kind: ref.Name, "sha": ref.Commit}
	if p.isGitLab() {
		v["slug"] = slug(ref.Name)
	}
	return v.set(), nil
}

// requests exports open change requests in the order of the host.
func (p *provider) requests(ctx context.Context) ([]controlplanev1.InputSet, error) {
	repo, err := p.repository(ctx)
	if err != nil {
		return nil, err
	}
	var sets []controlplanev1.InputSet
	seen := map[int64]bool{}
	for r, err := range repo.Requests(ctx) {
		if err != nil {
			return nil, err
		}
		if seen[r.Number] || !p.filter.selects(r.Branch) {
			continue
		}
		seen[r.Number] = true
		set, err := p.requestSet(ctx, repo, r)
		if err != nil {
			return nil, err
		}
		if set == nil {
			continue
		}
		if sets = append(sets, set); len(sets) == p.obj.Limit() {
			break
		}
	}
	return sets, nil
}

// requestSet returns the input set of a change request: nil if it is left out, and the one that is exported already if
// it is skipped.
func (p *provider) requestSet(ctx context.Context, repo repository, r githost.ListedRequest) (controlplanev1.InputSet,
	error) {
	labels, err := repo.LabelsOf(ctx, r)
	if err != nil || !p.filter.hasLabels(labels) {
		return nil, err
	}
	id := strconv.FormatInt(r.Number, 10)
	if p.skips(labels) {
		return p.before[id], nil
	}
	if err := checkCommit("change request "+id, r.Commit); err != nil {
		return nil, err
	}
	v := inputs{idKey: id, "sha": r.Commit, "branch": r.Branch, "title": r.Title, "author": r.Author}
	if len(labels) > 0 {
		v["labels"] = labels
	}
	if p.isGitLab() {
		v["slug"] = slug(r.Branch)
	}
	return v.set(), nil
}

// environments exports the environments of GitLab with a deployment.
func (p *provider) environments(ctx context.Context) ([]controlplanev1.InputSet, error) {
	host, err := p.gitHost(ctx)
	if err != nil {
		return nil, err
	}
	var sets []controlplanev1.InputSet
	seen := map[int64]bool{}
	for e, err := range host.Environments(ctx) {
		if err != nil {
			return nil, err
		}
		if seen[e.ID] || !p.filter.selects(e.Name) {
			continue
		}
		seen[e.ID] = true
		e, ok, err := host.Deployed(ctx, e)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		if err := checkCommit("environment '"+excerpt.Chars(e.Name, 100)+"'", e.Commit); err != nil {
			return nil, err
		}
		sets = append(sets, inputs{idKey: strconv.FormatInt(e.ID, 10), "sha": e.Commit, "branch": e.Branch,
			"title": e.Name, "slug": e.Slug, "author": e.DeployedBy}.set())
		if len(sets) == p.obj.Limit() {
			break
		}
	}
	return sets, nil
}

const maxSlug = 63 // bytes, as in CI_COMMIT_REF_SLUG

var notSlug = regexp.MustCompile(`[^a-z0-9]`)

// slug returns a name as GitLab does in CI_COMMIT_REF_SLUG: usable as a part of the name of an object.
func slug(name string) string {
	s := notSlug.ReplaceAllString(strings.ToLower(name), "-")
	return strings.Trim(s[:min(len(s), maxSlug)], "-")
}

// remote returns the remote of a CodeCommit repository, with the identity of the service account or of the process.
func (p *provider) remote(ctx context.Context) (git.Remote, error) {
	identities := p.Registries.Identities
	account := identities.Account(p.obj.Namespace, p.obj.Spec.ServiceAccountName)
	credentials, err := identities.Git(ctx, auth.AWS, p.obj.Spec.URL, account)
	return git.Remote{URL: p.obj.Spec.URL, Credentials: credentials, Egress: p.Registries.Egress}, err
}
