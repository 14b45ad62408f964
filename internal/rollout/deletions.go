package rollout

import (
	"context"
	"time"

	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/guard"
)

const (
	maxAwaited    = 100       // deletions of a cluster that are awaited at a time; no event follows further ones
	awaitDeletion = time.Hour // events are kept for as long
)

// Deletions waits for deletions that finalizers hold, to report them. Its zero value is ready to use.
type Deletions struct{ ofTargets PerTarget[*deletions] }

// deletions are those of one cluster.
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

// Report calls report with "<object> deleted" for each object whose deletion finalizers held, once it is gone.
func (d *Deletions) Report(target *Target, pruned []apply.Change, report func(message string)) {
	of := d.ofTargets.Of(target, newDeletions, func(d *deletions) { d.end() })
	for _, change := range pruned {
		if len(change.HeldBy) == 0 {
			continue
		}
		select {
		case of.room <- struct{}{}:
		default:
			return
		}
		guard.Go("waiting for a deletion", func() {
			defer func() { <-of.room }()
			ctx, cancel := context.WithTimeout(of.ctx, awaitDeletion)
			defer cancel()
			if target.Cluster.AwaitDeleted(ctx, change.Ref) {
				report(change.Ref.String() + " deleted")
			}
		})
	}
}
