package localbuild

import (
	"context"
	"fmt"
	"io"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/build/decrypt"
)

// The variables with age keys, as SOPS documents them.
const (
	ageKeys    = "SOPS_AGE_KEY"
	ageKeyFile = "SOPS_AGE_KEY_FILE"
)

// vaultAddress is the variable with the Vault server that the user trusts, as Vault documents it.
const vaultAddress = "VAULT_ADDR"

const maxKeys = 1 << 20 // bytes of a file with keys

// KeysOf returns a function for [Options.Keys]: the keys of the Secret of spec.decryption or, if it cannot be read, the
// age keys of $SOPS_AGE_KEY and $SOPS_AGE_KEY_FILE. Without any, encrypted values stay masked, and note says so. The
// cluster is nil if it is not read.
// More are Secrets with keys for Kustomizations whose own Secret has none, as --sops-age-secret names one.
func KeysOf(cluster client.Reader, note func(format string, args ...any), more ...types.NamespacedName) func(
	context.Context, *kustomizev1.Kustomization) (*decrypt.Keys, error) {
	return func(ctx context.Context, obj *kustomizev1.Kustomization) (*decrypt.Keys, error) {
		named := more
		if ref := obj.Spec.Decryption.SecretRef; ref != nil {
			named = append([]types.NamespacedName{{Namespace: obj.Namespace, Name: ref.Name}}, more...)
		}
		for _, key := range named {
			secret := &corev1.Secret{}
			if cluster != nil && cluster.Get(ctx, key, secret) == nil && len(secret.Data) > 0 {
				keys, err := decrypt.FromSecret(secret.Data, nil)
				if keys != nil { // the change that is built chooses no server for the token of the Secret
					keys.VaultServers = []string{os.Getenv(vaultAddress)}
				}
				return keys, err
			}
		}
		keys, err := environmentKeys()
		if keys == nil && err == nil {
			note("the keys of Kustomization '%s/%s' cannot be read: encrypted values are assumed to be unchanged. Set "+
				"$%s or $%s to have them decrypted", obj.Namespace, obj.Name, ageKeys, ageKeyFile)
		}
		return keys, err
	}
}

// environmentKeys returns the keys of the variables; nil if none is set. Errors contain no key.
func environmentKeys() (*decrypt.Keys, error) {
	data := map[string][]byte{}
	if text := os.Getenv(ageKeys); text != "" {
		data[ageKeys+".agekey"] = []byte(text)
	}
	if name := os.Getenv(ageKeyFile); name != "" {
		file, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("$%s: %w", ageKeyFile, err)
		}
		defer func() { _ = file.Close() }() // it was only read
		keys, err := io.ReadAll(io.LimitReader(file, maxKeys+1))
		if err != nil {
			return nil, fmt.Errorf("$%s: %w", ageKeyFile, err)
		}
		if len(keys) > maxKeys {
			return nil, fmt.Errorf("$%s: file '%s' has more than %d bytes: is it a file with age keys?", ageKeyFile,
				name, maxKeys)
		}
		data[ageKeyFile+".agekey"] = keys
	}
	if len(data) == 0 {
		return nil, nil
	}
	return decrypt.FromSecret(data, nil)
}
