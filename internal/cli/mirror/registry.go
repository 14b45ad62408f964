package mirror

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/sluice-gitops/sluice/internal/source/helm"
	"github.com/sluice-gitops/sluice/internal/source/oci"
)

// Registries connects to registries and Helm repositories, with the logins of a keychain.
type Registries struct {
	Transport http.RoundTripper
	Keychain  authn.Keychain
	PlainHTTP []string // hosts that do not support HTTPS
	cache     auth.Cache
}

// login returns the credentials for a host.
func (r *Registries) login(host string) (authn.AuthConfig, error) {
	if host == "docker.io" || host == "registry-1.docker.io" {
		host = name.DefaultRegistry
	}
	resource, err := name.NewRegistry(host, name.WeakValidation)
	if err != nil {
		return authn.AuthConfig{}, err
	}
	found, err := r.Keychain.Resolve(resource)
	if err != nil {
		return authn.AuthConfig{}, fmt.Errorf("cannot find the login of %s: %w", host, err)
	}
	login, err := found.Authorization()
	if err != nil {
		return authn.AuthConfig{}, fmt.Errorf("cannot read the login of %s: %w", host, err)
	}
	return *login, nil
}

// isPlain reports whether a host is connected to over HTTP.
func (r *Registries) isPlain(host string) bool { return slices.Contains(r.PlainHTTP, host) }

// repository returns a repository, HOST/PATH, to copy from or to.
func (r *Registries) repository(address string) (*remote.Repository, error) {
	ref, err := registry.ParseReference(address)
	if err != nil || ref.Reference != "" {
		return nil, fmt.Errorf("%.200q is not a repository: use HOST/PATH", address)
	}
	if r.cache == nil {
		r.cache = auth.NewCache()
	}
	repo, err := remote.NewRepository(address)
	if err != nil {
		return nil, err
	}
	repo.PlainHTTP = r.isPlain(ref.Registry)
	repo.SkipReferrersGC = true
	repo.MaxMetadataBytes = maxManifest
	repo.Client = &auth.Client{
		Client: &http.Client{Transport: r.Transport}, Cache: r.cache,
		Header: http.Header{"User-Agent": {"sluice"}},
		Credential: func(_ context.Context, host string) (auth.Credential, error) {
			login, err := r.login(host)
			return auth.Credential{Username: login.Username, Password: login.Password,
				RefreshToken: login.IdentityToken, AccessToken: login.RegistryToken}, err
		},
	}
	return repo, nil
}

// open returns a repository for the selection of versions.
func (r *Registries) open(_ context.Context, url string) (*oci.Repository, error) {
	address := url[len(ociScheme):]
	ref, err := registry.ParseReference(address)
	if err != nil {
		return nil, fmt.Errorf("%.200q is not the URL of a repository", url)
	}
	login, err := r.login(ref.Registry)
	if err != nil {
		return nil, err
	}
	return oci.Open(url, oci.Access{Transport: r.Transport, Login: login, Insecure: r.isPlain(ref.Registry)})
}

// charts returns a Helm repository over HTTP(S) with its index. The index is fetched once.
func (c *Copier) charts(ctx context.Context, url string) (*helm.HTTP, error) {
	if known := c.indexes[url]; known != nil {
		return known, nil
	}
	h := &helm.HTTP{URL: url, Transport: c.Registries.Transport, Limits: helm.DefaultLimits}
	host, err := hostOf(url)
	if err != nil {
		return nil, err
	}
	login, err := c.Registries.login(host)
	if err != nil {
		return nil, err
	}
	h.Username, h.Password = login.Username, login.Password
	file, err := h.FetchIndex(ctx, helm.Validators{})
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	if h.Index, err = file.Parse(ctx, h.Limits); err != nil {
		return nil, err
	}
	if c.indexes == nil {
		c.indexes = map[string]*helm.HTTP{}
	}
	c.indexes[url] = h
	return h, nil
}
