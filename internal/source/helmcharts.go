package source

import (
	"context"
	"net/url"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/access"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/egress"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/source/helm"
	"github.com/sluice-gitops/sluice/internal/source/oci"
)

// HelmCharts opens the repositories that HelmRepositories name, with their credentials. Repositories share
// what they read: an index is read once for each digest, and a registry stays logged in.
type HelmCharts struct {
	access.Connector
	Objects    client.Reader // the cache
	Registries *access.Registries
	Store      *artifact.Store
	Limits     helm.Limits
	Indexes    helm.Indexes

	mu         sync.Mutex
	registries map[types.NamespacedName]map[string]keptRegistry // by the HelmRepository, and the chart's URL
}

type keptRegistry struct {
	*oci.Repository
	access string // what it was opened with
}

// Open returns the charts of a repository. One over HTTP is that of its artifact: no index is fetched.
func (c *HelmCharts) Open(ctx context.Context, obj *sourcev1.HelmRepository) (helm.Repository, error) {
	if obj.Spec.Type == sourcev1.HelmRepositoryTypeOCI {
		return c.registry(obj), nil
	}
	repository, err := c.http(ctx, obj)
	if err != nil {
		return nil, err
	}
	a := obj.Status.Artifact
	if a == nil {
		return nil, fault.New(sourcev1.NoSourceArtifactReason, "HelmRepository '%s/%s' has no artifact", obj.Namespace,
			obj.Name).
			WithHint("It goes on as soon as there is one: see the HelmRepository's conditions")
	}
	repository.Index, err = c.Indexes.Get(ctx, a.Digest, func() (*helm.Index, error) {
		file, err := c.Store.Open(*a)
		if err != nil {
			return nil, fault.New(sourcev1.SourceUnavailableReason,
				"the index of HelmRepository '%s/%s' is not in the storage", obj.Namespace, obj.Name).
				Because(err).WithHint("The HelmRepository fetches it anew")
		}
		defer file.Close() // only read
		return helm.ParseIndex(file, c.Limits.Index)
	})
	return repository, err
}

// Dependency returns the repository of a dependency's URL: that of a HelmRepository of the namespace with
// this URL, with its credentials, or else as anybody may see it.
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
	if strings.HasPrefix(at, oci.Scheme) {
		return c.registry(nobody), nil
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
	return errA == nil && errB == nil && parsedA.Scheme == parsedB.Scheme &&
		strings.EqualFold(parsedA.Host, parsedB.Host) &&
		strings.TrimSuffix(parsedA.Path, "/") == strings.TrimSuffix(parsedB.Path, "/") &&
		parsedA.RawQuery == parsedB.RawQuery
}

// http returns the client of a repository over HTTP(S), without an index. The certificates may stand in the
// Secret with the login too, as they did before spec.certSecretRef.
func (c *HelmCharts) http(ctx context.Context, obj *sourcev1.HelmRepository) (*helm.HTTP, error) {
	login, err := c.Secrets.Data(ctx, obj.Namespace, obj.Spec.SecretRef, "spec.secretRef")
	if err != nil {
		return nil, err
	}
	certificates := login
	if obj.Spec.CertSecretRef != nil {
		if certificates, err = c.Secrets.Data(ctx, obj.Namespace, obj.Spec.CertSecretRef,
			"spec.certSecretRef"); err != nil {
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

// registry returns the registry of a repository of type oci.
func (c *HelmCharts) registry(obj *sourcev1.HelmRepository) *helm.Registry {
	return &helm.Registry{URL: obj.Spec.URL, Limits: c.Limits,
		Open: func(ctx context.Context, url string) (*oci.Repository, error) {
			return c.openRegistry(ctx, obj, url)
		}}
}

// openRegistry returns the repository of a chart: the one that was opened before, if the access to it is as it was.
func (c *HelmCharts) openRegistry(ctx context.Context, obj *sourcev1.HelmRepository, url string) (*oci.Repository,
	error) {
	certificates := obj.Spec.CertSecretRef
	if certificates == nil {
		certificates = obj.Spec.SecretRef
	}
	to, key, err := c.Registries.Access(ctx, access.Registry{
		Namespace: obj.Namespace, URL: url, Insecure: obj.Spec.Insecure, Provider: obj.Spec.Provider,
		Secret: obj.Spec.SecretRef, Cert: certificates,
	})
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	name := client.ObjectKeyFromObject(obj)
	if kept, ok := c.registries[name][url]; ok && kept.access == key {
		return kept.Repository, nil
	}
	repository, err := oci.Open(url, to)
	if err != nil || obj.UID == "" {
		return repository, err
	}
	if c.registries == nil {
		c.registries = map[types.NamespacedName]map[string]keptRegistry{}
	}
	if c.registries[name] == nil {
		c.registries[name] = map[string]keptRegistry{}
	}
	c.registries[name][url] = keptRegistry{repository, key}
	return repository, nil
}

func (c *HelmCharts) forget(name types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.registries, name)
}
