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
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/rollout"
)

// admit asks the gates and checks the dependencies. It returns the outcome if the pass must not continue.
func (c *Controller) admit(ctx context.Context, pass *reconcile.Pass[*helmv2.HelmRelease],
	d *desired) *reconcile.Outcome {
	obj := pass.Object
	propose := sync.OnceValues(func() (*rollout.Proposal, error) { return c.propose(ctx, pass, d) })
	what := func() (string, error) { return d.decision(obj), nil }
	if c.Applied.Get(artifact.Healthy(string(obj.UID))) == nil {
		pass.SetPrevious(nil)
	}
	pass.Variant = variantOf(d.decision(obj))
	if rollout.Admit(&c.stateOf(obj).decided, pass, d.chart.version, what, propose) != nil {
		if outcome := c.goBack(ctx, pass, d); outcome != nil {
			return outcome
		}
		inProgress := pass.InProgress && pass.WasAdmitted(d.chart.version) && d.isAttempted(obj)
		if !inProgress && !(d.isAttempted(obj) && !d.isReleased(obj) && pass.Continue(d.chart.version)) {
			return ptr.To(c.hold(ctx, pass, d, propose))
		}
	}
	if waiting := c.checkDependencies(ctx, obj, d); waiting != nil {
		return ptr.To(waiting.WithArtifact(d.artifact))
	}
	return nil
}

func (c *Controller) checkDependencies(ctx context.Context, obj *helmv2.HelmRelease, d *desired) *reconcile.Outcome {
	return c.dependencies().Check(ctx, obj, d.chart.version, func(*helmv2.HelmRelease) bool { return true })
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

// hold corrects the drift of a HelmRelease that gates hold, and returns its outcome.
func (c *Controller) hold(ctx context.Context, pass *reconcile.Pass[*helmv2.HelmRelease], d *desired,
	propose func() (*rollout.Proposal, error)) reconcile.Outcome {
	report, retry := c.correctHeld(ctx, pass, d)
	outcome := report.Outcome(c.pending(ctx, pass, d, propose))
	if retry {
		outcome = outcome.After(rollout.CorrectionRetry)
	}
	return outcome
}

// isReleased reports whether what is desired was released before.
func (d *desired) isReleased(obj *helmv2.HelmRelease) bool {
	return d.isAttempted(obj) && obj.Status.Failures == 0 && obj.Status.ObservedGeneration == obj.Generation
}

// pending returns the outcome of a HelmRelease that gates hold, with a preview of the pending change.
func (c *Controller) pending(ctx context.Context, pass *reconcile.Pass[*helmv2.HelmRelease], d *desired,
	propose func() (*rollout.Proposal, error)) reconcile.Outcome {
	obj, s := pass.Object, c.stateOf(pass.Object)
	if d.isReleased(obj) {
		return reconcile.Held(meta.Pending{}) // no change is pending
	}
	key := d.decision(obj)
	if pass.HasRules() {
		key = "" // the pending change is the one that the gates decided about
	}
	return reconcile.Held(s.preview.Get(ctx, key, d.chart.version, propose))
}

// propose returns what an install or upgrade to the desired release would change.
func (c *Controller) propose(ctx context.Context, pass *reconcile.Pass[*helmv2.HelmRelease],
	d *desired) (*rollout.Proposal, error) {
	obj := pass.Object
	if d.isReleased(obj) && pass.WasAdmitted(d.chart.version) {
		return &rollout.Proposal{}, nil
	}
	if waiting := c.checkDependencies(ctx, obj, d); waiting != nil {
		return nil, errors.New(waiting.String()) // the change depends on what the dependencies will apply
	}
	r, err := c.newRun(ctx, pass, d)
	if err != nil {
		return nil, err
	}
	defer r.releaseMemory()
	return r.preview(ctx)
}
