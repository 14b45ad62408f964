package kustomization

import (
	"context"
	"errors"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/build"
	"github.com/sluice-gitops/sluice/internal/kustomization/spec"
	"github.com/sluice-gitops/sluice/internal/rollout"
)

// build returns the objects to apply, or nil if what was applied is still current.
func (r *run) build(ctx context.Context, in *inputs) (*build.Result, error) {
	tree, err := r.sourceTree(ctx)
	if err != nil {
		return nil, err
	}
	b, a := &r.state.build, &r.state.apply
	a.setTarget(r.target)
	if !r.pass.Requested && b.isCurrent(r.obj, in, tree) {
		if b.err != nil {
			return nil, b.err
		}
		if a.isComplete && !r.needsCorrection() {
			return nil, nil
		}
	}
	r.worked = true
	result, err := r.buildTree(ctx, r.obj, r.source.Revision, tree, in)
	if result == nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, ctx.Err() // the trace is incomplete
	}
	a.isComplete = false
	a.appliedBuild.Store(nil)
	if err != nil {
		b.generation, b.inputs, b.trace, b.err = r.obj.Generation, in.digest, result.Trace, err
		if result.Again {
			b.trace = nil
		}
		return nil, err
	}
	if r.pass.HasRules() && !r.held && !r.reverts && !r.state.decided.Allows(decision(r.obj, "sha256:"+result.Digest)) {
		return nil, errors.New("variables or keys changed while gates decided about the build: they will decide again")
	}
	if r.reverts && r.pass.HasRules() {
		// No rule decides about what an object goes back to, so it must be what was healthy.
		if healthy := r.Applied.Get(artifact.Healthy(string(r.obj.UID))); healthy == nil ||
			healthy.Build != "sha256:"+result.Digest {
			return nil, errors.New("variables or keys changed since the revision was healthy: the Kustomization " +
				"cannot go back to it. Restore them, or approve a newer revision by its name")
		}
	}
	r.recordBuild(in, result)
	return result, nil
}

// recordBuild records a successful build.
func (r *run) recordBuild(in *inputs, result *build.Result) {
	b := &r.state.build
	b.generation, b.inputs, b.trace, b.err = r.obj.Generation, in.digest, result.Trace, nil
	if result.Again {
		b.trace = nil
	}
	b.digest = "sha256:" + result.Digest
	b.declared = rollout.DeclaredBy(rollout.OwnerOf(refOf(r.obj)), result.Objects, r.target.Cluster.DefaultNamespace())
}

// buildTree builds the objects of a Kustomization at a revision of its source. A failed build also returns a result,
// with the trace of what it read.
func (c *Controller) buildTree(ctx context.Context, obj *kustomizev1.Kustomization, revision string,
	tree *artifact.Tree, in *inputs) (*build.Result, error) {
	req, err := spec.Request(obj)
	if err != nil {
		return nil, err
	}
	req.Tree, req.Fetch, req.FetchBase = tree, c.Options.FetchManifest, c.Options.FetchBase
	req.Decryption, req.Substitution = in.keys, in.substitution
	result, err := build.Build(ctx, req)
	if result.Veil != nil {
		in.veil = result.Veil.After(c.stateOf(obj).apply.shown, result.Objects)
	}
	if err == nil {
		err = spec.CheckNotEmpty(obj, result, revision)
	}
	return result, err
}
