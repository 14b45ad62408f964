package automate

import (
	"context"
	"errors"
	"maps"
	"time"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/image/change"
	"github.com/sluice-gitops/sluice/internal/image/edit"
	"github.com/sluice-gitops/sluice/internal/image/record"
	"github.com/sluice-gitops/sluice/internal/image/scan"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source/git"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// maxCommits bounds the commits of one pass. The next pass makes the others.
var maxCommits = 100

// run is one pass of an automation, with its results so far.
type run struct {
	automation *Automation
	pass       *reconcile.Pass[*imagev1.ImageUpdateAutomation]
	writer     *change.Writer
	state      *state

	problems  []string        // for the Ready condition
	pushed    []change.Pushed // oldest first
	batchWait time.Duration   // how long the changes wait for others; zero: they do not wait
}

// update checks out the repository once and commits what differs from the selected images.
func (r *run) update(ctx context.Context, fresh bool) error {
	checkout, err := r.writer.Checkout(ctx, fresh)
	if err != nil {
		return err
	}
	result, err := r.scan(ctx, checkout)
	if err != nil {
		return err
	}
	r.problems = r.writer.Selection.Problems(result)
	if len(result.Edits) == 0 {
		r.upToDate(checkout)
		return nil
	}
	branch, err := r.writer.Branch(ctx, checkout, result.Changes, "")
	if err != nil {
		return err
	}
	if r.writer.HasChanges(ctx, &r.state.scanner, checkout, branch, r.writer.Selection.Plan) {
		r.upToDate(checkout)
		return r.openPullRequest(ctx, branch, result.Changes) // if that failed after the push
	}
	if !branch.HasOthers() {
		return r.commit(ctx, checkout, branch, result)
	}
	return r.addTo(ctx, checkout, branch, result)
}

// addTo commits on top of the branch of a pull request that has commits of others.
func (r *run) addTo(ctx context.Context, checkout *change.Checkout, branch change.Branch, result scan.Result) error {
	all := result.Changes
	result.Release()
	checkout, err := r.writer.Onto(branch, checkout)
	if err != nil {
		return err
	}
	if result, err = r.scan(ctx, checkout); err != nil {
		return err
	}
	if len(result.Edits) == 0 {
		r.upToDate(checkout)
		return r.openPullRequest(ctx, branch, all)
	}
	return r.commit(ctx, checkout, branch, result)
}

// commit commits the changes unless they wait for others or a gate holds them.
func (r *run) commit(ctx context.Context, checkout *change.Checkout, branch change.Branch, result scan.Result) error {
	if branch.IsCheckout() {
		if err := r.state.reverts.check(result.Changes); err != nil {
			return err
		}
	}
	r.batchWait = r.state.batch.wait(&r.pass.Object.Spec, r.pass.Requested, result.Changes, r.automation.Clock.Now())
	if r.batchWait > 0 {
		r.enqueueAfter(r.batchWait)
		return nil
	}
	if err := r.pass.Admit(change.Summary(result.Changes)); err != nil {
		return err
	}
	if err := r.commitAll(ctx, checkout, branch, result); err != nil {
		return err
	}
	r.state.batch.reset()
	return r.openPullRequest(ctx, branch, result.Changes)
}

func (r *run) upToDate(checkout *change.Checkout) {
	r.state.batch.reset()
	r.pass.Object.Status.ObservedSourceRevision = checkout.Revision.String()
}

func (r *run) scan(ctx context.Context, checkout *change.Checkout) (scan.Result, error) {
	return r.writer.Scan(ctx, &r.state.scanner, checkout, r.writer.Selection.Plan)
}

// enqueueAfter enqueues the automation when its batch is complete.
func (r *run) enqueueAfter(d time.Duration) {
	ref := reconcile.RefTo(GroupKind, r.pass.Object.Namespace, r.pass.Object.Name)
	edges := r.automation.Edges
	r.state.batch.timer = r.automation.Clock.AfterFunc(d, func() { edges.Enqueue(ref) })
}

// commitAll commits and pushes all changes: in one commit, or in one per policy.
func (r *run) commitAll(ctx context.Context, checkout *change.Checkout, branch change.Branch,
	result scan.Result) error {
	obj := r.pass.Object
	perPolicy := obj.Spec.Batch != nil && obj.Spec.Batch.PerPolicy
	for range maxCommits {
		part, err := result, error(nil)
		if perPolicy {
			policy := scan.Policies(result.Changes)[0]
			if part, err = checkout.Only(ctx, result, r.writer.Selection.Plan, policy); err != nil {
				return err
			}
		}
		commit := change.Commit{Checkout: checkout, Branch: branch, Set: r.writer.Selection.Set, Result: part,
			Attribution: change.Attribution{By: record.By(imagev1.ImageUpdateAutomationKind, obj.Namespace, obj.Name)}}
		pushed, err := r.writer.Push(ctx, commit)
		if errors.Is(err, git.ErrUnchanged) {
			return nil
		}
		if err != nil {
			return err
		}
		if branch.IsCheckout() {
			r.state.reverts.add(part.Changes)
		}
		r.recordPush(pushed)
		if checkout, branch, err = r.writer.After(commit, pushed.Hash); err != nil {
			return err
		}
		incomplete := result.Incomplete
		result.Release()
		if result, err = r.scan(ctx, checkout); err != nil || len(result.Edits) == 0 {
			obj.Status.ObservedSourceRevision = checkout.Revision.String()
			return err
		}
		if incomplete { // the gates have not seen the others
			if err := r.pass.Admit(change.Summary(result.Changes)); err != nil {
				return err
			}
		}
	}
	return fault.New(imagev1.UpdateFailedReason, "%d commits were made, and more changes are left", maxCommits).
		WithHint("The next run commits them")
}

// recordPush writes a pushed commit to the status.
func (r *run) recordPush(pushed change.Pushed) {
	r.pushed = append(r.pushed, pushed)
	if pushed.Warning != "" {
		r.problems = append(r.problems, pushed.Warning)
	}
	status := &r.pass.Object.Status
	if !maps.Equal(r.writer.Selection.Observed, status.ObservedPolicies) {
		status.PullRequest = "" // the pull request of other images
	}
	status.LastPushCommit = pushed.Hash.String()
	status.LastPushTime = &meta.Time{Time: r.automation.Clock.Now()}
}

// openPullRequest opens or updates the pull request of the branch, if the automation opens them. It does so
// once for the same images, so that people may close the pull request.
func (r *run) openPullRequest(ctx context.Context, branch change.Branch, changes []edit.Change) error {
	obj := r.pass.Object
	opened := obj.Status.PullRequest != "" && obj.Status.ObservedGeneration == obj.Generation
	if opened || !r.writer.OpensPullRequests() {
		return nil
	}
	address, err := r.writer.OpenPullRequest(ctx, branch, changes, change.Attribution{})
	if err != nil {
		return err
	}
	obj.Status.PullRequest = address
	if n := len(r.pushed); n > 0 {
		r.pushed[n-1].Message += "\npull request: " + address
	}
	return nil
}
