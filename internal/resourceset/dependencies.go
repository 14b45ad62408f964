package resourceset

import (
	"context"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/rollout"
)

// dependencies returns the check of spec.dependsOn.
func (c *Controller) dependencies() *rollout.Dependencies[*controlplanev1.ResourceSet] {
	return &rollout.Dependencies[*controlplanev1.ResourceSet]{
		Kind:      GroupKind,
		Reader:    c.Client,
		New:       func() *controlplanev1.ResourceSet { return &controlplanev1.ResourceSet{} },
		DependsOn: func(s *controlplanev1.ResourceSet) []meta.DependencyReference { return s.Spec.DependsOn },
		Policy:    rollout.ReferencePolicy{NoCrossNamespace: c.Options.NoCrossNamespaceRefs},
		Account:   func(s *controlplanev1.ResourceSet) string { return c.destination(s).ServiceAccount },
		Watch:     c.Clusters.Dependencies,
	}
}

// checkDependencies returns the outcome of a ResourceSet with a dependency that is not ready; nil if all are.
func (c *Controller) checkDependencies(ctx context.Context, obj *controlplanev1.ResourceSet) *reconcile.Outcome {
	return c.dependencies().Check(ctx, obj, "", func(*controlplanev1.ResourceSet) bool { return true })
}
