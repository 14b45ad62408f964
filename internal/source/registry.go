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
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source/oci"
)

// Registries gives access to registries as objects declare it.
type Registries struct {
	Connector
}

// RegistryAccess is what an object says of the access to a repository.
type RegistryAccess struct {
	Namespace, URL      string // of the object; oci://host/path
	Insecure            bool
	Provider            string
	Secret, Cert, Proxy *meta.LocalObjectReference
	ServiceAccount      string
}

// References lists the Secrets that the access builds on.
func (a RegistryAccess) References() []reconcile.Ref {
	return secretRefs(a.Namespace, a.Secret, a.Cert, a.Proxy)
}

// Reach returns the access that is declared, and a key that differs when the access does. Nothing is sent but
// for the login of a cloud's provider.
func (r *Registries) Reach(ctx context.Context, a RegistryAccess) (access oci.Access, key string, err error) {
	repo, err := oci.ParseURL(a.URL, a.Insecure)
	if err != nil {
		return oci.Access{}, "", err
	}
	way, err := r.way(ctx, a.Namespace, a.Cert, a.Proxy)
	if err != nil {
		return oci.Access{}, "", err
	}
	transport, err := r.Egress.Transport(way)
	if err != nil {
		return oci.Access{}, "", err
	}
	login, err := r.login(ctx, a, repo)
	if err != nil {
		return oci.Access{}, "", err
	}
	key = fingerprint(a.URL, a.Insecure, way.TLS, proxyURL(way), login)
	return oci.Access{Transport: transport, Login: *login, Insecure: a.Insecure}, key, nil
}

// open returns the repository with the access that is declared, and a key that differs when the access does.
func (r *Registries) open(ctx context.Context, a RegistryAccess) (open func() (*oci.Repository, error), key string,
	err error) {
	access, key, err := r.Reach(ctx, a)
	return func() (*oci.Repository, error) { return oci.Open(a.URL, access) }, key, err
}

// login returns that of the Secret or, of a cloud, that of an identity; the service account's pull secrets come last.
func (r *Registries) login(ctx context.Context, a RegistryAccess, repo name.Repository) (*authn.AuthConfig, error) {
	if a.Provider != "" && a.Provider != sourcev1.ProviderGeneric && a.Secret == nil {
		who, err := r.Identities.Registry(ctx, a.Provider, a.URL, r.Identities.Account(a.Namespace, a.ServiceAccount))
		if err != nil {
			return nil, err
		}
		return who.Authorization()
	}
	secrets := []*meta.LocalObjectReference{a.Secret}
	if a.ServiceAccount != "" {
		more, err := r.pullSecrets(ctx, types.NamespacedName{Namespace: a.Namespace, Name: a.ServiceAccount})
		if err != nil {
			return nil, err
		}
		secrets = append(secrets, more...)
	}
	var keychains []authn.Keychain
	for _, s := range secrets {
		data, err := r.Secrets.Data(ctx, a.Namespace, s, "spec.secretRef or of the service account")
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
		return nil, fault.New(meta.AuthenticationFailedReason, "the Secrets give no login to '%s'", repo.Name()).
			Because(err)
	}
	return who.Authorization()
}

func (r *Registries) pullSecrets(ctx context.Context, account types.NamespacedName) ([]*meta.LocalObjectReference,
	error) {
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
