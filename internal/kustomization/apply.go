package kustomization

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/build"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/rollout"
	"github.com/sluice-gitops/sluice/internal/text/redact"
	"github.com/sluice-gitops/sluice/internal/tracing"
)

// apply makes the cluster match the build, and deletes what is no longer declared.
func (r *run) apply(ctx context.Context) *reconcile.Outcome {
	if r.built == nil {
		return nil
	}
	times := &kustomizev1.StepTimes{Started: meta.TimeOf(r.state.started), Built: meta.TimeOf(r.Clock.Now())}
	done := tracing.Begin(ctx, "apply and prune")
	err := r.correct(ctx)
	done(err)
	if err == nil {
		times.Applied = ptr.To(meta.TimeOf(r.Clock.Now()))
	}
	if !r.isDrift { // the times of a correction say nothing about the revision
		r.state.times = times
	}
	return r.notDeployed(err)
}

// correct makes the cluster match the build. If the build is the one that was applied last, all differences are drift,
// which spec.driftDetection.mode may keep from being corrected. Another build is always applied.
func (r *run) correct(ctx context.Context) error {
	r.isDrift = r.state.apply.lastAppliedDigest == r.state.build.digest
	r.report.Corrected = r.isDrift
	var err error
	switch mode := r.obj.DriftMode(); {
	case r.isDrift && mode == meta.DriftWarn:
		err = r.detectDrift(ctx)
	case r.isDrift && mode == meta.DriftDisabled:
		reconcile.Unmark(r.obj, meta.DriftedCondition)
		r.state.complete()
	default:
		err = r.applyAll(ctx)
	}
	err = r.inputs.redact(err)
	return r.destination(r.obj).ExplainMissingAccount(ctx, r.Live, r.obj.Namespace, err)
}

// applyAll applies the build, then prunes objects that are no longer declared.
func (r *run) applyAll(ctx context.Context) error {
	req, err := r.applyRequest(ctx)
	if err != nil {
		return err
	}
	s := &r.state.apply
	if !r.isDrift {
		r.forgetApplied(ctx)
	}
	s.lastAppliedDigest = "" // until all is applied, as a pass that ends halfway leaves a mixture
	defer func() { s.shown = r.built.Veil.Kept(s.shown, r.isDrift) }()
	result, err := r.target.Cluster.Apply(ctx, req)
	if result != nil {
		r.report.AddChanges(result.Changes)
		r.warn(append(slices.Clone(r.built.Warnings), result.Warnings...), r.built.Veil)
		s.unknown.Note(&r.report, result.Changes, r.built.Veil)
	}
	if err != nil {
		return explainTypes(err, r.built)
	}
	if err := r.prune(ctx, req.Previous.Without(result.Inventory), result.Inventory); err != nil {
		return err
	}
	r.state.complete()
	s.isComplete = len(s.retained) == 0
	if s.isComplete {
		s.lastAppliedDigest = r.state.build.digest
	}
	r.noteResync(req)
	switch r.obj.DriftMode() {
	case meta.DriftDisabled:
		r.target.Cluster.Forget(rollout.OwnerOf(refOf(r.obj))) // stops watching for drift
		reconcile.Unmark(r.obj, meta.DriftedCondition)
	case meta.DriftWarn:
		s.drift.Resolve(r.obj, &r.report)
	}
	return nil
}

// detectDrift reports objects that drifted, without correcting them.
func (r *run) detectDrift(ctx context.Context) error {
	req, err := r.applyRequest(ctx)
	if err != nil {
		return err
	}
	planned, err := r.target.Cluster.DetectDrift(ctx, req)
	if err != nil {
		return err
	}
	r.noteResync(req)
	r.state.apply.unknown.Note(&r.report, planned, r.built.Veil)
	r.state.complete()
	r.state.apply.drift.ReportDetected(r.obj, &r.report, planned)
	return nil
}

