package sync

import (
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// Source is a kind that Kustomizations build from.
type Source interface {
	reconcile.Object
	GetArtifact() *meta.Artifact
}

// SourceMoved tells whether a change of a source is one that its consumers act on: another artifact.
func SourceMoved[T Source](before, after T) bool {
	b, a := before.GetArtifact(), after.GetArtifact()
	if b == nil || a == nil {
		return b != a
	}
	return b.Revision != a.Revision || b.Digest != a.Digest
}

// DependencyMoved tells whether a change of a Kustomization is one that its dependents act on.
func DependencyMoved(before, after *kustomizev1.Kustomization) bool {
	return reconcile.IsReady(before) != reconcile.IsReady(after) ||
		before.Status.LastAppliedRevision != after.Status.LastAppliedRevision ||
		before.Generation != after.Generation
}
