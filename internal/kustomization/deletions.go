package kustomization

import (
	corev1 "k8s.io/api/core/v1"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/rollout"
)

// reportDeleted emits an event for each object whose deletion was requested, and held by finalizers, once it is gone.
func (c *Controller) reportDeleted(target *rollout.Target, obj *kustomizev1.Kustomization, pruned []apply.Change) {
	reported := obj.DeepCopy()
	c.deletions.Report(target, pruned, func(message string) {
		c.emit(reported, corev1.EventTypeNormal, meta.ProgressingReason, message)
	})
}
