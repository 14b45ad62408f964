package kustomization

import (
	"cmp"
	"context"
	"fmt"
	"hash"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/aws/aws-sdk-go-v2/aws"
	"golang.org/x/oauth2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/decrypt"
	"github.com/sluice-gitops/sluice/internal/fault"
)

// DecryptionOptions configure spec.decryption for all Kustomizations.
type DecryptionOptions struct {
	Transport      http.RoundTripper // to key management services
	Identities     *auth.Identities
	IgnoreMAC      bool   // see [decrypt.Keys]
	DefaultAccount string // the service account for Kustomizations that do not name one, in their namespace

	// AgeSecret holds age keys for Kustomizations whose own Secret has none; may be empty.
	AgeSecret types.NamespacedName
	// VaultConfigMap lists the Vault servers to which tokens of service accounts may be sent; may be empty.
	VaultConfigMap types.NamespacedName
	// VaultToken is the controller's own token for the server VaultAddress.
	VaultAddress, VaultToken string
}

// readKeys returns the keys of spec.decryption, nil if it is not set, and adds them to the hash. Keys of its
// Secret have precedence over those of its service account, and these over keys of the controller.
func (c *Controller) readKeys(ctx context.Context, obj *kustomizev1.Kustomization, h hash.Hash) (*decrypt.Keys,
	error) {
	d, o := obj.Spec.Decryption, c.Options.Decryption
	if d == nil {
		return nil, nil
	}
	if d.Provider != "sops" {
		return nil, fault.New(meta.BuildFailedReason, "spec.decryption.provider '%s' is not supported", d.Provider).
			WithHint("Set it to sops").Final()
	}
	fmt.Fprintln(h, "keys")
	keys := &decrypt.Keys{Transport: o.Transport, IgnoreMAC: o.IgnoreMAC}
	if d.SecretRef != nil {
		key := types.NamespacedName{Namespace: obj.Namespace, Name: d.SecretRef.Name}
		if err := c.addKeys(ctx, keys, key, "spec.decryption.secretRef", h); err != nil {
			return nil, err
		}
	}
	if o.AgeSecret.Name != "" && len(keys.Age) == 0 {
		shared := &decrypt.Keys{Transport: o.Transport}
		if err := c.addKeys(ctx, shared, o.AgeSecret, "--sops-age-secret", h); err != nil {
			return nil, err
		}
		keys.Age = shared.Age // tokens and credentials in this Secret are not for the files of tenants
	}
	keys.Fallback(c.serviceKeys(obj))
	return keys, nil
}

// addKeys adds the keys of a Secret.
func (c *Controller) addKeys(ctx context.Context, to *decrypt.Keys, key types.NamespacedName, field string,
	h hash.Hash) error {
	var secret corev1.Secret
	err := c.Live.Get(ctx, key, &secret)
	if apierrors.IsNotFound(err) {
		return fault.New(meta.BuildFailedReason, "Secret '%s' of %s not found", key, field).
			WithHint("Create it, or correct %s", field)
	}
	if err != nil {
		return fault.New(meta.BuildFailedReason, "cannot read Secret '%s' of %s", key, field).Because(err)
	}
	hashMap(h, secret.Data)
	keys, err := decrypt.FromSecret(secret.Data, to.Transport)
	if err == nil && keys.Vault != nil {
		keys.VaultServers, err = c.vaultServers(ctx)
	}
	if err != nil {
		return fault.New(meta.BuildFailedReason, "Secret '%s' of %s", key, field).Because(err).
			WithHint("Replace the value of this entry in the Secret")
	}
	to.Fallback(keys)
	return nil
}

// serviceKeys returns keys that use key management services, with the identity of a service account or of the
// controller.
func (c *Controller) serviceKeys(obj *kustomizev1.Kustomization) *decrypt.Keys {
	o := c.Options.Decryption
	var account *types.NamespacedName // nil for the controller's
	if name := cmp.Or(obj.Spec.Decryption.ServiceAccountName, o.DefaultAccount); name != "" {
		account = &types.NamespacedName{Namespace: obj.Namespace, Name: name}
	}
	keys := &decrypt.Keys{Transport: o.Transport}
	keys.Vault = func(ctx context.Context, address string) (string, error) {
		return c.vaultToken(ctx, keys, account, address)
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

// vaultToken returns a token for a Vault server. Encrypted files name the server, so tokens are only sent to servers
// that the administrator listed, and the controller's own token only to its server.
func (c *Controller) vaultToken(ctx context.Context, keys *decrypt.Keys, account *types.NamespacedName,
	address string) (string, error) {
	o := c.Options.Decryption
	if account != nil && o.VaultConfigMap.Name == "" {
		return "", decrypt.Missing("service accounts log in only to servers in the ConfigMap of " +
			"--sops-vault-configmap, which is not set")
	}
	if account != nil && o.Identities != nil && o.Identities.Accounts != nil {
		logins, err := c.readVaultLogins(ctx)
		if err != nil {
			return "", err
		}
		return keys.Login(ctx, logins, address,
			func(ctx context.Context, audience string) (token, namespace, name string, err error) {
				token, err = o.Identities.Accounts.Token(ctx, *account, audience)
				return token, account.Namespace, account.Name, err
			})
	}
	if account != nil || o.VaultToken == "" {
		return "", decrypt.Missing("the controller has no token for it")
	}
	if !decrypt.SameServer(o.VaultAddress, address) {
		return "", decrypt.Missing("$VAULT_TOKEN of the controller is only for the server of $VAULT_ADDR")
	}
	return o.VaultToken, nil
}

// vaultServers returns the servers that the administrator named.
func (c *Controller) vaultServers(ctx context.Context) ([]string, error) {
	var servers []string
	if address := c.Options.Decryption.VaultAddress; address != "" {
		servers = append(servers, address)
	}
	if c.Options.Decryption.VaultConfigMap.Name == "" {
		return servers, nil
	}
	logins, err := c.readVaultLogins(ctx)
	if err != nil {
		return nil, err
	}
	for _, i := range logins.Instances {
		servers = append(servers, i.Address)
	}
	return servers, nil
}

func (c *Controller) readVaultLogins(ctx context.Context) (*decrypt.VaultLogins, error) {
	var config corev1.ConfigMap
	key := c.Options.Decryption.VaultConfigMap
	if err := c.Live.Get(ctx, key, &config); err != nil {
		return nil, fmt.Errorf("cannot read ConfigMap '%s' of --sops-vault-configmap: %w", key, err)
	}
	logins, err := decrypt.ParseVaultLogins([]byte(config.Data["config.yaml"]))
	if err != nil {
		return nil, fmt.Errorf("key config.yaml of ConfigMap '%s' is invalid: %w", key, err)
	}
	return logins, nil
}
