package localrelease

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/build/decrypt"
	"github.com/sluice-gitops/sluice/internal/helm/values"
	"github.com/sluice-gitops/sluice/internal/helmrelease"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

// reader reads the objects and files with values of a HelmRelease. It implements [values.Reader].
type reader struct {
	cluster Cluster
	obj     *helmv2.HelmRelease
	files   func(ctx context.Context, kind string, key types.NamespacedName) (*artifact.Tree, error)
	warn    func(message string)
}

// ConfigMap implements [values.Reader].
func (r reader) ConfigMap(ctx context.Context, key types.NamespacedName) (*corev1.ConfigMap, error) {
	config := &corev1.ConfigMap{}
	return config, r.cluster.Client.Get(ctx, key, config)
}

// Secret implements [values.Reader].
func (r reader) Secret(ctx context.Context, key types.NamespacedName) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	return secret, r.cluster.Client.Get(ctx, key, secret)
}

// File implements [values.Reader]. Without the keys, encrypted values are masked.
func (r reader) File(ctx context.Context, ref meta.ValuesReference, p *redact.Placeholders) (*values.File, error) {
	tree, err := r.tree(ctx, ref.Kind, sourceOf(r.obj, ref))
	if err != nil {
		return nil, err
	}
	keys, err := r.keys(ctx)
	if err != nil {
		return nil, err
	}
	name := helmrelease.InTree(ref.Path)
	if r.obj.Spec.Decryption == nil || keys != nil {
		return helmrelease.ReadValues(ctx, tree, name, keys, p)
	}
	content, err := tree.ReadFile(name)
	if err != nil || !decrypt.IsEncrypted(name, content) {
		return &values.File{Content: string(content)}, err
	}
	r.warn("the keys of spec.decryption cannot be read: encrypted values are masked")
	content, err = decrypt.Redact(name, content, p)
	return &values.File{Content: string(content), IsSecret: true}, err
}

func (r reader) tree(ctx context.Context, kind string, key types.NamespacedName) (*artifact.Tree, error) {
	if r.files != nil {
		return r.files(ctx, kind, key)
	}
	tree, _, err := Fetch(ctx, r.cluster, kind, key)
	return tree, err
}

// keys returns the keys of the Secret of spec.decryption; nil if it cannot be read.
func (r reader) keys(ctx context.Context) (*decrypt.Keys, error) {
	d := r.obj.Spec.Decryption
	if d == nil || d.SecretRef == nil || r.cluster.Client == nil {
		return nil, nil
	}
	secret, err := r.Secret(ctx, types.NamespacedName{Namespace: r.obj.Namespace, Name: d.SecretRef.Name})
	if err != nil || len(secret.Data) == 0 {
		return nil, nil //nolint:nilerr // the user may not read it
	}
	keys, err := decrypt.FromSecret(secret.Data, nil)
	if keys != nil {
		keys.VaultServers = nil // what is built chooses no server for the token of the Secret
	}
	return keys, err
}
