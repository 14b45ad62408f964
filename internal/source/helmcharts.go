package source

import (
	"context"
	"net/url"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/source/access"
	"github.com/sluice-gitops/sluice/internal/source/helm"
	"github.com/sluice-gitops/sluice/internal/source/oci"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// HelmCharts opens the chart repositories that HelmRepositories declare, with their credentials. Parsed indexes and
// logins to registries are shared by all charts.
type HelmCharts struct {
	access.Connector
	Objects    client.Reader // a cache
	Registries *access.Registries
	Store      *artifact.Store // nil where none is at hand: indexes are downloaded then
	Limits     helm.Limits
	Indexes    helm.Indexes

	mu         sync.Mutex
	registries map[types.NamespacedName]map[string]helmRegistry // by name of the HelmRepository and URL of the chart
}

// helmRegistry is a login to the repository of a chart.
type helmRegistry struct {
	*oci.Repository
	key string // of the access that it was opened with
}

// Open returns the charts of a HelmRepository. For a repository over HTTP it reads the index from the artifact and
// sends no request. Without a store, it downloads the index.
func (c *HelmCharts) Open(ctx context.Context, obj *sourcev1.HelmRepository) (helm.Repository, error) {
	if obj.Spec.Type == sourcev1.HelmRepositoryTypeOCI {
		return c.registry(obj), nil
	}
	repository, err := c.http(ctx, obj)
	if err != nil {
		return nil, err
	}
	if c.Store == nil {
		return c.download(ctx, repository)
	}
	a := obj.Status.Artifact
	if a == nil {
		return nil, noArtifact(sourcev1.HelmRepositoryKind, obj.Namespace, obj.Name)
	}
	repository.Index, err = c.Indexes.Get(ctx, a.Digest, func() (*helm.Index, error) {
		file, err := c.Store.Open(*a)
		if err != nil {
			return nil, fault.New(sourcev1.SourceUnavailableReason,
				"the index of HelmRepository '%s/%s' is missing from the storage", obj.Namespace, obj.Name).
				Because(err).WithHint("The HelmRepository fetches it again at its next reconciliation")
		}
		defer file.Close() // it was only read
		return helm.ParseIndex(context.WithoutCancel(ctx), file, c.Limits.Index)
	})
	return repository, err
}

// Dependency returns the repository with the URL of a dependency. If a HelmRepository in the namespace has
// this URL, its credentials are used; otherwise the access is anonymous, and the index of a repository over
// HTTP is downloaded.
func (c *HelmCharts) Dependency(ctx context.Context, namespace, repositoryURL string) (helm.Repository, error) {
	var all sourcev1.HelmRepositoryList
	if err := c.Objects.List(ctx, &all, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	for i := range all.Items {
		if sameRepository(all.Items[i].Spec.URL, repositoryURL) {
			return c.Open(ctx, &all.Items[i])
		}
	}
	anonymous := &sourcev1.HelmRepository{Spec: sourcev1.HelmRepositorySpec{URL: repositoryURL}}
	if strings.HasPrefix(repositoryURL, oci.Scheme) {
		return c.registry(anonymous), nil
	}
	repository, err := c.http(ctx, anonymous)
	if err != nil {
		return nil, err
	}
	return c.download(ctx, repository)
}

// download adds the index to a repository over HTTP, which it requests.
func (c *HelmCharts) download(ctx context.Context, repository *helm.HTTP) (helm.Repository, error) {
	file, err := repository.FetchIndex(ctx, helm.Validators{})
	if err != nil {
		return nil, err
	}
	defer file.Close() // it was only read
	repository.Index, err = c.Indexes.Get(ctx, file.Digest, func() (*helm.Index, error) {
		return file.Parse(context.WithoutCancel(ctx), c.Limits)
	})
	return repository, err
}

// sameRepository compares URLs, ignoring the case of the host and a trailing slash.
func sameRepository(a, b string) bool {
	parsedA, errA := url.Parse(a)
	parsedB, errB := url.Parse(b)
	return errA == nil && errB == nil && parsedA.Scheme == parsedB.Scheme &&
		strings.EqualFold(parsedA.Host, parsedB.Host) &&
		strings.TrimSuffix(parsedA.Path, "/") == strings.TrimSuffix(parsedB.Path, "/") &&
		parsedA.RawQuery == parsedB.RawQuery
}

// http returns a client for a repository over HTTP, without its index. Objects older than spec.certSecretRef have their
// certificates in the Secret with the login.
func (c *HelmCharts) http(ctx context.Context, obj *sourcev1.HelmRepository) (*helm.HTTP, error) {
	login, err := c.Secrets.Data(ctx, obj.Namespace, obj.Spec.SecretRef, "spec.secretRef")
	if err != nil {
		return nil, err
	}
	certificates := login
	if ref := obj.Spec.CertSecretRef; ref != nil {
		if certificates, err = c.Secrets.Data(ctx, obj.Namespace, ref, "spec.certSecretRef"); err != nil {
			return nil, err
		}
	}
	basic, err := auth.BasicFrom(login)
	if err != nil {
		return nil, err
	}
	tls, err := auth.TLSFrom(certificates)
	if err != nil {
		return nil, err
	}
	transport, err := c.Egress.Transport(egress.Options{TLS: tls})
	if err != nil {
		return nil, err
	}
	return &helm.HTTP{
		URL: obj.Spec.URL, Username: basic.Username, Password: basic.Password,
		PassCredentials: obj.Spec.PassCredentials,
		Transport:       transport, Limits: c.Limits,
	}, nil
}

// registry returns a client for a repository of type oci.
func (c *HelmCharts) registry(obj *sourcev1.HelmRepository) *helm.Registry {
	return &helm.Registry{URL: obj.Spec.URL, Limits: c.Limits,
		Open: func(ctx context.Context, url string) (*oci.Repository, error) {
			return c.openRegistry(ctx, obj, url)
		}}
}

// openRegistry returns the repository of a chart. It reuses the last login unless the access has changed.
func (c *HelmCharts) openRegistry(ctx context.Context, obj *sourcev1.HelmRepository, url string) (*oci.Repository,
	error) {
	certificates := obj.Spec.CertSecretRef
	if certificates == nil {
		certificates = obj.Spec.SecretRef
	}
	granted, key, err := c.Registries.Access(ctx, access.Registry{
		Namespace: obj.Namespace, URL: url, Insecure: obj.Spec.Insecure, Provider: obj.Spec.Provider,
		Secret: obj.Spec.SecretRef, Cert: certificates,
	})
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	name := client.ObjectKeyFromObject(obj)
	if r, ok := c.registries[name][url]; ok && r.key == key {
		return r.Repository, nil
	}
	repository, err := oci.Open(url, granted)
	if err != nil || obj.UID == "" {
		return repository, err
	}
	if c.registries == nil {
		c.registries = map[types.NamespacedName]map[string]helmRegistry{}
	}
	if c.registries[name] == nil {
		c.registries[name] = map[string]helmRegistry{}
	}
	c.registries[name][url] = helmRegistry{repository, key}
	return repository, nil
}

// forget removes the logins of a HelmRepository.
func (c *HelmCharts) forget(name types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.registries, name)
}
