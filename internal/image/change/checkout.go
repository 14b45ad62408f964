package change

import (
	"context"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/image/edit"
	"github.com/sluice-gitops/sluice/internal/image/scan"
	"github.com/sluice-gitops/sluice/internal/source/git"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// maxAhead bounds how many commits of others on a push branch are searched.
const maxAhead = 100

// Checkout is the commit to build on.
type Checkout struct {
	Revision git.Revision // of the reference that was checked out

	commit  plumbing.Hash // parent of the next commit; the tip of the push branch if that is kept
	files   *git.Files
	pushTip plumbing.Hash // of the default push branch; zero: it does not exist, or pull requests are opened
}

// Branch is where commits are pushed.
type Branch struct {
	Tip plumbing.Hash // zero: the branch does not exist

	ref      string // full name
	separate bool   // it is not the branch that is checked out
	foreign  bool   // it has commits of others that the checkout does not have: it is never reset
}

// Name returns the name of the branch without "refs/heads/".
func (b Branch) Name() string { return strings.TrimPrefix(b.ref, branchPrefix) }

// IsCheckout reports whether commits are pushed to the branch that is checked out.
func (b Branch) IsCheckout() bool { return !b.separate }

// HasOthers reports whether the branch of a pull request has commits of others that the checkout lacks. They must stay.
func (b Branch) HasOthers() bool { return b.foreign }

// Checkout fetches the reference to check out. If fresh is set, the remote is asked even if it was asked lately.
func (w *Writer) Checkout(ctx context.Context, fresh bool) (*Checkout, error) {
	revision, err := w.view.Update(ctx, w.remote, w.target.checkout, fresh)
	if err != nil {
		return nil, err
	}
	c := &Checkout{Revision: revision, commit: plumbing.NewHash(revision.Commit)}
	c.pushTip = c.commit
	if w.target.separate && w.pullRequest == nil {
		if c.pushTip, err = w.fetchTip(ctx, w.target.branch); err != nil {
			return nil, err
		}
		if c.commit, err = w.base(ctx, c.commit, c.pushTip); err != nil {
			return nil, err
		}
	}
	c.files, err = w.view.Files(c.commit)
	return c, err
}

// fetchTip fetches a branch and returns its commit, zero if the branch does not exist.
func (w *Writer) fetchTip(ctx context.Context, ref string) (plumbing.Hash, error) {
	tip, err := w.view.Lookup(ctx, ref)
	if err != nil || tip.IsZero() {
		return tip, err
	}
	revision, err := w.view.Update(ctx, w.remote, git.Reference{Name: ref}, true)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	return plumbing.NewHash(revision.Commit), nil
}

// Scan finds the values below spec.update.path that a plan changes.
func (w *Writer) Scan(ctx context.Context, scanner *scan.Scanner, c *Checkout, plan scan.Plan) (scan.Result, error) {
	result, err := scanner.Scan(ctx, c.files, c.files.Root, updatePath(w.automation), plan)
	if guard.IsMemory(err) {
		return result, err
	}
	if err != nil {
		return result, fault.New(imagev1.UpdateFailedReason, "cannot update the files of '%s'", c.Revision).
			Because(err).
			WithHint("Set spec.update.path to the directory that has the manifests")
	}
	return result, nil
}

// updatePath returns the directory whose files are updated.
func updatePath(obj *imagev1.ImageUpdateAutomation) string {
	if u := obj.Spec.Update; u != nil {
		return u.Path
	}
	return ""
}

// Only returns the part of a scan's result that one policy causes.
func (c *Checkout) Only(ctx context.Context, result scan.Result, plan scan.Plan, policy string) (scan.Result, error) {
	part, err := result.Only(ctx, c.files, plan, policy)
	if err != nil && !guard.IsMemory(err) {
		err = fault.New(imagev1.UpdateFailedReason, "cannot read the files to change").Because(err)
	}
	return part, err
}

// Branch returns the branch to which changes are pushed, with its tip. A pull request has a branch of its own, whose
// name may depend on the changes; suffix is appended to that name.
func (w *Writer) Branch(ctx context.Context, c *Checkout, changes []edit.Change, suffix string) (Branch, error) {
	if w.pullRequest == nil || len(changes) == 0 {
		return Branch{ref: w.target.branch, Tip: c.pushTip, separate: w.target.separate}, nil
	}
	name, err := w.pullRequest.branchName(w.automation, changes)
	if err != nil {
		return Branch{}, err
	}
	b := Branch{ref: branchPrefix + name + suffix, separate: true}
	if b.Name() == w.pullRequest.into {
		return b, fault.New(imagev1.InvalidSourceConfigurationReason,
			"spec.pullRequest.branch is the branch that the pull request is merged into").
			WithHint("Set it to another name than '%s'", w.pullRequest.into).Final()
	}
	if err := git.CheckRef(b.ref); err != nil {
		return b, fault.New(imagev1.InvalidSourceConfigurationReason, "spec.pullRequest.branch is invalid").
			Because(err).Final()
	}
	if b.Tip, err = w.fetchTip(ctx, b.ref); err != nil || b.Tip.IsZero() {
		return b, err
	}
	_, foreign, err := w.compare(ctx, b.Tip, c.commit)
	b.foreign = foreign
	return b, err
}

// Onto returns the tip of a branch as the commit to build on.
func (w *Writer) Onto(b Branch, c *Checkout) (*Checkout, error) {
	on, err := *c, error(nil)
	on.commit = b.Tip
	on.files, err = w.view.Files(b.Tip)
	return &on, err
}

// HasChanges reports whether a separate branch contains the changes already: it is ahead of the checkout, and a scan of
// it finds nothing to change.
func (w *Writer) HasChanges(ctx context.Context, scanner *scan.Scanner, c *Checkout, b Branch, plan scan.Plan) bool {
	if !b.separate || b.Tip.IsZero() || b.Tip == c.commit || !w.descends(b.Tip, c.commit) {
		return false
	}
	files, err := w.view.Files(b.Tip)
	if err != nil {
		return false
	}
	result, err := scanner.Scan(ctx, files, files.Root, updatePath(w.automation), plan)
	result.Release()
	return err == nil && len(result.Edits) == 0
}

// Contains reports whether a commit is among the last 100 of a branch.
func (w *Writer) Contains(b Branch, commit plumbing.Hash) bool { return w.descends(b.Tip, commit) }

// descends reports whether a commit equals an ancestor or descends from it by its first parents, as far as they were
// fetched.
func (w *Writer) descends(commit, ancestor plumbing.Hash) bool {
	for range maxAhead {
		if commit == ancestor {
			return true
		}
		parents, err := w.view.Parents(commit)
		if err != nil || len(parents) == 0 {
			return false
		}
		commit = parents[0]
	}
	return false
}
