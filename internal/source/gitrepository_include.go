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
	"github.com/sluice-gitops/sluice/internal/fault"
)

// Reasons of the condition IncludeUnavailable.
const (
	reasonNotFound    = "NotFound"
	reasonNoArtifact  = "NoArtifact"
	reasonCopyFailure = "CopyFailure"
)

// included returns the artifacts of the repositories that the object includes, in the order of spec.include.
func (g *GitRepository) included(ctx context.Context, obj *sourcev1.GitRepository) ([]*meta.Artifact, error) {
	var artifacts []*meta.Artifact
	for _, i := range obj.Spec.Include {
		other, err := g.other(ctx, obj.Namespace, i.GitRepositoryRef.Name)
		if err != nil {
			return nil, err
		}
		if err := g.acyclic(ctx, obj, other, map[string]bool{}); err != nil {
			return nil, err
		}
		if other.Status.Artifact == nil {
			return nil, fault.New(reasonNoArtifact, "GitRepository '%s/%s', which is included, has no artifact yet",
				other.Namespace, other.Name).
				WithHint("This one goes on as soon as it has")
		}
		artifacts = append(artifacts, other.Status.Artifact)
	}
	return artifacts, nil
}

func (g *GitRepository) other(ctx context.Context, namespace, name string) (*sourcev1.GitRepository, error) {
	other := &sourcev1.GitRepository{}
	err := g.Objects.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, other)
	if apierrors.IsNotFound(err) {
		return nil, fault.New(reasonNotFound, "GitRepository '%s/%s', which is included, not found", namespace, name).
			WithHint("Create it, or correct spec.include. This one goes on as soon as it is there")
	}
	if err != nil {
		return nil, fault.New(reasonNotFound, "cannot read GitRepository '%s/%s', which is included", namespace, name).
			Because(err)
	}
	return other, nil
}

// acyclic refuses repositories that include each other: each would grow by the other for ever.
func (g *GitRepository) acyclic(ctx context.Context, obj, other *sourcev1.GitRepository, seen map[string]bool) error {
	if other.Name == obj.Name {
		return fault.New(reasonCopyFailure, "GitRepository '%s/%s' includes itself, by way of others or directly",
			obj.Namespace, obj.Name).
			WithHint("Remove one of the inclusions")
	}
	if seen[other.Name] {
		return nil
	}
	seen[other.Name] = true
	for _, i := range other.Spec.Include {
		next, err := g.other(ctx, other.Namespace, i.GitRepositoryRef.Name)
		if err != nil {
			continue // other says so itself
		}
		if err := g.acyclic(ctx, obj, next, seen); err != nil {
			return err
		}
	}
	return nil
}

// compose puts the included artifacts into the tree.
func (g *GitRepository) compose(obj *sourcev1.GitRepository, tree *artifact.Tree,
	included []*meta.Artifact) (*artifact.Tree, error) {
	if len(included) == 0 {
		return tree, nil
	}
	layers := []artifact.Layer{{Tree: tree, From: ".", To: "."}}
	for n, a := range included {
		i := obj.Spec.Include[n]
		other, err := g.Store.Tree(*a)
		if err != nil {
			return nil, fault.New(reasonNoArtifact, "cannot read the artifact of GitRepository '%s'",
				i.GitRepositoryRef.Name).Because(err).
				WithHint("This one goes on as soon as it is stored again")
		}
		layers = append(layers, artifact.Layer{Tree: other, From: relative(i.FromPath), To: relative(includeTo(i))})
	}
	composed, err := artifact.Compose(layers...)
	if err != nil {
		return nil, fault.New(reasonCopyFailure, "cannot include what spec.include names").Because(err).
			WithHint("Check fromPath and toPath: they are relative to the root of the artifacts, and stay inside")
	}
	return composed, nil
}

// includeTo is where an included artifact stands.
func includeTo(i sourcev1.GitRepositoryInclude) string {
	return cmp.Or(i.ToPath, i.GitRepositoryRef.Name)
}

// relative writes a path as io/fs has it. One that leads out stays as it is, for whoever uses it to refuse.
func relative(name string) string {
	return path.Clean(strings.TrimPrefix(name, "/"))
}
