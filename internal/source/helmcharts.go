package source

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/authn"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/egress"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/source/helm"
)

// HelmCharts opens the repositories that HelmRepositories name, with their credentials. Repositories share what they read: an
// index is read once for each digest, and a registry stays logged in.
type HelmCharts struct {
	Objects    client.Reader // the cache
	Secrets    Secrets
	Egress     *egress.Policy
	Identities *auth.Identities
	Store      *artifact.Store
	Limits     helm.Limits
	Indexes    helm.Indexes

	registries sync.Map // from the HelmRepository's name to keptRegistry
}

type keptRegistry struct {
	access   [sha256.Size]byte // what it was opened with
	registry *helm.Registry
}

// Open returns the charts of a repository. One over HTTP is that of its artifact: no index is fetched.
func (c *HelmCharts) Open(ctx context.Context, obj *sourcev1.HelmRepository) (helm.Repository, error) {
	if obj.Spec.Type == sourcev1.HelmRepositoryTypeOCI {
		return c.registry(ctx, obj)
	}
	repository, err := c.http(ctx, obj)
	if err != nil {
		return nil, err
	}
	a := obj.Status.Artifact
	if a == nil {
		return nil, fault.New(sourcev1.NoSourceArtifactReason, "HelmRepository '%s/%s' has no artifact", obj.Namespace, obj.Name).
			WithHint("It goes on as soon as there is one: see the HelmRepository's conditions")
	}
	repository.Index, err = c.Indexes.Get(ctx, a.Digest, func() (*helm.Index, error) {
		file, err := c.Store.Open(*a)
		if err != nil {
			return nil, fault.New(sourcev1.SourceUnavailableReason, "the index of HelmRepository '%s/%s' is not in the storage", obj.Namespace, obj.Name).
				Because(err).WithHint("The HelmRepository fetches it anew")
		}
		defer file.Close() // only read
		return helm.ParseIndex(file, c.Limits.Index)
	})
	return repository, err
}

