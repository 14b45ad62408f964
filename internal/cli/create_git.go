package cli

import (
	"context"

	"github.com/spf13/pflag"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// createGit holds the flags of `create source git`.
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
	f.StringVar(&g.url, "url", "", "URL of the repository: http, https or ssh")
	f.StringVar(&g.ref.Branch, "branch", "", "branch to follow (default: master)")
	f.StringVar(&g.ref.Tag, "tag", "", "tag to follow")
	f.StringVar(&g.ref.SemVer, "tag-semver", "", "range of tags to follow; the highest one is used")
	f.StringVar(&g.ref.Name, "ref-name", "", "full reference to follow, such as refs/pull/420/head")
	f.StringVar(&g.ref.Commit, "commit", "", "commit to pin")
	f.StringVar(&g.provider, "provider", "", "identity to log in with: generic, aws, azure or github")
	f.StringVar(&g.serviceAccount, "service-account", "",
		"service account whose identity the providers aws and azure use")
	f.StringVar(&g.secretRef, "secret-ref", "", "existing Secret with the credentials, instead of creating one")
	f.StringVar(&g.proxy, "proxy-secret-ref", "", "Secret with the address of a proxy")
	f.StringSliceVar(&g.ignore, "ignore-paths", nil, "paths to exclude, in .gitignore syntax")
	f.StringSliceVar(&g.sparse, "sparse-checkout-paths", nil, "directories to fetch (default: all)")
	f.BoolVar(&g.submodules, "recurse-submodules", false, "include submodules")
	f.BoolVarP(&g.silent, "silent", "s", false, "do not ask whether the host has the created deploy key")
	g.login.bind(f)
	f.StringVar(&g.login.caFile, "ca-file", "", "PEM file with the CA certificate of the host")
	return "--url https://example.com/org/app --branch main"
}

func (g *createGit) build(ctx context.Context, c *creation) (reconcile.Object, error) {
	if err := require("url", g.url); err != nil {
		return nil, err
	}
	u, err := gitURL(g.url)
	if err != nil {
		return nil, err
	}
	if err := optionalOneOf("provider", g.provider, sourcev1.ProviderGeneric, sourcev1.ProviderAWS,
		sourcev1.ProviderAzure,
		sourcev1.ProviderGitHub); err != nil {
		return nil, err
	}
	c.skipKeyPrompt = g.silent || g.login.keyFile != ""
	if g.secretRef == "" && (u.Scheme == "ssh" || g.login.isSet()) {
		if g.secretRef, err = g.login.secretFor(ctx, c, u); err != nil {
			return nil, err
		}
	}
	return &sourcev1.GitRepository{Spec: sourcev1.GitRepositorySpec{
		URL: g.url, Interval: c.interval, Reference: optional(g.ref),
		Provider: g.provider, ServiceAccountName: g.serviceAccount,
		SecretRef: localRef(g.secretRef), ProxySecretRef: localRef(g.proxy),
		Ignore: ignoreRules(g.ignore), SparseCheckout: g.sparse, RecurseSubmodules: g.submodules,
	}}, nil
}
