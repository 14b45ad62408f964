package cli

import (
	"context"

	"github.com/spf13/pflag"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// createGit holds the flags of `create source git`.
type createGit struct {
	spec   sourcev1.GitRepositorySpec
	ref    sourcev1.GitRepositoryRef
	ignore []string
	silent bool
	login  gitLogin
}

func (g *createGit) bind(f *pflag.FlagSet) string {
	f.StringVar(&g.spec.URL, "url", "", "URL of the repository: http, https or ssh")
	f.StringVar(&g.ref.Branch, "branch", "", "branch to follow (default: master)")
	f.StringVar(&g.ref.Tag, "tag", "", "tag to follow")
	f.StringVar(&g.ref.SemVer, "tag-semver", "", "range of tags to follow; the highest one is used")
	f.StringVar(&g.ref.Name, "ref-name", "", "full reference to follow, such as refs/pull/420/head")
	f.StringVar(&g.ref.Commit, "commit", "", "commit to pin")
	f.StringVar(&g.spec.Provider, "provider", "", "identity to log in with: generic, aws, azure or github")
	f.StringVar(&g.spec.ServiceAccountName, "service-account", "",
		"service account whose identity the providers aws and azure use")
	refVar(f, &g.spec.SecretRef, "secret-ref", "existing Secret with the credentials, instead of creating one")
	refVar(f, &g.spec.ProxySecretRef, "proxy-secret-ref", "Secret with the address of a proxy")
	f.StringSliceVar(&g.ignore, "ignore-paths", nil, "paths to exclude, in .gitignore syntax")
	f.StringSliceVar(&g.spec.SparseCheckout, "sparse-checkout-paths", nil, "directories to fetch (default: all)")
	f.BoolVar(&g.spec.RecurseSubmodules, "recurse-submodules", false, "include submodules")
	f.BoolVarP(&g.silent, "silent", "s", false, "do not ask whether the host has the created deploy key")
	g.login.bind(f)
	f.StringVar(&g.login.caFile, "ca-file", "", "PEM file with the CA certificate of the host")
	return "--url https://example.com/org/app --branch main"
}

func (g *createGit) build(ctx context.Context, c *creation) (reconcile.Object, error) {
	if err := require("url", g.spec.URL); err != nil {
		return nil, err
	}
	u, err := gitURL(g.spec.URL)
	if err != nil {
		return nil, err
	}
	if err := optionalOneOf("provider", g.spec.Provider, sourcev1.ProviderGeneric, sourcev1.ProviderAWS,
		sourcev1.ProviderAzure, sourcev1.ProviderGitHub); err != nil {
		return nil, err
	}
	c.skipKeyPrompt = g.silent || g.login.keyFile != ""
	if g.spec.SecretRef == nil && (u.Scheme == "ssh" || g.login.isSet()) {
		name, err := g.login.secretFor(ctx, c, u)
		if err != nil {
			return nil, err
		}
		g.spec.SecretRef = localRef(name)
	}
	g.spec.Interval, g.spec.Reference, g.spec.Ignore = c.interval, optional(g.ref), ignoreRules(g.ignore)
	return &sourcev1.GitRepository{Spec: g.spec}, nil
}
