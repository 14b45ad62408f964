package kustomization

import (
	"context"
	"errors"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/build"
	"github.com/sluice-gitops/sluice/internal/kustomization/spec"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/rollout"
	"github.com/sluice-gitops/sluice/internal/tracing"
)

// build builds the objects to apply, unless what was applied is still current.
func (r *run) build(ctx context.Context) *reconcile.Outcome {
	done := tracing.Begin(ctx, "build")
	err := r.buildSource(ctx)
	done(err)
	return r.notDeployed(err)
}

func (r *run) buildSource(ctx context.Context) error {
	tree, err := r.sourceTree(ctx)
	if err != nil {
		return err
	}
	b, a := &r.state.build, &r.state.apply
	a.setTarget(r.target)
	if !r.pass.Requested && b.isCurrent(r.obj, r.inputs, tree) {
		if b.err != nil {
			return b.err
		}
		if a.isComplete && !r.needsCorrection() {
			return nil
		}
	}
	r.worked = true
	result, err := r.buildTree(ctx, r.obj, r.source.Revision, tree, r.inputs)
	if result == nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err() // the trace is incomplete
	}
	a.isComplete = false
	a.appliedBuild.Store(nil)
	if err != nil {
		b.record(r, result, err)
		return err
	}
	if err := r.checkDecided(result); err != nil {
		return err
	}
	r.recordBuild(result)
	return nil
}

// sourceTree returns the tree to build.
func (r *run) sourceTree(ctx context.Context) (*artifact.Tree, error) {
	if r.mode == modeRevert {
		return r.Applied.Tree(artifact.Healthy(string(r.obj.UID)))
	}
	return r.fetch(ctx, r.obj, r.source)
}

// checkDecided returns an error if the build is not the one that rules of gates decided about: variables and keys are
// read again for each build.
func (r *run) checkDecided(result *build.Result) error {
	digest := "sha256:" + result.Digest
	switch {
	case !r.pass.HasRules():
	case r.mode == modeApply && !r.state.decided.Allows(decision(r.obj, digest)):
		return errors.New("variables or keys changed while gates decided about the build: they will decide again")
	case r.mode == modeRevert:
		// No rule decides about what an object goes back to, so it must be what was healthy.
		if healthy := r.Applied.Get(artifact.Healthy(string(r.obj.UID))); healthy == nil || healthy.Build != digest {
			return errors.New("variables or keys changed since the revision was healthy: the Kustomization " +
				"cannot go back to it. Restore them, or approve a newer revision by its name")
		}
	}
	return nil
}

// recordBuild records a successful build.
func (r *run) recordBuild(result *build.Result) {
	r.built = result
	b := &r.state.build
	b.record(r, result, nil)
	b.digest = "sha256:" + result.Digest
	b.declared = rollout.DeclaredBy(rollout.OwnerOf(refOf(r.obj)), result.Objects, r.target.Cluster.DefaultNamespace())
}

// record records when a build must be done again.
func (b *buildState) record(r *run, result *build.Result, err error) {
	b.generation, b.inputs, b.trace, b.err = r.obj.Generation, r.inputs.digest, result.Trace, err
	if result.Again {
		b.trace = nil
	}
}

// buildTree builds the objects of a Kustomization at a revision of its source. A failed build also returns a result,
// with the trace of what it read. Its error has no values of Secrets.
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
	return result, in.redact(err)
}
