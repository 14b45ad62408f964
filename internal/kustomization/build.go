package kustomization

import (
	"context"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/build"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/kustomization/spec"
)

// build returns the objects to apply, or none when what was applied still stands.
func (r *run) build(ctx context.Context, in *inputs) (*build.Result, error) {
	tree, err := r.Artifacts.Fetch(ctx, *r.source)
	if err != nil {
		return nil, err
	}
	m := r.memory
	if m.target != r.target { // another cluster, or another identity
		if m.target != nil {
			m.standing = ""
		}
		m.target, m.applied = r.target, false
	}
	same := m.trace != nil && m.generation == r.obj.Generation && m.inputs == in.digest && m.trace.Unchanged(tree)
	if same && m.failure != nil && !r.pass.Requested {
		return nil, m.failure
	}
	if same && m.applied && !r.pass.Requested && !r.due() {
		return nil, nil
	}
	r.worked = true
	result, err := r.make(ctx, tree, in)
	if result == nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, ctx.Err() // half a trace is none
	}
	m.generation, m.inputs, m.trace, m.failure, m.applied = r.obj.Generation, in.digest, result.Trace, err, false
	m.stands.Store(nil)
	if result.Again {
		m.trace = nil // it says too little
	}
	if err != nil {
		return nil, err
	}
	m.digest, m.expiring = "sha256:"+result.Digest, expiring(result.Objects)
	return result, nil
}

// make builds what the spec makes of a tree. A build that fails has a result, too: what it read.
func (r *run) make(ctx context.Context, tree *artifact.Tree, in *inputs) (*build.Result, error) {
	req, err := spec.Request(r.obj)
	if err != nil {
		return nil, err
	}
	req.Tree, req.Fetch, req.Decryption, req.Substitution = tree, r.Options.FetchBase, in.keys, in.substitution
	result, err := build.Build(ctx, req)
	result.Secrets = append(result.Secrets, in.secret...)
	if err == nil {
		err = r.refuseEmpty(result)
	}
	return result, err
}

// refuseEmpty keeps a source that lost its files from pruning everything: only a kustomization that says so is empty.
func (r *run) refuseEmpty(built *build.Result) error {
	if n := len(inventoryOf(r.obj)); len(built.Objects) == 0 && !built.Empty && n > 0 && r.obj.Spec.Prune {
		return fault.New(meta.BuildFailedReason,
			"the build made no objects, and pruning would delete all %d that were applied: nothing was changed", n).
			WithHint("If that is meant, put a kustomization.yaml with 'resources: []' at spec.path; else check " +
				"spec.path, and what the source ignores")
	}
	return nil
}
