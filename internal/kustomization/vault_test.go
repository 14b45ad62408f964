package kustomization

import (
	"context"
	"crypto/sha256"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/source/access"
	"github.com/sluice-gitops/sluice/internal/testenv/sopskey"
)

// secrets is a reader of Secrets.
type secrets []corev1.Secret

func (s secrets) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	for _, secret := range s {
		if client.ObjectKeyFromObject(&secret) == key {
			secret.DeepCopyInto(into.(*corev1.Secret))
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, key.Name)
}

func (secrets) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// TestVaultTokensHaveAnAudience checks which token a file gets that names a server: that of the controller only without
// an account, and none of the Secret with age keys that all share.
func TestVaultTokensHaveAnAudience(t *testing.T) {
	const home, evil = "https://vault.example.org", "https://evil.example.org"
	shared := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "flux-system", Name: "keys"},
		Data: map[string][]byte{"age.agekey": []byte(sopskey.New(t).PrivateKey),
			"sops.vault-token": []byte("shared"), "sops.vault-address": []byte(evil),
			"sops.aws-kms": []byte("aws_access_key_id: a\naws_secret_access_key: b")}}
	own := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "own"},
		Data: map[string][]byte{"sops.vault-token": []byte("own")}}
	for _, test := range []struct {
		name, account, defaultAccount, secret, address, token string
	}{
		{name: "controller's", address: home, token: "process"},
		{name: "controller's elsewhere", address: evil},
		{name: "with an account", account: "deployer", address: home},
		{name: "with a default account", defaultAccount: "default", address: home},
		{name: "with a Secret", defaultAccount: "default", secret: "own", address: home, token: "own"},
		{name: "with a Secret elsewhere", defaultAccount: "default", secret: "own", address: evil},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := &Controller{Live: secrets{*shared, *own}}
			c.Options.Decryption = access.Decryption{VaultAddress: home, VaultToken: "process",
				DefaultAccount: test.defaultAccount,
				AgeSecret:      types.NamespacedName{Namespace: "flux-system", Name: "keys"}}
			obj := &kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "a"}}
			obj.Spec.Decryption = &kustomizev1.Decryption{Provider: "sops", ServiceAccountName: test.account}
			if test.secret != "" {
				obj.Spec.Decryption.SecretRef = &meta.LocalObjectReference{Name: test.secret}
			}
			keys, err := c.readKeys(t.Context(), obj, sha256.New())
			if err != nil {
				t.Fatal(err)
			}
			if len(keys.Age) != 1 || keys.AWS != nil {
				t.Errorf("%d age keys, AWS credentials: %t", len(keys.Age), keys.AWS != nil)
			}
			token, err := keys.Vault(t.Context(), test.address)
			if token != test.token || (err == nil) != (test.token != "") {
				t.Errorf("got token %q, %v; want %q", token, err, test.token)
			}
		})
	}
}
