package helmrelease

import (
	"cmp"
	"context"
	"crypto/sha256"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/build/decrypt"
	"github.com/sluice-gitops/sluice/internal/helm/values"
	"github.com/sluice-gitops/sluice/internal/text/fault"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

// valuesReader reads the objects and files with values of a HelmRelease.
type valuesReader struct {
	client.Reader
	*Controller

	obj *helmv2.HelmRelease
}

func (c *Controller) valuesReader(obj *helmv2.HelmRelease) values.Reader {
	return valuesReader{c.Live, c, obj}
}

// ConfigMap implements [values.Reader].
func (v valuesReader) ConfigMap(ctx context.Context, key types.NamespacedName) (*corev1.ConfigMap, error) {
	cm := &corev1.ConfigMap{}
	return cm, v.Get(ctx, key, cm)
}

// Secret implements [values.Reader].
func (v valuesReader) Secret(ctx context.Context, key types.NamespacedName) (*corev1.Secret, error) {
	s := &corev1.Secret{}
	return s, v.Get(ctx, key, s)
}

// File implements [values.Reader].
func (v valuesReader) File(ctx context.Context, ref meta.ValuesReference, p *redact.Placeholders) (*values.File,
	error) {
	key := artifact.Key{Kind: ref.Kind, Namespace: cmp.Or(ref.Namespace, v.obj.Namespace), Name: ref.Name}
	if err := v.referencePolicy().Check("spec.valuesFrom", v.obj.Namespace, key.Namespace); err != nil {
		return nil, err
	}
	source := sourcev1.NewSource(ref.Kind)
	name := types.NamespacedName{Namespace: key.Namespace, Name: key.Name}
	if err := v.Client.Get(ctx, name, source); err != nil {
		return nil, err
	}
	if source.GetArtifact() == nil {
		return nil, values.ErrNoArtifact
	}
	tree, err := v.Artifacts.Fetch(ctx, key, *source.GetArtifact())
	if err != nil {
		return nil, err
	}
	keys, err := v.Options.Decryption.Keys(ctx, v.obj.Namespace, v.obj.Spec.Decryption, sha256.New())
	if err != nil {
		return nil, err
	}
	return ReadValues(ctx, tree, ref.Path, keys, p)
}

// ReadValues reads a file with values from the tree of a source. Keys are nil without spec.decryption.
func ReadValues(ctx context.Context, tree *artifact.Tree, name string, keys *decrypt.Keys, p *redact.Placeholders) (
	*values.File, error) {
	content, err := tree.ReadFile(InTree(name))
	if err != nil {
		return nil, err
	}
	if keys == nil {
		if decrypt.IsEncrypted(name, content) {
			return nil, fault.New("", "it is encrypted with SOPS").WithHint("Set spec.decryption").Final()
		}
		return &values.File{Content: string(content)}, nil
	}
	keys.Placeholders = p
	plain, err := keys.File(ctx, name, content)
	if err != nil {
		return nil, err
	}
	if plain == nil {
		return &values.File{Content: string(content)}, nil
	}
	return &values.File{Content: string(plain.Content), Secrets: plain.Secrets, IsSecret: true}, nil
}

// InTree returns a path of a spec as the name of a file in an artifact.
func InTree(name string) string { return strings.TrimPrefix(path.Clean("/"+name), "/") }