// reportOwners reports fields that other managers keep changing back, and objects that other owners declare as well.
// The Kustomization no longer declares objects that it retains for others.
func (r *run) reportOwners(context.Context) *reconcile.Outcome {
	r.reportContentions()
	inventory := r.obj.Status.Inventory
	if retained := r.state.apply.retained; len(retained) > 0 {
		inventory = rollout.InventoryStatus(rollout.Inventory(inventory).Without(retained))
	}
	r.Clusters.Claims.Report(r.obj, &r.report, r.target, inventory, r.state.build.declared.Yields)
	return nil
}

// reportContentions reports fields that other managers keep changing back.
func (r *run) reportContentions() {
	if r.obj.DriftMode() == meta.DriftEnabled {
		r.state.apply.drift.ReportContentions(r.obj, &r.report,
			r.target.Cluster.Contentions(rollout.OwnerOf(refOf(r.obj))))
	}
}

// needsCorrection reports whether the live objects must be compared although the build did not change.
func (r *run) needsCorrection() bool {
	owner := rollout.OwnerOf(refOf(r.obj))
	return r.obj.DriftMode() != meta.DriftDisabled && (r.target.Cluster.Drifted(owner) ||
		len(r.target.Cluster.UnwatchedKinds(owner)) > 0 || r.needsResync(r.state))
}

// needsResync reports whether all objects must be compared, including those for which no change was observed.
func (c *Controller) needsResync(s *state) bool {
	return c.Clock.Since(s.apply.lastResync) >= c.Options.Resync
}

// noteResync records when all objects were compared last. The first pass of a process compares them all.
func (r *run) noteResync(req apply.Request) {
	if req.Resync || r.state.apply.lastResync.IsZero() {
		r.state.apply.lastResync = r.Clock.Now()
	}
}

// applyRequest returns the request to apply the build in this pass.
func (r *run) applyRequest(ctx context.Context) (apply.Request, error) {
	isFirst := r.state.apply.lastResync.IsZero() // no object is known yet, so that all are compared
	req, err := newApplyRequest(r.obj, r.built, applyOptions{
		requested:    r.pass.Requested && r.mode != modeHold,
		resync:       r.pass.Requested || !isFirst && r.needsResync(r.state),
		strictFields: r.Options.StrictFields,
	})
	if req.SameDeclaration = r.isDrift; r.isDrift && len(r.obj.Status.History) > 0 {
		req.Recorded = r.obj.Status.History[0].Live
	}
	req.SaveInventory = func(i apply.Inventory) error {
		r.obj.Status.Inventory = rollout.InventoryStatus(i)
		return r.pass.Save(ctx, fmt.Sprintf("Applying revision %s", r.source.Revision))
	}
	return req, err
}

// applyOptions are the parts of an apply request that the pass decides.
type applyOptions struct {
	requested    bool // the pass was requested by annotation
	resync       bool // compare all objects
	strictFields bool // refuse unknown fields of built-in kinds
}

// newApplyRequest returns the request to apply a build, as the spec of the Kustomization asks for.
func newApplyRequest(obj *kustomizev1.Kustomization, built *build.Result, o applyOptions) (apply.Request, error) {
	ignore, err := rollout.IgnoreRules(obj.Spec.Ignore, obj.Spec.DriftDetection)
	return apply.Request{
		Owner:        rollout.OwnerOf(refOf(obj)),
		Objects:      built.Objects,
		Origin:       built.Origin,
		Locate:       built.Locate,
		Native:       true,
		StrictFields: o.strictFields,
		Previous:     rollout.Inventory(obj.Status.Inventory),
		Force:        obj.Spec.Force,
		Resync:       o.resync,
		Ignore:       ignore,
		RerunExpired: o.requested,
		MaxDiffs:     rollout.MaxDiffs,
		Veil:         built.Veil,
	}, err
}

// warn reports warnings of the API server and of the apply, unless they are the same as the last ones.
func (r *run) warn(warnings []string, veil *redact.Veil) {
	text := veil.Text(strings.Join(rollout.FirstLines(warnings), "\n"))
	if text == "" || text == r.state.apply.warnings {
		return
	}
	r.state.apply.warnings = text
	r.report.Warn(meta.AppliedWithWarningsReason, text)
}
