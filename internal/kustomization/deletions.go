package kustomization

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/apply"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/rollout"
)

const (
	maxAwaited    = 100       // deletions of a cluster that are awaited at a time; no event follows further ones
	awaitDeletion = time.Hour // events are kept for as long
)

// deletions are those of one cluster that finalizers hold.
type deletions struct {
	ctx  context.Context
	end  context.CancelFunc
	room chan struct{}
}

func newDeletions() *deletions {
	d := &deletions{room: make(chan struct{}, maxAwaited)}
	d.ctx, d.end = context.WithCancel(context.Background())
	return d
}

// reportDeleted emits an event for each object whose deletion was requested, and held by finalizers, once it is gone.
func (c *Controller) reportDeleted(target *rollout.Target, obj *kustomizev1.Kustomization, pruned []apply.Change) {
	d := c.deletions.Of(target, newDeletions, func(d *deletions) { d.end() })
	reported := obj.DeepCopy()
	for _, change := range pruned {
		if len(change.HeldBy) == 0 {
			continue
		}
		select {
		case d.room <- struct{}{}:
		default:
			return
		}
		guard.Go("waiting for a deletion", func() {
			defer func() { <-d.room }()
			ctx, cancel := context.WithTimeout(d.ctx, awaitDeletion)
			defer cancel()
			if target.Cluster.AwaitDeleted(ctx, change.Ref) {
				c.emit(reported, corev1.EventTypeNormal, meta.ProgressingReason, change.Ref.String()+" deleted")
			}
		})
	}
}
