package kustomization

import (
	"context"
	"fmt"
	"hash"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/aws/aws-sdk-go-v2/aws"
	"golang.org/x/oauth2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/decrypt"
	"github.com/sluice-gitops/sluice/internal/fault"
)

// Decryption is what the controller brings to spec.decryption for all Kustomizations.
type Decryption struct {
	Transport      http.RoundTripper // to key services
	Identities     *auth.Identities
	IgnoreMAC      bool   // see [decrypt.Keys]
	DefaultAccount string // the service account in the namespace of each Kustomization that names none

	AgeSecret types.NamespacedName // with keys of age, for those whose own Secret has none; none when empty
	// with the servers that tokens of service accounts may be sent to; none when empty
	VaultConfigMap types.NamespacedName
	VaultAddress   string // that the token below is for
	VaultToken     string
}

// readKeys gathers the keys of spec.decryption. What the Secret has comes first, then what the service
// account may use, then what the controller has.
func (r *run) readKeys(ctx context.Context, in *inputs, h hash.Hash) error {
	d := r.obj.Spec.Decryption
	if d == nil {
		return nil
	}
	if d.Provider != "sops" {
		return fault.New(meta.BuildFailedReason, "spec.decryption.provider is '%s', which is not known", d.Provider).
			WithHint("Use sops").Final()
	}
	fmt.Fprintln(h, "keys")
	in.keys = &decrypt.Keys{Transport: r.Options.Decryption.Transport, IgnoreMAC: r.Options.Decryption.IgnoreMAC}
	if d.SecretRef != nil {
		key := types.NamespacedName{Namespace: r.obj.Namespace, Name: d.SecretRef.Name}
		if err := r.addKeys(ctx, in.keys, key, "spec.decryption.secretRef", h); err != nil {
			return err
		}
	}
	if global := r.Options.Decryption.AgeSecret; global.Name != "" && len(in.keys.Age) == 0 {
		if err := r.addKeys(ctx, in.keys, global, "--sops-age-secret", h); err != nil {
			return err
		}
	}
	in.keys.Fallback(r.serviceKeys(in.keys))
	return nil
}

// addKeys adds the keys of a Secret.
func (r *run) addKeys(ctx context.Context, to *decrypt.Keys, key types.NamespacedName, field string,
	h hash.Hash) error {
	var secret corev1.Secret
	err := r.Configs.Get(ctx, key, &secret)
	if apierrors.IsNotFound(err) {
		return fault.New(meta.BuildFailedReason, "Secret '%s' of %s not found", key, field).
			WithHint("Create it, or correct %s", field)
	}
	if err != nil {
		return fault.New(meta.BuildFailedReason, "cannot read Secret '%s' of %s", key, field).Because(err)
	}
	digestMap(h, secret.Data)
	keys, err := decrypt.FromSecret(secret.Data, to.Transport)
	if err != nil {
		return fault.New(meta.BuildFailedReason, "Secret '%s' of %s", key, field).Because(err).
			WithHint("Correct the Secret")
	}
	to.Fallback(keys)
	return nil
}

// serviceKeys are those of key services, by the identity of a service account or of the controller.
func (r *run) serviceKeys(transport *decrypt.Keys) *decrypt.Keys {
	o := r.Options.Decryption
	account := r.decryptionAccount()
	keys := &decrypt.Keys{Transport: transport.Transport}
	keys.Vault = func(ctx context.Context, address string) (string, error) {
		return r.vaultToken(ctx, keys, account, address)
	}
	if o.Identities == nil {
		return keys
	}
	keys.AWS = func(ctx context.Context, region string) (aws.CredentialsProvider, error) {
		return o.Identities.AWS(ctx, region, account)
	}
	keys.Azure = func(ctx context.Context) (azcore.TokenCredential, error) { return o.Identities.Azure(ctx, account) }
	keys.GCP = func(ctx context.Context) (oauth2.TokenSource, error) {
		return o.Identities.GCP(ctx, account, "https://www.googleapis.com/auth/cloudkms")
	}
	return keys
}

// decryptionAccount is the service account whose identity is used, or nil for the controller's.
func (r *run) decryptionAccount() *types.NamespacedName {
	name := r.obj.Spec.Decryption.ServiceAccountName
	if name == "" {
		name = r.Options.Decryption.DefaultAccount
	}
	if name == "" {
		return nil
	}
	return &types.NamespacedName{Namespace: r.obj.Namespace, Name: name}
}

// vaultToken logs a service account in to a server that is listed, or else gives the controller's own token
// to the server that it is for. Files name servers, so neither may go to just any.
func (r *run) vaultToken(ctx context.Context, keys *decrypt.Keys, account *types.NamespacedName,
	address string) (string, error) {
	o := r.Options.Decryption
	if o.VaultConfigMap.Name != "" && account != nil && o.Identities != nil && o.Identities.Accounts != nil {
		logins, err := r.vaultLogins(ctx)
		if err != nil {
			return "", err
		}
		return keys.Login(ctx, logins, address,
			func(ctx context.Context, audience string) (token, namespace, name string, err error) {
				token, err = o.Identities.Accounts.Token(ctx, *account, audience)
				return token, account.Namespace, account.Name, err
			})
	}
	if o.VaultToken == "" {
		return "", decrypt.Missing("there is no token for it")
	}
	if strings.TrimRight(o.VaultAddress, "/") != strings.TrimRight(address, "/") {
		return "", decrypt.Missing("$VAULT_TOKEN of the controller is only for the server of $VAULT_ADDR")
	}
	return o.VaultToken, nil
}

func (r *run) vaultLogins(ctx context.Context) (*decrypt.VaultLogins, error) {
	var config corev1.ConfigMap
	key := r.Options.Decryption.VaultConfigMap
	if err := r.Configs.Get(ctx, key, &config); err != nil {
		return nil, fmt.Errorf("cannot read ConfigMap '%s' of --sops-vault-configmap: %w", key, err)
	}
	logins, err := decrypt.ParseVaultLogins([]byte(config.Data["config.yaml"]))
	if err != nil {
		return nil, fmt.Errorf("the key config.yaml of ConfigMap '%s': %w", key, err)
	}
	return logins, nil
}