// Dependency returns the repository of a dependency's URL: that of a HelmRepository of the namespace with this URL, with its
// credentials, or else as anybody may see it.
func (c *HelmCharts) Dependency(ctx context.Context, namespace, at string) (helm.Repository, error) {
	var all sourcev1.HelmRepositoryList
	if err := c.Objects.List(ctx, &all, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	for i := range all.Items {
		if sameRepository(all.Items[i].Spec.URL, at) {
			return c.Open(ctx, &all.Items[i])
		}
	}
	nobody := &sourcev1.HelmRepository{Spec: sourcev1.HelmRepositorySpec{URL: at}}
	if strings.HasPrefix(at, "oci://") {
		transport, err := c.Egress.Transport(egress.Options{})
		return c.newRegistry(nobody, transport, authn.NewMultiKeychain()), err
	}
	repository, err := c.http(ctx, nobody)
	if err != nil {
		return nil, err
	}
	file, err := repository.FetchIndex(ctx, helm.Validators{})
	if err != nil {
		return nil, err
	}
	defer file.Close() // it was read
	repository.Index, err = c.Indexes.Get(ctx, file.Digest, func() (*helm.Index, error) { return file.Parse(c.Limits) })
	return repository, err
}

// sameRepository compares URLs but for case of the host and a slash at the end.
func sameRepository(a, b string) bool {
	parsedA, errA := url.Parse(a)
	parsedB, errB := url.Parse(b)
	return errA == nil && errB == nil && parsedA.Scheme == parsedB.Scheme && strings.EqualFold(parsedA.Host, parsedB.Host) &&
		strings.TrimSuffix(parsedA.Path, "/") == strings.TrimSuffix(parsedB.Path, "/") && parsedA.RawQuery == parsedB.RawQuery
}

// http returns the client of a repository over HTTP(S), without an index.
func (c *HelmCharts) http(ctx context.Context, obj *sourcev1.HelmRepository) (*helm.HTTP, error) {
	login, transport, err := c.access(ctx, obj)
	if err != nil {
		return nil, err
	}
	basic, err := auth.BasicFrom(login)
	if err != nil {
		return nil, err
	}
	return &helm.HTTP{
		URL: obj.Spec.URL, Username: basic.Username, Password: basic.Password, PassCredentials: obj.Spec.PassCredentials,
		Transport: transport, Limits: c.Limits,
	}, nil
}

// access returns the Secret with the login, and the way to the repository. The certificates may stand in that Secret too, as
// they did before spec.certSecretRef.
func (c *HelmCharts) access(ctx context.Context, obj *sourcev1.HelmRepository) (login map[string][]byte, transport http.RoundTripper, err error) {
	if login, err = c.Secrets.Data(ctx, obj.Namespace, obj.Spec.SecretRef, "spec.secretRef"); err != nil {
		return nil, nil, err
	}
	certificates := login
	if obj.Spec.CertSecretRef != nil {
		if certificates, err = c.Secrets.Data(ctx, obj.Namespace, obj.Spec.CertSecretRef, "spec.certSecretRef"); err != nil {
			return nil, nil, err
		}
	}
	tls, err := auth.TLSFrom(certificates)
	if err != nil {
		return nil, nil, err
	}
	transport, err = c.Egress.Transport(egress.Options{TLS: tls})
	return login, transport, err
}

// registry returns the registry of a repository of type oci: the one that was opened before, if nothing changed.
func (c *HelmCharts) registry(ctx context.Context, obj *sourcev1.HelmRepository) (*helm.Registry, error) {
	login, transport, err := c.access(ctx, obj)
	if err != nil {
		return nil, err
	}
	keychain, identity, err := c.keychain(ctx, obj, login)
	if err != nil {
		return nil, err
	}
	opened, err := json.Marshal([]any{obj.UID, obj.Spec.URL, obj.Spec.Insecure, login, identity, fmt.Sprintf("%p", transport)})
	if err != nil {
		return nil, err
	}
	access, name := sha256.Sum256(opened), client.ObjectKeyFromObject(obj)
	if kept, ok := c.registries.Load(name); ok && kept.(keptRegistry).access == access {
		return kept.(keptRegistry).registry, nil
	}
	registry := c.newRegistry(obj, transport, keychain)
	if err := registry.Check(); err != nil {
		return nil, err
	}
	c.registries.Store(name, keptRegistry{access, registry})
	return registry, nil
}

func (c *HelmCharts) newRegistry(obj *sourcev1.HelmRepository, transport http.RoundTripper, keychain authn.Keychain) *helm.Registry {
	return &helm.Registry{URL: obj.Spec.URL, Keychain: keychain, Transport: transport, Insecure: obj.Spec.Insecure, Limits: c.Limits}
}

// keychain returns the login to the registry: of the Secret where one is named, else that of the provider's workload identity,
// with what tells one such login from the next.
func (c *HelmCharts) keychain(ctx context.Context, obj *sourcev1.HelmRepository, login map[string][]byte) (authn.Keychain, *authn.AuthConfig, error) {
	if provider := obj.Spec.Provider; obj.Spec.SecretRef == nil && provider != "" && provider != sourcev1.ProviderGeneric {
		authenticator, err := c.Identities.Registry(ctx, provider, obj.Spec.URL, nil)
		if err != nil {
			return nil, nil, err
		}
		config, err := authenticator.Authorization()
		if err != nil {
			return nil, nil, fault.New(meta.AuthenticationFailedReason, "cannot log in to the registry as %s says", provider).Because(err)
		}
		return anyRegistry{authenticator}, config, nil
	}
	u, err := url.Parse(obj.Spec.URL)
	if err != nil {
		return nil, nil, fault.New(meta.URLInvalidReason, "spec.url cannot be read").Final()
	}
	keychain, err := auth.RegistryFrom(login, u.Host)
	return keychain, nil, err
}

// anyRegistry is the login to the one registry that is asked.
type anyRegistry struct{ login authn.Authenticator }

// Resolve implements authn.Keychain.
func (a anyRegistry) Resolve(authn.Resource) (authn.Authenticator, error) { return a.login, nil }

func (c *HelmCharts) forget(name types.NamespacedName) { c.registries.Delete(name) }
