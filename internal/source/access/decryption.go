package access

import (
	"cmp"
	"context"
	"fmt"
	"hash"
	"maps"
	"net/http"
	"slices"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/aws/aws-sdk-go-v2/aws"
	"golang.org/x/oauth2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/build/decrypt"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Decryption reads the keys of spec.decryption.
type Decryption struct {
	Reader         client.Reader     // not cached, to keep Secrets out of memory
	Transport      http.RoundTripper // to key management services
	Identities     *auth.Identities
	IgnoreMAC      bool   // see [decrypt.Keys]
	DefaultAccount string // the service account for objects that do not name one, in their namespace

	// AgeSecret holds age keys for objects whose own Secret has none; may be empty.
	AgeSecret types.NamespacedName
	// VaultConfigMap lists the Vault servers to which tokens of service accounts may be sent; may be empty.
	VaultConfigMap types.NamespacedName
	// VaultToken is the controller's own token for the server VaultAddress.
	VaultAddress, VaultToken string
}

// Keys returns the keys of spec.decryption of an object in a namespace, nil if it is not set, and adds them to the
// hash. Keys of its Secret have precedence over those of its service account, and these over keys of the controller.
func (o Decryption) Keys(ctx context.Context, namespace string, d *meta.Decryption, h hash.Hash) (*decrypt.Keys,
	error) {
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
		key := types.NamespacedName{Namespace: namespace, Name: d.SecretRef.Name}
		if err := o.addKeys(ctx, keys, key, "spec.decryption.secretRef", h); err != nil {
			return nil, err
		}
	}
	if o.AgeSecret.Name != "" && len(keys.Age) == 0 {
		shared := &decrypt.Keys{Transport: o.Transport}
		if err := o.addKeys(ctx, shared, o.AgeSecret, "--sops-age-secret", h); err != nil {
			return nil, err
		}
		keys.Age = shared.Age // tokens and credentials in this Secret are not for the files of tenants
	}
	keys.Fallback(o.serviceKeys(namespace, d.ServiceAccountName))
	return keys, nil
}

// addKeys adds the keys of a Secret.
func (o Decryption) addKeys(ctx context.Context, to *decrypt.Keys, key types.NamespacedName, field string,
	h hash.Hash) error {
	var secret corev1.Secret
	err := o.Reader.Get(ctx, key, &secret)
	if apierrors.IsNotFound(err) {
		return fault.New(meta.BuildFailedReason, "Secret '%s' of %s not found", key, field).
			WithHint("Create it, or correct %s", field)
	}
	if err != nil {
		return fault.New(meta.BuildFailedReason, "cannot read Secret '%s' of %s", key, field).Because(err)
	}
	HashData(h, secret.Data)
	keys, err := decrypt.FromSecret(secret.Data, to.Transport)
	if err == nil && keys.Vault != nil {
		keys.VaultServers, err = o.vaultServers(ctx)
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
func (o Decryption) serviceKeys(namespace, name string) *decrypt.Keys {
	var account *types.NamespacedName // nil for the controller's
	if name = cmp.Or(name, o.DefaultAccount); name != "" {
		account = &types.NamespacedName{Namespace: namespace, Name: name}
	}
	keys := &decrypt.Keys{Transport: o.Transport}
	keys.Vault = func(ctx context.Context, address string) (string, error) {
		return o.vaultToken(ctx, keys, account, address)
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
func (o Decryption) vaultToken(ctx context.Context, keys *decrypt.Keys, account *types.NamespacedName,
	address string) (string, error) {
	if account != nil && o.VaultConfigMap.Name == "" {
		return "", decrypt.Missing("service accounts log in only to servers in the ConfigMap of " +
			"--sops-vault-configmap, which is not set")
	}
	if account != nil && o.Identities != nil && o.Identities.Accounts != nil {
		logins, err := o.readVaultLogins(ctx)
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
func (o Decryption) vaultServers(ctx context.Context) ([]string, error) {
	var servers []string
	if address := o.VaultAddress; address != "" {
		servers = append(servers, address)
	}
	if o.VaultConfigMap.Name == "" {
		return servers, nil
	}
	logins, err := o.readVaultLogins(ctx)
	if err != nil {
		return nil, err
	}
	for _, i := range logins.Instances {
		servers = append(servers, i.Address)
	}
	return servers, nil
}

func (o Decryption) readVaultLogins(ctx context.Context) (*decrypt.VaultLogins, error) {
	var config corev1.ConfigMap
	key := o.VaultConfigMap
	if err := o.Reader.Get(ctx, key, &config); err != nil {
		return nil, fmt.Errorf("cannot read ConfigMap '%s' of --sops-vault-configmap: %w", key, err)
	}
	logins, err := decrypt.ParseVaultLogins([]byte(config.Data["config.yaml"]))
	if err != nil {
		return nil, fmt.Errorf("key config.yaml of ConfigMap '%s' is invalid: %w", key, err)
	}
	return logins, nil
}

// HashData writes the data of a Secret or ConfigMap to a hash, in a canonical form.
func HashData[V string | []byte](h hash.Hash, data map[string]V) {
	fmt.Fprintf(h, "%d\n", len(data))
	for _, k := range slices.Sorted(maps.Keys(data)) {
		fmt.Fprintf(h, "%d %s%d %s", len(k), k, len(data[k]), data[k])
	}
}
