package release

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/go-git/go-git/v5/plumbing"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	imagev1alpha1 "github.com/sluice-gitops/sluice/api/image/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/image/change"
	"github.com/sluice-gitops/sluice/internal/image/edit"
	"github.com/sluice-gitops/sluice/internal/image/record"
	"github.com/sluice-gitops/sluice/internal/image/scan"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source/git"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// run is one try of a job.
type run struct {
	pass    *reconcile.Pass[*imagev1alpha1.ImageUpdateJob]
	writer  *change.Writer
	request request
	scanner *scan.Scanner
	pushing plumbing.Hash // the commit that this or an earlier try was about to push; zero: none
}

// run commits the images of a job, or only finds what would change if it is a dry run. The result is what was done
// before an error. The error is a fault, or that of a gate.
func (j *Jobs) run(ctx context.Context, pass *reconcile.Pass[*imagev1alpha1.ImageUpdateJob],
	automation *imagev1.ImageUpdateAutomation, images []edit.Ref) (result, error) {
	obj := pass.Object
	owner := string(obj.UID) // not that of the automation, whose passes run at the same time
	defer func() { _ = j.Writers.Release(owner) }()
	writer, err := j.Writers.Open(ctx, automation, change.Options{Owner: owner})
	if err != nil {
		return result{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, writer.Timeout)
	defer cancel()
	r := &run{pass: pass, writer: writer, scanner: &scan.Scanner{}, pushing: plumbing.NewHash(obj.Status.Commit),
		request: request{workloads: obj.Spec.Workloads, images: images}}
	var res result
	err = change.RetryRaces(func(int) (err error) {
		res, err = r.release(ctx)
		return err
	})
	return res, err
}

func (r *run) release(ctx context.Context) (result, error) {
	checkout, err := r.writer.Checkout(ctx, true)
	if err != nil {
		return result{}, err
	}
	set, found, problems, err := r.find(ctx, checkout)
	if err != nil {
		return result{}, err
	}
	res := result{changes: found.Changes, problems: problems}
	if r.pass.Object.Spec.DryRun {
		return res, nil
	}
	// The branch of a pull request has the name of the job, as the automation resets its own branch.
	branch, err := r.writer.Branch(ctx, checkout, found.Changes, "-"+r.pass.Object.Name)
	if err != nil {
		return res, err
	}
	pushed := !r.pushing.IsZero() && r.writer.Contains(branch, r.pushing)
	if pushed || len(found.Edits) == 0 || r.writer.HasChanges(ctx, r.scanner, checkout, branch, set.Plan) {
		return r.resume(ctx, branch, pushed, res)
	}
	if r.writer.OpensPullRequests() && !branch.Tip.IsZero() {
		return res, fault.New(imagev1.UpdateFailedReason, "branch '%s' exists already, with other changes",
			branch.Name()).
			WithHint("Merge or delete the branch, or create a job with another name").Final()
	}
	return r.push(ctx, change.Commit{Checkout: checkout, Branch: branch, Set: set, Result: found,
		Attribution: r.attribution(), BeforePush: r.saveCommit(found.Changes)}, res)
}

func (r *run) attribution() change.Attribution {
	obj := r.pass.Object
	return change.Attribution{
		By:     record.By(imagev1alpha1.ImageUpdateJobKind, obj.Namespace, obj.Name),
		Author: obj.Spec.Author, Reason: obj.Spec.Reason, ExplicitImages: len(r.request.images) > 0,
	}
}

// resume completes a job whose changes are in the branch already.
func (r *run) resume(ctx context.Context, branch change.Branch, pushed bool, res result) (result, error) {
	byJob, err := r.pushedEarlier(ctx, pushed)
	if err != nil {
		return res, err
	}
	if byJob {
		res.commit = r.pushing
		res.message = fmt.Sprintf("pushed commit '%.7s' to branch '%s'", r.pushing, branch.Name())
	}
	if !r.writer.OpensPullRequests() || len(res.changes) == 0 {
		res.changes = nil // what others changed since does not belong to the job
		return res, nil
	}
	res.message = cmp.Or(res.message, fmt.Sprintf("branch '%s' has the changes", branch.Name()))
	return r.openPullRequest(ctx, branch, res)
}

// pushedEarlier reports whether an earlier try of this job pushed its commit: the branch has it, or its note names the
// job in case that too many commits followed.
func (r *run) pushedEarlier(ctx context.Context, inBranch bool) (bool, error) {
	if r.pushing.IsZero() || inBranch {
		return inBranch, nil
	}
	by, err := r.writer.NoteBy(ctx, r.pushing)
	return by == r.attribution().By, err
}

func (r *run) push(ctx context.Context, c change.Commit, res result) (result, error) {
	if err := r.pass.Admit(change.Summary(res.changes)); err != nil {
		return res, err
	}
	pushed, err := r.writer.Push(ctx, c)
	if errors.Is(err, git.ErrUnchanged) {
		return result{problems: res.problems}, nil
	}
	if err != nil {
		return res, err
	}
	res.commit, res.message = pushed.Hash, pushed.Message
	if pushed.Warning != "" {
		res.problems = append(res.problems, pushed.Warning)
	}
	if !r.writer.OpensPullRequests() {
		return res, nil
	}
	return r.openPullRequest(ctx, c.Branch, res)
}

func (r *run) openPullRequest(ctx context.Context, branch change.Branch, res result) (result, error) {
	address, err := r.writer.OpenPullRequest(ctx, branch, res.changes,
		change.Attribution{Author: r.pass.Object.Spec.Author, Reason: r.pass.Object.Spec.Reason})
	if err != nil {
		return res, err
	}
	res.pullRequest = address
	res.message += "\npull request: " + address
	return res, nil
}

// saveCommit returns a function that writes a commit to the status before it is pushed, as the process may end in
// between.
func (r *run) saveCommit(changes []edit.Change) func(context.Context, plumbing.Hash) error {
	return func(ctx context.Context, commit plumbing.Hash) error {
		r.pushing = commit
		result{commit: commit, changes: changes}.record(r.pass.Object)
		if err := r.pass.Save(ctx, fmt.Sprintf("Pushing commit '%.7s'", commit)); err != nil {
			return fault.New(imagev1.UpdateFailedReason, "cannot record the commit before it is pushed").Because(err)
		}
		return nil
	}
}
