package source

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/egress"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/source/git"
)

// githubAppID is the key by which a Secret is one of a GitHub App.
const githubAppID = "githubAppID"

// Remote says where the repository is, how to get there and how to get in.
func (g *GitRepository) Remote(ctx context.Context, obj *sourcev1.GitRepository) (git.Remote, error) {
	remote := git.Remote{URL: obj.Spec.URL, Egress: g.Egress, SSH: g.SSH}
	data, err := g.Secrets.Data(ctx, obj.Namespace, obj.Spec.SecretRef, "spec.secretRef")
	if err != nil {
		return remote, err
	}
	way, err := g.way(ctx, obj.Namespace, nil, obj.Spec.ProxySecretRef)
	if err != nil {
		return remote, err
	}
	remote.ProxyURL = proxyURL(way)
	provider := obj.Spec.Provider
	if _, isApp := data[githubAppID]; isApp != (provider == sourcev1.ProviderGitHub) {
		return remote, fault.New(sourcev1.InvalidProviderConfigurationReason,
			"the provider github and the key %s of the Secret belong together", githubAppID).
			WithHint("Set spec.provider to github and spec.secretRef to the Secret of a GitHub App, or neither").Final()
	}
	if provider == "" || provider == sourcev1.ProviderGeneric {
		remote.Credentials, err = auth.Git(obj.Spec.URL, data)
		return remote, err
	}
	if way.TLS, err = auth.TLSFrom(data); err != nil {
		return remote, err
	}
	account := g.Identities.Account(obj.Namespace, obj.Spec.ServiceAccountName)
	if provider == sourcev1.ProviderGitHub {
		remote.Credentials, err = g.githubApp(ctx, data, way)
	} else {
		remote.Credentials, err = g.Identities.Git(ctx, provider, obj.Spec.URL, account)
	}
	remote.Credentials.CA, remote.Credentials.ClientCert, remote.Credentials.ClientKey = way.TLS.CA, way.TLS.Cert,
		way.TLS.Key
	remote.Identity = fmt.Sprintf("%s\x00%v\x00%x", provider, account, digest(data)) // its tokens come and go
	return remote, err
}

// githubApp logs in as an installation of a GitHub App.
func (g *GitRepository) githubApp(ctx context.Context, data map[string][]byte, way egress.Options) (git.Credentials,
	error) {
	app, err := auth.GitHubAppFrom(data)
	if err != nil {
		return git.Credentials{}, err
	}
	transport, err := g.Egress.Transport(way)
	if err != nil {
		return git.Credentials{}, err
	}
	return g.GitHubApps.Git(ctx, app, transport)
}

// digest tells Secrets apart.
func digest(data map[string][]byte) []byte {
	h := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(data)) {
		fmt.Fprintf(h, "%d %s %d %s\n", len(key), key, len(data[key]), data[key])
	}
	return h.Sum(nil)
}
