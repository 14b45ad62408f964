package kustomization

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

var _ reconcile.Ranker = (*Controller)(nil)

// OnlyNotes implements [reconcile.Ranker]. The new artifact of a source only has to be noted if it has, for all files
// that the build read, the same content as the artifact that was applied. It is compared only if it is in memory.
func (c *Controller) OnlyNotes(ref, changed reconcile.Ref) bool {
	var obj kustomizev1.Kustomization
	ctx := context.Background() // all reads are from memory
	if err := c.Cache.Get(ctx, ref.NamespacedName, &obj); err != nil {
		return false
	}
	key := sourceKey(&obj)
	if changed != reconcile.RefTo(sourceGroupKind(key.Kind), key.Namespace, key.Name) {
		return false
	}
	s := c.states.Get(obj.UID)
	if s == nil {
		return false
	}
	applied, source := s.apply.appliedBuild.Load(), sourcev1.NewSource(key.Kind)
	if applied == nil || applied.trace == nil || applied.generation != obj.Generation || source == nil {
		return false
	}
	name := types.NamespacedName{Namespace: key.Namespace, Name: key.Name}
	if err := c.Cache.Get(ctx, name, source); err != nil || source.GetArtifact() == nil {
		return false
	}
	tree := c.Artifacts.Known(key, source.GetArtifact().Digest)
	return tree != nil && applied.trace.Unchanged(tree)
}

// ObserveDependencies enqueues Kustomizations when their dependencies change.
func (c *Controller) ObserveDependencies(ctx context.Context, cache cache.Cache) error {
	return c.dependencies().Observe(ctx, c.Clusters.Edges, cache, func(before, after *kustomizev1.Kustomization) bool {
		return before.Status.LastAppliedRevision != after.Status.LastAppliedRevision
	})
}
