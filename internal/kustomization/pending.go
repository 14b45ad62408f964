package kustomization

import (
	"context"
	"fmt"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/apply"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// maxPending bounds how many objects of a change that waits are named.
const maxPending = 20

// pendingChange is what waits at closed gates, and what it was worked out for.
type pendingChange struct {
	of     string
	change meta.Pending
}

// held ends the pass of a Kustomization that gates hold, and tells what would change were they open.
func (k *Kustomization) held(ctx context.Context, pass *reconcile.Pass[*kustomizev1.Kustomization],
	source *meta.Artifact) reconcile.Outcome {
	m := k.remembered(pass.Object)
	m.health = healthProgress{} // its clock does not run on
	if source.Revision == pass.Object.Status.LastAppliedRevision &&
		pass.Object.Status.ObservedGeneration == pass.Object.Generation {
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
	would := apply.Summarize(planned)
	change.Created, change.Configured, change.Deleted = int32(would.Created), int32(would.Configured),
		int32(would.Deleted)
	planned = effective(planned)
	for _, c := range planned[:min(len(planned), maxPending)] {
		change.Changes = append(change.Changes, fmt.Sprintf("%s %s", c.Ref, c.Action))
	}
	*last = pendingChange{of, change}
	return reconcile.Held(*change.DeepCopy())
}

// plan builds the source and tells by dry-runs what applying it would do. It leaves no trace in what is known
// of the Kustomization.
func (k *Kustomization) plan(ctx context.Context, pass *reconcile.Pass[*kustomizev1.Kustomization],
	source *meta.Artifact) ([]apply.Change, error) {
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
	would, err := r.applyRequest(ctx, built)
	if err != nil {
		return nil, err
	}
	if !obj.Spec.Prune {
		would.Previous = nil // nothing would be deleted
	}
	planned, err := target.Cluster.Diff(ctx, would)
	return planned, in.hide(err)
}
