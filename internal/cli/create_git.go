package cli

import (
	"context"

	"github.com/spf13/pflag"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// createGit is the flags of `create source git`.
type createGit struct {
	url, provider      string
	ref                sourcev1.GitRepositoryRef
	secretRef, proxy   string
	serviceAccount     string
	ignore, sparse     []string
	submodules, silent bool
	login              gitLogin
}

func (g *createGit) bind(f *pflag.FlagSet) string {
	f.StringVar(&g.url, "url", "", "URL of the repository, over http, https or ssh")
	f.StringVar(&g.ref.Branch, "branch", "", "branch to follow (default: master)")
	f.StringVar(&g.ref.Tag, "tag", "", "tag to follow")
	f.StringVar(&g.ref.SemVer, "tag-semver", "", "range of tags to follow, highest first")
	f.StringVar(&g.ref.Name, "ref-name", "", "full reference to follow, such as refs/pull/420/head")
	f.StringVar(&g.ref.Commit, "commit", "", "commit to pin")
	f.StringVar(&g.provider, "provider", "", "whose identity to log in by: generic, aws, azure or github")
	f.StringVar(&g.serviceAccount, "service-account", "",
		"account whose identity is used with the providers aws and azure")
	f.StringVar(&g.secretRef, "secret-ref", "", "Secret with the login; none is made then")
	f.StringVar(&g.proxy, "proxy-secret-ref", "", "Secret with the proxy")
	f.StringSliceVar(&g.ignore, "ignore-paths", nil, "paths to leave out, in .gitignore syntax")
	f.StringSliceVar(&g.sparse, "sparse-checkout-paths", nil, "directories to take; all when not set")
	f.BoolVar(&g.submodules, "recurse-submodules", false, "take submodules too")
	f.BoolVarP(&g.silent, "silent", "s", false, "do not ask whether the host knows the key that was made")
	g.login.bind(f)
	f.StringVar(&g.login.caFile, "ca-file", "", "file with the host's certificate authority in PEM")
	return "--url https://example.com/org/app --branch main"
}

func (g *createGit) make(ctx context.Context, c *creation) (reconcile.Object, error) {
	if err := need("url", g.url); err != nil {
		return nil, err
	}
	u, err := gitURL(g.url)
	if err != nil {
		return nil, err
	}
	if g.provider != "" {
		if err := oneOf("provider", g.provider, sourcev1.ProviderGeneric, sourcev1.ProviderAWS, sourcev1.ProviderAzure,
			sourcev1.ProviderGitHub); err != nil {
			return nil, err
		}
	}
	c.silent = g.silent || g.login.keyFile != ""
	if g.secretRef == "" && (u.Scheme == "ssh" || g.login.given()) {
		if g.secretRef, err = g.login.secretFor(ctx, c, u); err != nil {
			return nil, err
		}
	}
	return &sourcev1.GitRepository{Spec: sourcev1.GitRepositorySpec{
		URL: g.url, Interval: c.interval, Reference: orNil(g.ref),
		Provider: g.provider, ServiceAccountName: g.serviceAccount,
		SecretRef: refer(g.secretRef), ProxySecretRef: refer(g.proxy),
		Ignore: ignoreRules(g.ignore), SparseCheckout: g.sparse, RecurseSubmodules: g.submodules,
	}}, nil
}
