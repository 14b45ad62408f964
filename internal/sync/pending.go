package sync

import (
	"context"
	"fmt"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/apply"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/sync/spec"
)

// maxPending bounds how many objects of a change that waits are named.
const maxPending = 20

// pendingChange is what waits at closed gates, and what it was worked out for.
type pendingChange struct {
	of     string
	change meta.Pending
}

// held ends the pass of a Kustomization that gates hold, and tells what would change were they open.
func (k *Kustomization) held(ctx context.Context, pass *reconcile.Pass[*kustomizev1.Kustomization], source *meta.Artifact) reconcile.Outcome {
	m := k.remembered(pass.Object)
	m.health = healthProgress{} // its clock does not run on
	if source.Revision == pass.Object.Status.LastAppliedRevision && pass.Object.Status.ObservedGeneration == pass.Object.Generation {
		return reconcile.Held(meta.Pending{}) // nothing waits
	}
	last := &m.pending
	of := fmt.Sprintf("%s/%s/%d", source.Revision, source.Digest, pass.Object.Generation)
	if last.of == of {
		return reconcile.Held(*last.change.DeepCopy())
	}
	change := meta.Pending{Revision: source.Revision}
	if waiting := k.dependencies(ctx, pass.Object, source); waiting != nil {
		change.Message = waiting.String() // what it would do depends on what those bring
		return reconcile.Held(change)
	}
	planned, err := k.plan(ctx, pass, source)
	if err != nil {
		change.Message = err.Error()
		return reconcile.Held(change)
	}
	for _, c := range planned {
		switch c.Action {
		case apply.Created:
			change.Created++
		case apply.Configured:
			change.Configured++
		case apply.Deleted:
			change.Deleted++
		default:
			continue
		}
		if len(change.Changes) < maxPending {
			change.Changes = append(change.Changes, fmt.Sprintf("%s %s", c.Ref, c.Action))
		}
	}
	*last = pendingChange{of, change}
	return reconcile.Held(*change.DeepCopy())
}

// plan builds the source and tells by dry-runs what applying it would do. It leaves no trace in what is known of the Kustomization.
func (k *Kustomization) plan(ctx context.Context, pass *reconcile.Pass[*kustomizev1.Kustomization], source *meta.Artifact) ([]apply.Planned, error) {
	obj := pass.Object
	target, err := k.Clusters.For(ctx, obj, k.Options.DefaultServiceAccount)
	if err != nil {
		return nil, err
	}
	r := &run{Kustomization: k, pass: pass, obj: obj, source: source, target: target, memory: k.remembered(obj)}
	in, err := r.inputs(ctx)
	if err != nil {
		return nil, err
	}
	tree, err := k.Artifacts.Fetch(ctx, *source)
	if err != nil {
		return nil, err
	}
	built, err := r.make(ctx, tree, in)
	if err != nil {
		return nil, err
	}
	ignore, err := spec.Ignored(obj)
	if err != nil {
		return nil, err
	}
	would := apply.Request{Owner: r.owner(), Objects: built.Objects, Origin: built.Origin, Force: obj.Spec.Force, Ignore: ignore, Secrets: built.Secrets}
	if obj.Spec.Prune {
		would.Previous = inventoryOf(obj)
	}
	planned, err := target.Cluster.Diff(ctx, would)
	return planned, in.hide(err)
}
