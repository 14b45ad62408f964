package access

import (
	"context"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source/oci"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Registries gives access to container registries.
type Registries struct {
	Connector
}

// Registry is what an object specifies about access to a repository in a registry.
type Registry struct {
	Namespace           string // of the object
	URL                 string // oci://host/path
	Insecure            bool   // plain HTTP is allowed
	Provider            string
	Secret, Cert, Proxy *meta.LocalObjectReference
	ServiceAccount      string
}

// References returns edges to the Secrets that the access depends on.
func (r Registry) References() []reconcile.Ref {
	return SecretRefs(r.Namespace, r.Secret, r.Cert, r.Proxy)
}

// Access returns the specified access, and a key that changes whenever the access changes. The only requests that it
// makes are those for a login at a cloud provider.
func (r *Registries) Access(ctx context.Context, spec Registry) (access oci.Access, key string, err error) {
	repo, err := oci.ParseURL(spec.URL, spec.Insecure)
	if err != nil {
		return oci.Access{}, "", err
	}
	options, err := r.options(ctx, spec.Namespace, spec.Cert, spec.Proxy)
	if err != nil {
		return oci.Access{}, "", err
	}
	transport, err := r.Egress.Transport(options)
	if err != nil {
		return oci.Access{}, "", err
	}
	transport = egress.Unquoted(transport)
	if spec.usesIdentity() {
		account := r.Identities.Account(spec.Namespace, spec.ServiceAccount)
		if err := auth.CheckAuthorities(account, options.TLS, "spec.certSecretRef"); err != nil {
			return oci.Access{}, "", err
		}
	}
	login, err := r.login(ctx, spec, repo)
	if err != nil {
		return oci.Access{}, "", err
	}
	// Over plain HTTP, a proxy could read the token. All registries of clouds support HTTPS.
	insecure := spec.Insecure && !spec.usesIdentity()
	key = Fingerprint(spec.URL, insecure, options.TLS, proxyURL(options), login)
	return oci.Access{Transport: transport, Login: *login, Insecure: insecure}, key, nil
}

// usesIdentity reports whether the login is that of a workload identity: the object specifies a cloud provider and no
// Secret.
func (r Registry) usesIdentity() bool {
	return r.Provider != "" && r.Provider != sourcev1.ProviderGeneric && r.Secret == nil
}

// login returns the login of the workload identity if the object uses one. Otherwise it returns the login of the Secret
// or else of the service account's pull secrets; it is anonymous if none matches.
func (r *Registries) login(ctx context.Context, spec Registry, repo name.Repository) (*authn.AuthConfig, error) {
	if spec.usesIdentity() {
		account := r.Identities.Account(spec.Namespace, spec.ServiceAccount)
		identity, err := r.Identities.Registry(ctx, spec.Provider, spec.URL, account)
		if err != nil {
			return nil, err
		}
		return identity.Authorization()
	}
	secrets := []*meta.LocalObjectReference{spec.Secret}
	if spec.ServiceAccount != "" {
		more, err := r.pullSecrets(ctx, types.NamespacedName{Namespace: spec.Namespace, Name: spec.ServiceAccount})
		if err != nil {
			return nil, err
		}
		secrets = append(secrets, more...)
	}
	for _, secret := range secrets { // one at a time, as each may have a thousand logins
		data, err := r.Secrets.Data(ctx, spec.Namespace, secret, "spec.secretRef or the ServiceAccount")
		if err != nil {
			return nil, err
		}
		keychain, err := auth.RegistryFrom(data, repo.RegistryStr())
		if err != nil {
			return nil, err
		}
		login, err := keychain.Resolve(repo)
		if err != nil {
			return nil, fault.New(meta.AuthenticationFailedReason, "the Secrets contain no usable login for '%s'",
				repo.Name()).Because(err)
		}
		if login != authn.Anonymous {
			return login.Authorization()
		}
	}
	return authn.Anonymous.Authorization()
}

// maxPullSecrets is the maximum number of image pull secrets of a ServiceAccount: each takes a request.
const maxPullSecrets = 100

// pullSecrets returns the names of the image pull secrets of a ServiceAccount.
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
	if len(found.ImagePullSecrets) > maxPullSecrets {
		return nil, fault.New(meta.AuthenticationFailedReason, "ServiceAccount '%s' has %d image pull secrets, more "+
			"than %d", account, len(found.ImagePullSecrets), maxPullSecrets).
			WithHint("Put several logins into one Secret").Final()
	}
	var names []*meta.LocalObjectReference
	for _, s := range found.ImagePullSecrets {
		names = append(names, &meta.LocalObjectReference{Name: s.Name})
	}
	return names, nil
}
