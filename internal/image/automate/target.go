package automate

import (
	"context"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/access"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/source/git"
)

const (
	branchPrefix = "refs/heads/"
	maxAhead     = 100 // commits of others upon ours on a push branch
)

// target is what is checked out, and where commits go.
type target struct {
	checkout git.Reference
	branch   string // in full
	apart    bool   // the push branch is another one than that which is checked out
	also     string // the destination of the refspec, in full
	keep     bool   // what is on the push branch is built upon
}

// name is that of the branch, without what all branches begin with.
func (t target) name() string { return strings.TrimPrefix(t.branch, branchPrefix) }

// targetOf reads where commits go, by the documented defaults.
func targetOf(obj *imagev1.ImageUpdateAutomation, repository *sourcev1.GitRepository) (target, error) {
	spec := obj.Spec.GitSpec
	t := target{checkout: access.GitReference(repository.Spec.Reference)}
	fallback := t.checkout
	if spec.Checkout != nil {
		t.checkout = access.GitReference(&spec.Checkout.Reference)
	}
	from := branchOf(t.checkout)
	push := from
	if push == "" && spec.Checkout == nil {
		push = branchOf(fallback)
	}
	if spec.Push != nil && spec.Push.Branch != "" {
		push = spec.Push.Branch
	}
	if push == "" {
		return t, fault.New(imagev1.InvalidSourceConfigurationReason, "there is no branch to push to").
			WithHint("What is checked out is no branch: set spec.git.push.branch").Final()
	}
	t.branch, t.apart = branchPrefix+push, push != from
	if err := git.CheckRef(t.branch); err != nil {
		return t, fault.New(imagev1.InvalidSourceConfigurationReason, "spec.git.push.branch cannot be used").
			Because(err).Final()
	}
	if spec.Push == nil || spec.Push.Refspec == "" {
		return t, nil
	}
	src, dst, found := strings.Cut(spec.Push.Refspec, ":")
	if !found || src == "" || strings.HasPrefix(src, "+") || git.CheckRef(dst) != nil {
		return t, fault.New(imagev1.InvalidSourceConfigurationReason, "spec.git.push.refspec '%.100s' cannot be used",
			spec.Push.Refspec).
			WithHint("Write it as refs/heads/%s:refs/heads/OTHER; nothing is deleted or forced by it", push).Final()
	}
	if src != "HEAD" && src != t.branch && src != push {
		return t, fault.New(imagev1.InvalidSourceConfigurationReason,
			"spec.git.push.refspec pushes '%.100s', and commits are made on '%s'", src, t.branch).
			WithHint("Let it begin with %s", t.branch).Final()
	}
	if dst != t.branch {
		t.also = dst
	}
	return t, nil
}

// branchOf is the branch that a reference leads to, empty if it leads to none.
func branchOf(r git.Reference) string {
	switch {
	case r.Name != "":
		branch, _ := strings.CutPrefix(r.Name, branchPrefix)
		if branch == r.Name {
			return ""
		}
		return branch
	case r.Tag != "" || r.SemVer != "":
		return ""
	case r.Commit != "" || r.Branch != "":
		return r.Branch
	}
	return git.DefaultBranch
}

// base is what a commit builds upon.
type base struct {
	revision git.Revision // that was checked out
	commit   plumbing.Hash
	files    *git.Files
	tip      plumbing.Hash // of the push branch; zero if there is none
}

// checkout brings the mirror to what is checked out, and to the push branch.
func (j *job) checkout(ctx context.Context) (*base, error) {
	revision, err := j.view.Update(ctx, j.remote, j.target.checkout, j.fresh)
	if err != nil {
		return nil, err
	}
	b := &base{revision: revision, commit: plumbing.NewHash(revision.Commit)}
	b.tip = b.commit
	if j.target.apart {
		if err := j.tip(ctx, b); err != nil {
			return nil, err
		}
	}
	b.files, err = j.view.Files(b.commit)
	return b, err
}

// tip finds the end of the push branch.
func (j *job) tip(ctx context.Context, b *base) error {
	var err error
	if b.tip, err = j.view.Lookup(ctx, j.target.branch); err != nil || b.tip.IsZero() {
		return err
	}
	there, err := j.view.Update(ctx, j.remote, git.Reference{Name: j.target.branch}, true)
	if err != nil {
		return err
	}
	b.tip = plumbing.NewHash(there.Commit)
	if j.target.keep {
		b.commit = b.tip
	}
	return nil
}

// counts tells whether a push branch has the changes already: it builds upon what is checked out, and nothing
// is left to change there.
func (b *base) counts(ctx context.Context, j *job) bool {
	if !j.target.apart || b.tip.IsZero() || b.tip == b.commit || !follows(j.view, b.tip, b.commit) {
		return false
	}
	files, err := j.view.Files(b.tip)
	if err != nil {
		return false
	}
	result, err := j.memory.survey.Look(ctx, files, files.Root, j.path, j.plan)
	return err == nil && len(result.Edits) == 0
}

// follows tells whether a commit is another one, or builds upon it, as far as the mirror knows.
func follows(view *git.View, commit, upon plumbing.Hash) bool {
	for range maxAhead {
		if commit == upon {
			return true
		}
		parents, err := view.Parents(commit)
		if err != nil || len(parents) == 0 {
			return false
		}
		commit = parents[0]
	}
	return false
}
