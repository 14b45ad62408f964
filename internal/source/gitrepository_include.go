package source

import (
	"cmp"
	"context"
	"path"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Reasons of the condition IncludeUnavailable.
const (
	reasonNotFound    = "NotFound"
	reasonNoArtifact  = "NoArtifact"
	reasonCopyFailure = "CopyFailure"
)

// included returns the artifacts of the included repositories, in the order of spec.include.
func (g *GitRepository) included(ctx context.Context, obj *sourcev1.GitRepository) ([]*meta.Artifact, error) {
	var artifacts []*meta.Artifact
	for _, i := range obj.Spec.Include {
		other, err := g.includedRepository(ctx, obj.Namespace, i.GitRepositoryRef.Name)
		if err != nil {
			return nil, err
		}
		if err := g.checkCycle(ctx, obj, other, map[string]bool{}); err != nil {
			return nil, err
		}
		if other.Status.Artifact == nil {
			return nil, reconcile.WaitingFor(fault.New(reasonNoArtifact, "included GitRepository '%s/%s' has no "+
				"artifact yet", other.Namespace, other.Name).
				WithHint(noArtifactHint))
		}
		artifacts = append(artifacts, other.Status.Artifact)
	}
	return artifacts, nil
}

// includedRepository reads an included repository.
func (g *GitRepository) includedRepository(ctx context.Context, namespace, name string) (*sourcev1.GitRepository,
	error) {
	other := &sourcev1.GitRepository{}
	err := g.Objects.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, other)
	if apierrors.IsNotFound(err) {
		return nil, fault.New(reasonNotFound, "included GitRepository '%s/%s' not found", namespace, name).
			WithHint("Create it, or correct spec.include. This object continues when it exists")
	}
	if err != nil {
		return nil, fault.New(reasonNotFound, "cannot read included GitRepository '%s/%s'", namespace, name).
			Because(err)
	}
	return other, nil
}

// checkCycle refuses repositories that include each other: their artifacts would never stop growing.
func (g *GitRepository) checkCycle(ctx context.Context, obj, other *sourcev1.GitRepository,
	seen map[string]bool) error {
	if other.Name == obj.Name {
		return fault.New(reasonCopyFailure, "GitRepository '%s/%s' includes itself, directly or through others",
			obj.Namespace, obj.Name).
			WithHint("Remove one of the entries of spec.include")
	}
	if seen[other.Name] {
		return nil
	}
	seen[other.Name] = true
	for _, i := range other.Spec.Include {
		next, err := g.includedRepository(ctx, other.Namespace, i.GitRepositoryRef.Name)
		if err != nil {
			continue // the other object reports it
		}
		if err := g.checkCycle(ctx, obj, next, seen); err != nil {
			return err
		}
	}
	return nil
}

// compose adds the included artifacts to the tree.
func (g *GitRepository) compose(obj *sourcev1.GitRepository, tree *artifact.Tree,
	included []*meta.Artifact) (*artifact.Tree, error) {
	var trees []*artifact.Tree
	for n, a := range included {
		i := obj.Spec.Include[n]
		key := artifact.Key{Kind: sourcev1.GitRepositoryKind, Namespace: obj.Namespace, Name: i.GitRepositoryRef.Name}
		other, err := g.Store.Tree(key, *a)
		if err != nil {
			return nil, fault.New(reasonNoArtifact, "cannot read the artifact of GitRepository '%s'",
				i.GitRepositoryRef.Name).Because(err).
				WithHint("This object continues when the artifact is stored again")
		}
		trees = append(trees, other)
	}
	return Compose(obj, tree, trees)
}

// Compose adds the trees of included repositories, in the order of spec.include, to that of a GitRepository.
func Compose(obj *sourcev1.GitRepository, tree *artifact.Tree, included []*artifact.Tree) (*artifact.Tree, error) {
	if len(included) == 0 {
		return tree, nil
	}
	layers := []artifact.Layer{{Tree: tree, From: ".", To: "."}}
	for n, other := range included {
		i := obj.Spec.Include[n]
		layers = append(layers, artifact.Layer{Tree: other, From: relative(i.FromPath), To: relative(includeTo(i))})
	}
	composed, err := artifact.Compose(layers...)
	if err != nil {
		return nil, fault.New(reasonCopyFailure, "cannot copy the artifacts of spec.include").Because(err).
			WithHint("Correct fromPath or toPath in spec.include. Both are relative to the root of the artifact, and " +
				"fromPath must exist there")
	}
	return composed, nil
}

// includeTo returns the directory of an included artifact.
func includeTo(i sourcev1.GitRepositoryInclude) string {
	return cmp.Or(i.ToPath, i.GitRepositoryRef.Name)
}

// relative converts a path to the form of io/fs. A path that leads out of the root is refused where it is used.
func relative(name string) string {
	return path.Clean(strings.TrimPrefix(name, "/"))
}
