package helmrelease

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"

	"k8s.io/utils/ptr"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/rollout"
)

// mode is what gates let a pass do.
type mode int

const (
	modeRelease mode = iota // install, upgrade and test what is desired, or go on with it
	modeRevert              // roll back to the release that was healthy before
	modeHold                // correct drift of what is released
)

// admit asks the gates what the pass may do, and checks the dependencies of a release.
func (r *run) admit(ctx context.Context) (mode, *reconcile.Outcome) {
	r.propose = sync.OnceValues(func() (*rollout.Proposal, error) { return r.proposal(ctx) })
	what := func() (string, error) { return r.decision(r.obj), nil }
	if r.Applied.Get(artifact.Healthy(string(r.obj.UID))) == nil {
		r.pass.SetPrevious(nil)
	}
	r.pass.Variant = variantOf(r.decision(r.obj))
	if rollout.Admit(&r.state.decided, r.pass, r.chart.version, what, r.propose) == nil {
		return modeRelease, r.awaitDependencies(ctx)
	}
	if reverts, err := r.mustRevert(ctx); err != nil || reverts {
		return modeRevert, rollout.Stop(err)
	}
	// What was begun is completed, so that the release is not left pending.
	attempted := r.isAttempted(r.obj)
	if attempted && r.pass.InProgress && r.pass.WasAdmitted(r.chart.version) ||
		attempted && !r.isReleased(r.obj) && r.pass.Continue(r.chart.version) {
		return modeRelease, r.awaitDependencies(ctx)
	}
	return modeHold, nil
}

// awaitDependencies returns the outcome while a dependency is not ready.
func (r *run) awaitDependencies(ctx context.Context) *reconcile.Outcome {
	if waiting := r.checkDependencies(ctx); waiting != nil {
		return ptr.To(waiting.WithArtifact(r.artifact))
	}
	return nil
}

func (r *run) checkDependencies(ctx context.Context) *reconcile.Outcome {
	return r.dependencies().Check(ctx, r.obj, r.chart.version, func(*helmv2.HelmRelease) bool { return true })
}

// isAttempted reports whether the last attempt was for the same chart, values and spec.
func (d *desired) isAttempted(obj *helmv2.HelmRelease) bool {
	s := obj.Status
	return s.LastAttemptedRevision == d.chart.version && s.LastAttemptedConfigDigest == d.configDigest &&
		s.LastAttemptedGeneration == obj.Generation && s.LastAttemptedRevisionDigest == d.chart.ociDigest
}

// decision identifies what gates with rules decide about.
func (d *desired) decision(obj *helmv2.HelmRelease) string {
	return fmt.Sprintf("%s/%s/%s/%d", d.chart.version, d.chart.artifact, d.configDigest, obj.Generation)
}

// variantOf returns a short digest of a decision: versions of charts do not identify what is released.
func variantOf(decision string) string {
	sum := sha256.Sum256([]byte(decision))
	return "release " + hex.EncodeToString(sum[:8])
}

// isReleased reports whether what is desired was released before.
func (d *desired) isReleased(obj *helmv2.HelmRelease) bool {
	return d.isAttempted(obj) && obj.Status.Failures == 0 && obj.Status.ObservedGeneration == obj.Generation
}

// proposal returns what an install or upgrade to the desired release would change. It has a run of its own, as the
// events of the preview are none of the pass.
func (r *run) proposal(ctx context.Context) (*rollout.Proposal, error) {
	if r.isReleased(r.obj) && r.pass.WasAdmitted(r.chart.version) {
		return &rollout.Proposal{}, nil
	}
	if waiting := r.checkDependencies(ctx); waiting != nil {
		return nil, errors.New(waiting.String()) // the change depends on what the dependencies will apply
	}
	p := r.newRun(r.pass)
	p.desired = r.desired
	defer p.releaseMemory()
	if err := p.open(ctx); err != nil {
		return nil, err
	}
	return p.preview(ctx)
}
