package resourceset

import (
	"context"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/rollout"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// apply applies the objects step by step, then prunes what is no longer declared. It returns an outcome while the
// objects of a step become healthy. Nothing is applied if what was applied is still current, for which built is nil.
func (r *run) apply(ctx context.Context, built *build) (*reconcile.Outcome, error) {
	if built == nil {
		return nil, nil
	}
	s, digest := &r.state.apply, r.state.build.digest
	r.isDrift = s.lastAppliedDigest == digest
	if s.passedDigest != digest {
		s.passedDigest, s.passed = digest, 0
	}
	s.lastAppliedDigest = ""
	if err := r.recreateFailedJobs(ctx); err != nil {
		return nil, err
	}
	r.report.Corrected = r.isDrift
	last := len(built.steps) - 1
	for n := s.passed; ; n++ {
		if err := r.applyObjects(ctx, built.objects(n+1)); err != nil {
			s.passed = 0
			return nil, r.ofStep(n, "apply failed", err)
		}
		if n >= last {
			break
		}
		progressing, err := r.checkStep(ctx, n)
		if err != nil {
			s.passed = 0
			return nil, r.ofStep(n, "health check failed", err)
		}
		if progressing != nil {
			return progressing, nil
		}
		s.passed = n + 1
	}
	if err := r.prune(ctx); err != nil {
		return nil, err
	}
	s.isComplete, s.lastAppliedDigest, s.pruneStarted = true, digest, time.Time{}
	return nil, nil
}

// ofStep adds to an error which step failed, if there are steps.
func (r *run) ofStep(n int, what string, err error) error {
	if len(r.obj.Spec.Steps) == 0 || apply.IsWaiting(err) {
		return err
	}
	f := fault.New(fault.Reason(err, meta.ReconciliationFailedReason), `step "%s" %s`, r.obj.Spec.Steps[n].Name, what).
		Because(err)
	if isTerminal(err) {
		f = f.Final()
	}
	return f
}

// applyObjects applies objects, which contain those of all earlier steps.
func (r *run) applyObjects(ctx context.Context, objects []*unstructured.Unstructured) error {
	req := r.request(objects)
	req.SaveInventory = func(i apply.Inventory) error {
		r.obj.Status.Inventory = rollout.InventoryStatus(i)
		return r.pass.Save(ctx, "Applying "+r.state.build.digest)
	}
	result, err := r.target.Cluster.Apply(ctx, req)
	if result != nil {
		r.report.AddChanges(result.Changes)
		r.warn(result.Warnings)
		r.state.apply.unknown.Note(&r.report, result.Changes, nil)
		// What an apply may have created stays in the inventory until it is pruned.
		r.applied = result.Inventory
		r.obj.Status.Inventory = rollout.InventoryStatus(req.Previous.With(r.applied))
	}
	if err == nil && (req.Resync || r.state.apply.lastResync.IsZero()) {
		r.state.apply.lastResync = r.Clock.Now()
	}
	return err
}

// request returns the request to apply objects.
func (r *run) request(objects []*unstructured.Unstructured) apply.Request {
	isFirst := r.state.apply.lastResync.IsZero() // no object is known yet, so that all are compared
	return apply.Request{
		Owner: rollout.OwnerOf(refOf(r.obj)), Objects: objects, Native: true, StrictFields: r.Options.StrictFields,
		Previous: rollout.Inventory(r.obj.Status.Inventory),
		Force:    strings.EqualFold(r.obj.Annotations[controlplanev1.ForceAnnotation], controlplanev1.Enabled),
		Resync:   r.pass.Requested || !isFirst && r.needsResync(), SameDeclaration: r.isDrift,
		RerunExpired: r.pass.Requested, MaxDiffs: rollout.MaxDiffs,
	}
}

// needsCorrection reports whether the live objects must be compared although nothing else changed.
func (r *run) needsCorrection() bool {
	owner := rollout.OwnerOf(refOf(r.obj))
	return r.target.Cluster.Drifted(owner) || len(r.target.Cluster.UnwatchedKinds(owner)) > 0 || r.needsResync()
}

// needsResync reports whether all objects must be compared, including those for which no change was observed.
func (r *run) needsResync() bool { return r.Clock.Since(r.state.apply.lastResync) >= r.Options.Resync }

// warn reports warnings of the API server and of the apply, unless they are the same as the last ones.
func (r *run) warn(warnings []string) {
	text := strings.Join(rollout.FirstLines(warnings), "\n")
	if text == "" || text == r.state.apply.warnings {
		return
	}
	r.state.apply.warnings = text
	r.report.Warn(meta.AppliedWithWarningsReason, text)
}

// reportOwners reports fields that other managers keep changing back, and objects that other owners declare as well.
func (r *run) reportOwners() {
	r.state.apply.drift.ReportContentions(r.obj, &r.report,
		r.target.Cluster.Contentions(rollout.OwnerOf(refOf(r.obj))))
	r.Clusters.Claims.Report(r.obj, &r.report, r.target, r.obj.Status.Inventory, r.state.build.declared.Yields)
}

// prune deletes the objects that are no longer declared, and sets the inventory.
func (r *run) prune(ctx context.Context) error {
	stale := rollout.Inventory(r.obj.Status.Inventory).Without(r.applied)
	if len(stale) == 0 {
		return nil
	}
	s := &r.state.apply
	if s.pruneStarted.IsZero() {
		s.pruneStarted = r.Clock.Now()
	}
	stale, kept := rollout.WithoutOwnNamespace(refOf(r.obj), stale)
	if kept != "" {
		r.report.Warn(meta.PruneFailedReason, kept)
	}
	pruned, err := pruneStages(ctx, r.target.Cluster, rollout.OwnerOf(refOf(r.obj)), stale,
		r.Clock.Since(s.pruneStarted) < appliersTimeout)
	r.report.AddPruned(pruned)
	r.pruned = pruned
	if err != nil {
		return err // stale objects stay in the inventory until they are deleted, so that none is lost
	}
	r.obj.Status.Inventory = rollout.InventoryStatus(r.applied)
	return nil
}

// appliersTimeout is how long other objects wait for the deletion of Kustomizations and HelmReleases.
const appliersTimeout = time.Minute

// pruneStages deletes objects: first Kustomizations and HelmReleases, whose controllers delete what they applied, for
// which they may need the other objects. With wait, it returns an error of [apply.IsWaiting] until they are gone.
func pruneStages(ctx context.Context, c *apply.Cluster, owner apply.Owner, stale apply.Inventory,
	wait bool) ([]apply.Change, error) {
	var appliers, rest apply.Inventory
	for _, e := range stale {
		ref, err := e.Ref()
		if err == nil && (ref.Group == kustomizev1.GroupVersion.Group || ref.Group == helmv2.GroupVersion.Group) {
			appliers = append(appliers, e)
		} else {
			rest = append(rest, e)
		}
	}
	pruned, err := c.Prune(ctx, owner, appliers)
	if err == nil && len(appliers) > 0 && len(rest) > 0 && wait {
		err = c.WaitUntilDeleted(ctx, owner, appliers)
	}
	if err != nil {
		return pruned, err
	}
	more, err := c.Prune(ctx, owner, rest)
	return append(pruned, more...), err
}
