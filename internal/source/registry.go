package source

import (
	"context"
	"crypto/sha256"
	"encoding/json"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/egress"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/source/oci"
)

// Registries gives access to registries as objects declare it.
type Registries struct {
	Secrets    Secrets
	Egress     *egress.Policy
	Identities *auth.Identities
}

// registryAccess is what an object says of the access to a repository.
type registryAccess struct {
	namespace, url      string
	insecure            bool
	provider            string
	secret, cert, proxy *meta.LocalObjectReference
	serviceAccount      string
}

// open returns the repository with the access that is declared, and a key that differs when the access does. Nothing is sent
// but for the login of a cloud's provider.
func (r *Registries) open(ctx context.Context, a registryAccess) (open func() (*oci.Repository, error), key string, err error) {
	repo, err := oci.ParseURL(a.url, a.insecure)
	if err != nil {
		return nil, "", err
	}
	way, err := r.way(ctx, a)
	if err != nil {
		return nil, "", err
	}
	transport, err := r.Egress.Transport(way)
	if err != nil {
		return nil, "", err
	}
	login, err := r.login(ctx, a, repo)
	if err != nil {
		return nil, "", err
	}
	access := oci.Access{Transport: transport, Login: *login, Insecure: a.insecure}
	key = fingerprint(a.url, a.insecure, way.TLS, proxyURL(way), login)
	return func() (*oci.Repository, error) { return oci.Open(a.url, access) }, key, nil
}

// way says how to get to the registry.
func (r *Registries) way(ctx context.Context, a registryAccess) (egress.Options, error) {
	var o egress.Options
	cert, err := r.Secrets.Data(ctx, a.namespace, a.cert, "spec.certSecretRef")
	if err != nil {
		return o, err
	}
	if o.TLS, err = auth.TLSFrom(cert); err != nil {
		return o, err
	}
	proxy, err := r.Secrets.Data(ctx, a.namespace, a.proxy, "spec.proxySecretRef")
	if err != nil || proxy == nil {
		return o, err
	}
	o.Proxy, err = auth.ProxyFrom(proxy)
	return o, err
}

func proxyURL(way egress.Options) string {
	if way.Proxy == nil {
		return ""
	}
	return way.Proxy.String()
}

// login returns that of the Secret or, of a cloud, that of an identity; the service account's pull secrets come last.
func (r *Registries) login(ctx context.Context, a registryAccess, repo name.Repository) (*authn.AuthConfig, error) {
	if a.provider != "" && a.provider != sourcev1.ProviderGeneric && a.secret == nil {
		var account *types.NamespacedName
		if a.serviceAccount != "" {
			account = &types.NamespacedName{Namespace: a.namespace, Name: a.serviceAccount}
		}
		who, err := r.Identities.Registry(ctx, a.provider, a.url, account)
		if err != nil {
			return nil, err
		}
		return who.Authorization()
	}
	secrets := []*meta.LocalObjectReference{a.secret}
	if a.serviceAccount != "" {
		more, err := r.pullSecrets(ctx, types.NamespacedName{Namespace: a.namespace, Name: a.serviceAccount})
		if err != nil {
			return nil, err
		}
		secrets = append(secrets, more...)
	}
	var keychains []authn.Keychain
	for _, s := range secrets {
		data, err := r.Secrets.Data(ctx, a.namespace, s, "spec.secretRef or of the service account")
		if err != nil {
			return nil, err
		}
		keychain, err := auth.RegistryFrom(data, repo.RegistryStr())
		if err != nil {
			return nil, err
		}
		keychains = append(keychains, keychain)
	}
	who, err := authn.NewMultiKeychain(keychains...).Resolve(repo)
	if err != nil {
		return nil, fault.New(meta.AuthenticationFailedReason, "the Secrets give no login to '%s'", repo.Name()).Because(err)
	}
	return who.Authorization()
}

func (r *Registries) pullSecrets(ctx context.Context, account types.NamespacedName) ([]*meta.LocalObjectReference, error) {
	var found corev1.ServiceAccount
	err := r.Secrets.Reader.Get(ctx, account, &found)
	if apierrors.IsNotFound(err) {
		return nil, fault.New(meta.AuthenticationFailedReason, "ServiceAccount '%s' not found", account).
			WithHint("Create it, or correct spec.serviceAccountName")
	}
	if err != nil {
		return nil, fault.New(meta.AuthenticationFailedReason, "cannot read ServiceAccount '%s'", account).Because(err)
	}
	var names []*meta.LocalObjectReference
	for _, s := range found.ImagePullSecrets {
		names = append(names, &meta.LocalObjectReference{Name: s.Name})
	}
	return names, nil
}

// fingerprint tells plain values apart, without keeping them.
func fingerprint(parts ...any) string {
	text, err := json.Marshal(parts)
	if err != nil {
		panic(err) // plain values can be marshalled
	}
	sum := sha256.Sum256(text)
	return string(sum[:])
}
