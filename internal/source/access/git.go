package access

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/source/git"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// githubAppID is the key that marks a Secret as the credentials of a GitHub App.
const githubAppID = "githubAppID"

// Git gives access to git repositories.
type Git struct {
	Connector
	GitHubApps *auth.GitHubApps
	SSH        *git.SSHAlgorithms // the defaults of the SSH library if nil
}

// Remote returns the URL of the repository, how to connect to it, and the credentials.
func (g *Git) Remote(ctx context.Context, obj *sourcev1.GitRepository) (git.Remote, error) {
	remote := git.Remote{URL: obj.Spec.URL, Egress: g.Egress, SSH: g.SSH}
	secret, err := g.Secrets.Data(ctx, obj.Namespace, obj.Spec.SecretRef, "spec.secretRef")
	if err != nil {
		return remote, err
	}
	options, err := g.options(ctx, obj.Namespace, nil, obj.Spec.ProxySecretRef)
	if err != nil {
		return remote, err
	}
	remote.ProxyURL = proxyURL(options)
	provider := obj.Spec.Provider
	if _, isApp := secret[githubAppID]; isApp != (provider == sourcev1.ProviderGitHub) {
		return remote, fault.New(sourcev1.InvalidProviderConfigurationReason,
			"the provider 'github' requires a Secret with the key '%s', and the key requires the provider",
			githubAppID).
			WithHint("Set spec.provider to github and spec.secretRef to the Secret of a GitHub App, or neither").Final()
	}
	if provider == "" || provider == sourcev1.ProviderGeneric {
		remote.Credentials, err = auth.Git(obj.Spec.URL, secret)
		return remote, err
	}
	if options.TLS, err = auth.TLSFrom(secret); err != nil {
		return remote, err
	}
	account := g.Identities.Account(obj.Namespace, obj.Spec.ServiceAccountName)
	if provider == sourcev1.ProviderGitHub {
		remote.Credentials, err = g.githubApp(ctx, secret, options)
	} else if err = auth.CheckAuthorities(account, options.TLS, "spec.secretRef"); err == nil {
		remote.Credentials, err = g.Identities.Git(ctx, provider, obj.Spec.URL, account)
	}
	tls := options.TLS
	remote.Credentials.CA, remote.Credentials.ClientCert, remote.Credentials.ClientKey = tls.CA, tls.Cert, tls.Key
	// The tokens expire, so the mirror is identified by the account that they are issued to.
	remote.Identity = fmt.Sprintf("%s\x00%v\x00%x", provider, account, digest(secret))
	return remote, err
}

// githubApp returns the credentials of an installation of a GitHub App.
func (g *Git) githubApp(ctx context.Context, secret map[string][]byte, options egress.Options) (git.Credentials,
	error) {
	app, err := auth.GitHubAppFrom(secret)
	if err != nil {
		return git.Credentials{}, err
	}
	transport, err := g.Egress.Transport(options)
	if err != nil {
		return git.Credentials{}, err
	}
	return g.GitHubApps.Git(ctx, app, transport)
}

// digest returns a digest of the data of a Secret.
func digest(data map[string][]byte) []byte {
	h := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(data)) {
		fmt.Fprintf(h, "%d %s %d %s\n", len(key), key, len(data[key]), data[key])
	}
	return h.Sum(nil)
}

// GitReference translates the reference of the API; nil is the default branch.
func GitReference(ref *sourcev1.GitRepositoryRef) git.Reference {
	if ref == nil {
		return git.Reference{}
	}
	return git.Reference{Branch: ref.Branch, Tag: ref.Tag, SemVer: ref.SemVer, Name: ref.Name, Commit: ref.Commit}
}
